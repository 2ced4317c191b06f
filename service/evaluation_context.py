"""Builds platform, sandbox and models for jobs from the settings. Slow modules are imported when they are used."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.llm.models import BUILTIN, MANUAL, OPENAI_COMPATIBLE, import_litellm, missing_keys, provider_of
from agents.protocols import FRESH_START, LLM, ModelUnavailable, ResumeState
from evaluator.build_cache import BuildCache
from evaluator.device_figures import FigureStore, measure_device
from evaluator.device_files import today
from evaluator.evaluate import Effort, evaluate
from evaluator.evaluation import Evaluation
from evaluator.peak_store import PeakStore
from evaluator.platforms import PLATFORM_NAMES, Device, Platform, load_platform
from evaluator.profile import SANITIZES_ON, runs_on_gpu, with_detail
from evaluator.referee_process import HarnessFailed, prepare_referee
from sandbox.base import Sandbox, SandboxUnavailable
from service.cancellation import Cancelled, CancelToken
from service.device_lock import DeviceLockSandbox, WaitCancelled, hold_device, lock_paths
from service.errors import BadRequest
from service.settings import Settings, environment_secrets, read_key
from tasks.declarations import declarations_of
from tasks.outcomes import CANCELLED
from tasks.task import Task
from tasks.weights_file import Weights

_BESIDE_MEASURING_S = 240.0
WAITING = "waiting for the device: another job measures on it"
BEGINNING = "the device is free: beginning"
SEARCHING = "at work on the device"


@dataclass(frozen=True)
class EvaluationContext:
    """Evaluates candidates of one task, one at a time, on one device of this host.

    Attributes:
        rules: other accuracy rules whose result is reported beside ours.
        profile: whether candidates that pass are profiled as well.
        cold: whether caches are scrubbed before each timed call.
        weights: those of the task's model, on which outputs are judged as well.
        shape_group: the number of the list of the task's `get_input_groups()` that is timed; None: `get_inputs()`.
        sanitize: whether profiles have compute-sanitizer watch a call.
    """

    task: Task
    platform: Platform
    sandbox: Sandbox
    settings: Settings
    rules: tuple[str, ...] = ()
    profile: bool = False
    cold: bool = False
    weights: Weights | None = None
    shape_group: int | None = None
    sanitize: bool = False

    def prepare(self) -> None:
        """Start a referee for the next candidate while that candidate is being written."""
        prepare_referee(
            "evaluate",
            self.platform,
            device=self.settings.device,
            sandbox=self.sandbox,
            limits=self.effort.limits(),
        )

    @property
    def effort(self) -> Effort:
        """The limits of one evaluation."""
        settings = self.settings
        return Effort(
            wall_s=wall_s(settings),
            memory_mb=settings.memory_mb,
            measure_budget_s=settings.measure_s,
            precision=settings.precision,
            baselines=tuple(settings.baselines.split(",")),
            rules=self.rules,
            architectures=tuple(settings.architectures.split(",")),
            cold=self.cold,
            shape_group=self.shape_group,
        )

    @property
    def cache(self) -> BuildCache:
        """The build cache of this host."""
        return BuildCache(self.settings.data_dir / "compiled")

    @property
    def device(self) -> Device:
        """The device that the settings name."""
        return self.platform.device(self.settings.device)

    @property
    def locks(self) -> tuple[Path, ...]:
        """The lock files of the resources that the device needs exclusively."""
        return lock_paths(self.settings.lock_dir, self.platform.exclusive_resources(self.settings.device))

    def device_text(self, *, measure: bool, on_progress: Callable[[str], None], cancel: CancelToken) -> str:
        """What models are told of the device, with its figures if they are known.

        Args:
            measure: whether a device without figures is measured, once it is free.
            on_progress: called with a few words on what is done.
            cancel: ends the measurement.

        Raises:
            Cancelled: cancellation was requested before the text was known.
        """
        figures = self._figures()
        if measure and not figures and self.platform.measurable:
            try:
                with hold_device(self.locks, on_wait=lambda: on_progress(WAITING), cancel=cancel.event):
                    # Another job may have measured it meanwhile.
                    figures = self._figures() or self._measure(on_progress, cancel)
            except WaitCancelled as waiting:
                raise Cancelled from waiting
        return self.platform.device_text(self.device, figures)

    def _figures(self) -> Mapping[str, Any]:
        """The figures that are kept. What other programs disturbed serves for the day on which it was measured."""
        kept = figure_store(self.settings).get(self.device, self.sandbox.describe())
        if kept is None or (kept.values.get("noisy") and kept.measured_on != today()):
            return {}
        return kept.values

    def _measure(self, on_progress: Callable[[str], None], cancel: CancelToken) -> Mapping[str, Any]:
        """The figures, which are kept; empty if the device cannot be measured."""
        device = self.settings.device
        try:
            figures = measure_device(self.platform, device, self.sandbox, on_progress=on_progress, cancel=cancel.event)
        except HarnessFailed as failure:
            if failure.completed.cancelled:
                raise Cancelled from failure
            on_progress(f"the device could not be measured: {failure.message}")
            return {}
        except SandboxUnavailable as error:
            on_progress(f"the device could not be measured: {error}")
            return {}
        figure_store(self.settings).put(self.device, self.sandbox.describe(), figures)
        return figures

    def evaluate(
        self,
        source: str,
        *,
        on_progress: Callable[[str], None],
        cancel: CancelToken,
        profile: bool | None = None,
        trial: bool = False,
        champion: str | None = None,
    ) -> Evaluation:
        """Evaluate a candidate once the device is free.

        Args:
            source: the candidate.
            on_progress: called with a few words on each stage.
            cancel: ends the evaluation early.
            profile: overrides the context's own, unless None.
            trial: whether it is enough to know whether it is better than `champion`.
            champion: the source of the best candidate so far.

        Raises:
            Cancelled: cancellation was requested before there was a result.
            SandboxUnavailable: the sandbox cannot run anything.
        """
        try:
            with hold_device(
                self.locks,
                on_wait=lambda: on_progress(WAITING),
                on_end_of_wait=lambda: on_progress(BEGINNING),
                cancel=cancel.event,
            ):
                evaluation = evaluate(
                    self.task,
                    source,
                    sandbox=self.sandbox,
                    platform=self.platform,
                    device=self.settings.device,
                    effort=replace(self.effort, trial=True, baselines=("eager",)) if trial else self.effort,
                    champion_source=champion,
                    weights=self.weights,
                    cache=self.cache,
                    peaks=PeakStore(self.settings.data_dir / "peaks"),
                    on_progress=on_progress,
                    cancel=cancel.event,
                )
                if (self.profile if profile is None else profile) and evaluation.code != CANCELLED:
                    evaluation = with_detail(
                        evaluation,
                        self.task,
                        source,
                        sandbox=self.sandbox,
                        platform=self.platform,
                        device=self.settings.device,
                        effort=self.effort,
                        cache=self.cache,
                        sanitize=self.sanitize,
                        on_progress=on_progress,
                        cancel=cancel.event,
                    )
        except WaitCancelled as waiting:
            raise Cancelled from waiting
        if evaluation.code == CANCELLED:
            raise Cancelled
        return evaluation


def wall_s(settings: Settings) -> float:
    """The time after which an evaluation is ended, finished or not."""
    return max(Effort.wall_s, _BESIDE_MEASURING_S + 2 * settings.measure_s)


def measure_s_for(needed_s: float) -> int:
    """The least `measure_s` with which an evaluation has so long."""
    return math.ceil(max(0.0, needed_s - _BESIDE_MEASURING_S) / 2)


def figure_store(settings: Settings) -> FigureStore:
    """The figures of this host's devices."""
    return FigureStore(settings.data_dir / "devices")


@contextlib.contextmanager
def open_evaluation_context(
    task: Task,
    settings: Settings,
    *,
    own_code_only: bool,
    rules: tuple[str, ...] = (),
    profile: bool = False,
    cold: bool = False,
    weights: Weights | None = None,
    shape_group: int | None = None,
    sanitize: bool = False,
) -> Iterator[EvaluationContext]:
    """The evaluation context of a task as the settings ask for it, open during the block.

    Raises:
        BadRequest: the platform is unknown, the task has no shape groups, or there is no GPU to sanitize on.
        SandboxUnavailable: there is no sandbox to work with.
    """
    check_shape_group(task, shape_group)
    platform = open_platform(settings.platform, settings.device)
    if sanitize and not runs_on_gpu(platform):
        device = platform.device(settings.device).name
        raise BadRequest(f"--sanitize: {SANITIZES_ON}, and platform {platform.name} on this host is {device}")
    with open_sandbox(settings, own_code_only=own_code_only) as sandbox:
        profile = profile or sanitize
        yield EvaluationContext(task, platform, sandbox, settings, rules, profile, cold, weights, shape_group, sanitize)


def check_shape_group(task: Task, shape_group: int | None) -> None:
    """Refuse a shape group of a task that has none.

    Raises:
        BadRequest: the task has none.
    """
    if shape_group is not None and not declarations_of(task.source).shape_groups:
        raise BadRequest(
            f"shape group {shape_group}: {task.id} has no get_input_groups(), which would return its inputs"
        )


def open_platform(name: str, device: int = 0) -> Platform:
    """The platform of this name, on a device of this host.

    Raises:
        BadRequest: there is none.
    """
    if name not in PLATFORM_NAMES:
        raise BadRequest(f"platform {name!r} is unknown; there is: {', '.join(PLATFORM_NAMES)}")
    return load_platform(name, device)


@contextlib.contextmanager
def open_sandbox(settings: Settings, *, own_code_only: bool) -> Iterator[Sandbox]:
    """The sandbox that the settings name, or else the safest that this machine has.

    Raises:
        BadRequest: the platform is unknown.
        SandboxUnavailable: there is none to work with; its text says what to do.
    """
    image = settings.image or open_platform(settings.platform).image().tag
    from sandbox.choose import choose_sandbox  # Docker's client takes half a second to import

    sandbox = choose_sandbox(settings.sandbox, own_code_only=own_code_only, image=image)
    try:
        yield sandbox
    finally:
        close = getattr(sandbox, "close", None)  # Docker's keeps connections to the daemon
        if close is not None:
            close()


def check_keys(settings: Settings) -> None:
    """Check that the models of a job have keys, before anything is started for it. Nothing is sent.

    Raises:
        ModelUnavailable: there is none for a model whose provider needs one.
        KeyUnreadable: the file with the Coder's key cannot be read.
    """
    coder = provider_of(settings.model)
    if settings.api_key_file is not None:
        read_key(settings.api_key_file)
    for model in dict.fromkeys((settings.model, settings.judge_model or settings.model)):
        provider = provider_of(model)
        given = settings.api_key_file is not None and provider == coder
        elsewhere = settings.api_base is not None and provider in OPENAI_COMPATIBLE
        if given or elsewhere or provider in (BUILTIN, MANUAL):
            continue
        if names := missing_keys(import_litellm(), model):
            raise ModelUnavailable(model, "no key is set.", f"Set {' or '.join(names)}.")


def open_models(
    settings: Settings,
    context: EvaluationContext,
    *,
    on_progress: Callable[[str], None],
    cancel: CancelToken,
    resume_state: ResumeState = FRESH_START,
) -> LLM:
    """Access to models for a job; `resume_state` is what its earlier runs recorded.

    The built-in compiler runs inside the context's sandbox, and holds the device's locks while it does.
    """
    from agents.builtin.provider import open_builtin
    from agents.llm.client import ModelRouter, open_llm
    from agents.manual.model import ManualLLM

    sandbox = DeviceLockSandbox(
        context.sandbox,
        context.locks,
        on_wait=lambda: on_progress(WAITING),
        on_end_of_wait=lambda: on_progress(SEARCHING),
        cancel=cancel.event,
    )
    keys = {}
    if settings.api_key_file is not None:  # the Coder's; a Judge of another provider has its own variable
        keys[provider_of(settings.model)] = read_key(Path(settings.api_key_file))
    others = open_llm(
        builtin=open_builtin(sandbox), api_base=settings.api_base, keys=keys, secrets=environment_secrets()
    )
    return ModelRouter(others, ManualLLM(on_wait=on_progress, resume_state=resume_state))
