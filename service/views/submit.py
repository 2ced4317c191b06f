"""The choices of the form that submits an op."""

from dataclasses import dataclass

from agents.memory import MemoryMode
from agents.strategies.registry import STRATEGIES
from db.records import WeightsRecord
from db.store import Store
from evaluator.platforms import PLATFORM_NAMES
from service.settings import Settings
from service.submissions.access import Principal
from service.submissions.enqueue import PRIORITIES
from service.submissions.jobs import allowed_models
from service.submissions.weights import list_weights_for
from service.tasks import known_task_heads
from service.views.devices import PlatformLine, devices_view


@dataclass(frozen=True)
class SubmitChoices:
    """The choices for each field. `tasks` holds names as suite/name; `models`, patterns that a submitter may use.

    `origins` are the platforms whose kernels can be translated, and `weights` those that are kept for the user.
    """

    tasks: tuple[str, ...]
    platforms: tuple[PlatformLine, ...]
    models: tuple[str, ...]
    strategies: tuple[str, ...]
    priorities: tuple[str, ...]
    origins: tuple[str, ...]
    weights: tuple[WeightsRecord, ...]
    memory: tuple[str, ...]


def submit_choices(settings: Settings, store: Store, principal: Principal) -> SubmitChoices:
    """The present choices of a user on this server."""
    return SubmitChoices(
        tasks=tuple(f"{task.suite}/{task.name}" for task in known_task_heads(store)),
        platforms=devices_view(store).platforms,
        models=allowed_models(settings),
        strategies=STRATEGIES,
        priorities=tuple(PRIORITIES),
        origins=PLATFORM_NAMES,
        memory=tuple(MemoryMode),
        weights=tuple(each for each in list_weights_for(principal, store=store) if each.complete),
    )
