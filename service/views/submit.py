"""The choices of the form that submits an op, and which of them go together."""

from dataclasses import dataclass

from agents.llm.models import BUILTIN
from agents.memory import MemoryMode
from agents.strategies.registry import NEEDS_AN_LLM, STRATEGIES, STRATEGY_TEXTS
from db.records import WeightsRecord
from db.store import Store
from evaluator.platforms import PLATFORM_NAMES, load_platform
from evaluator.referee.protocol.baselines import BASELINES, Baseline
from service.jobs.spec import MODEL_PLATFORMS, strategy_refusal
from service.settings import Settings
from service.submissions.access import Principal
from service.submissions.enqueue import PRIORITIES
from service.submissions.jobs import allowed_models
from service.submissions.weights import list_weights_for
from service.tasks import known_task_heads
from service.views.devices import PlatformLine, devices_view
from tasks.restrict import RESTRICTIONS


@dataclass(frozen=True)
class StrategyChoice:
    """A strategy, what it does, and why it cannot be used: by platform, and with a built-in model (empty: it can)."""

    name: str
    text: str
    not_on: dict[str, str]
    not_builtin: str


@dataclass(frozen=True)
class Combinations:
    """What goes with what.

    Attributes:
        strategies: the strategies.
        builtin: the provider of the built-in models.
        seeds: the seeds of each platform. A built-in model writes for those that have one.
        models_on: the platforms for whole models.
    """

    strategies: tuple[StrategyChoice, ...]
    builtin: str
    seeds: dict[str, tuple[str, ...]]
    models_on: tuple[str, ...]


@dataclass(frozen=True)
class SubmitChoices:
    """The choices for each field. `tasks` holds names as suite/name; `models`, patterns that a submitter may use.

    `seeds` are those of any platform, `domains` the restrictions of inputs that can be asked for, `origins` the
    platforms whose kernels can be translated, and `weights` those that are kept for the user.
    """

    tasks: tuple[str, ...]
    platforms: tuple[PlatformLine, ...]
    models: tuple[str, ...]
    combinations: Combinations
    seeds: tuple[str, ...]
    domains: tuple[str, ...]
    priorities: tuple[str, ...]
    origins: tuple[str, ...]
    weights: tuple[WeightsRecord, ...]
    memory: tuple[str, ...]
    baselines: tuple[Baseline, ...]


def submit_choices(settings: Settings, store: Store, principal: Principal) -> SubmitChoices:
    """The present choices of a user on this server."""
    return SubmitChoices(
        tasks=tuple(f"{task.suite}/{task.name}" for task in known_task_heads(store)),
        platforms=devices_view(store).platforms,
        models=allowed_models(settings),
        combinations=(together := combinations(settings.device)),
        seeds=tuple(dict.fromkeys(seed for seeds in together.seeds.values() for seed in seeds)),
        domains=RESTRICTIONS,
        priorities=tuple(PRIORITIES),
        origins=PLATFORM_NAMES,
        memory=tuple(MemoryMode),
        baselines=tuple(BASELINES.values()),
        weights=tuple(each for each in list_weights_for(principal, store=store) if each.complete),
    )


def combinations(device: int = 0) -> Combinations:
    """The combinations that the checks of a submission let pass (`spec_of`, `check_model_platform`) on this device."""
    return Combinations(
        strategies=tuple(
            StrategyChoice(
                name,
                STRATEGY_TEXTS[name],
                {each: refused for each in PLATFORM_NAMES if (refused := strategy_refusal(name, each, device))},
                f"{name} needs a language model; a built-in model is a compiler search" if name in NEEDS_AN_LLM else "",
            )
            for name in STRATEGIES
        ),
        builtin=BUILTIN,
        seeds={name: load_platform(name).prompts().seeds for name in PLATFORM_NAMES},
        models_on=MODEL_PLATFORMS,
    )
