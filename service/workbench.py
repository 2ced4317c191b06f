"""Puts the parts together: which platform, which sandbox, which models. Slow parts are imported when used."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agents.llm.names import provider_of
from agents.protocols import LLM, NO_PAST, Past
from evaluator.build_cache import BuildCache
from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.platforms import PLATFORM_NAMES, Platform, load_platform
from evaluator.profile import with_detail
from evaluator.referee_process import prepare_referee
from sandbox.base import Sandbox
from service.cancellation import Stop
from service.device_lock import StillWaiting, TurnSandbox, device_lock, turn
from service.errors import BadRequest
from service.settings import Settings, environment_secrets, read_key
from tasks.task import Task

WAITING = "waiting for the device: another job measures on it"


class Stopped(Exception):
    """What was going on was called off half-way; there is no result."""


@dataclass(frozen=True)
class Bench:
    """Where the candidates of a task are evaluated, one at a time on a host's device."""

    task: Task
    platform: Platform
    sandbox: Sandbox
    settings: Settings
    rules: tuple[str, ...] = ()  # other accuracy rules to report on beside ours
    profile: bool = False  # whether candidates that pass are profiled, too
    cold: bool = False  # whether caches are scrubbed before each timed call

    def prepare(self) -> None:
        """Have a referee ready for the next candidate, while that is being written."""
        prepare_referee("evaluate", sandbox=self.sandbox, limits=self.effort.limits())

    @property
    def effort(self) -> Effort:
        """How much one evaluation may use."""
        settings = self.settings
        return Effort(
            wall_s=max(Effort.wall_s, 240 + 2 * settings.measure_s),
            memory_mb=settings.memory_mb,
            measure_budget_s=settings.measure_s,
            precision=settings.precision,
            rules=self.rules,
            cold=self.cold,
        )

    @property
    def cache(self) -> BuildCache:
        """What candidates and baselines have built on this host."""
        return BuildCache(self.settings.data_dir / "compiled")

    @property
    def lock(self) -> Path:
        """Whoever holds it has the device."""
        return device_lock(self.settings.lock_dir, self.platform.name, self.settings.device)

    def evaluate(
        self, source: str, *, step: Callable[[str], None], stop: Stop, profile: bool | None = None
    ) -> Evaluation:
        """Evaluate a candidate once the device is free; `profile` overrides the bench's own.

        Raises:
            Stopped: a stop was requested before there was a result.
            SandboxUnavailable: the sandbox cannot run anything.
        """
        try:
            with turn(self.lock, on_wait=lambda: step(WAITING), cancel=stop.event):
                evaluation = evaluate(
                    self.task,
                    source,
                    sandbox=self.sandbox,
                    platform=self.platform,
                    effort=self.effort,
                    cache=self.cache,
                    on_progress=step,
                    cancel=stop.event,
                )
                if (self.profile if profile is None else profile) and evaluation.code != "cancelled":
                    evaluation = with_detail(
                        evaluation,
                        self.task,
                        source,
                        sandbox=self.sandbox,
                        effort=self.effort,
                        on_progress=step,
                        cancel=stop.event,
                    )
        except StillWaiting as waiting:
            raise Stopped from waiting
        if evaluation.code == "cancelled":
            raise Stopped
        return evaluation


@contextlib.contextmanager
def open_bench(
    task: Task,
    settings: Settings,
    *,
    own_code_only: bool,
    rules: tuple[str, ...] = (),
    profile: bool = False,
    cold: bool = False,
) -> Iterator[Bench]:
    """The bench for a task as the settings ask for it, for the length of the block.

    Raises:
        BadRequest: the platform is unknown.
        SandboxUnavailable: there is no sandbox to work with.
    """
    platform = open_platform(settings.platform)
    with open_sandbox(settings, own_code_only=own_code_only) as sandbox:
        yield Bench(task, platform, sandbox, settings, rules, profile, cold)


def open_platform(name: str) -> Platform:
    """The platform of this name.

    Raises:
        BadRequest: there is none.
    """
    if name not in PLATFORM_NAMES:
        raise BadRequest(f"platform {name!r} is unknown; there is: {', '.join(PLATFORM_NAMES)}")
    return load_platform(name)


@contextlib.contextmanager
def open_sandbox(settings: Settings, *, own_code_only: bool) -> Iterator[Sandbox]:
    """The sandbox that the settings name, or else the safest that this machine has.

    Raises:
        SandboxUnavailable: there is none to work with; its text says what to do.
    """
    from sandbox.choose import choose_sandbox  # Docker's client takes half a second to import

    sandbox = choose_sandbox(settings.sandbox, own_code_only=own_code_only, image=settings.image)
    try:
        yield sandbox
    finally:
        close = getattr(sandbox, "close", None)  # Docker's keeps connections to the daemon
        if close is not None:
            close()


def open_models(
    settings: Settings, bench: Bench, *, step: Callable[[str], None], stop: Stop, past: Past = NO_PAST
) -> LLM:
    """Access to models, for a job with this past.

    The built-in compiler works inside the bench's sandbox and takes its turn on the device.
    """
    from agents.builtin.provider import open_builtin
    from agents.llm.client import open_llm
    from agents.llm.router import Models
    from agents.manual.model import ManualLLM

    sandbox = TurnSandbox(bench.sandbox, bench.lock, on_wait=lambda: step(WAITING), stop=stop.event)
    keys = {}
    if settings.api_key_file is not None:  # the Coder's; a Judge of another provider has its own variable
        keys[provider_of(settings.model)] = read_key(Path(settings.api_key_file))
    others = open_llm(
        builtin=open_builtin(sandbox), api_base=settings.api_base, keys=keys, secrets=environment_secrets()
    )
    return Models(others, ManualLLM(on_wait=step, past=past))
