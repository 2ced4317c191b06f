"""What a job was asked for: stored when it begins, read whenever it is resumed. And where it may be measured."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.job import JobSpec, check_spec
from agents.llm.budget import Budget
from agents.llm.models import provider_of
from agents.prompting.prompt_pack import PromptPack, read_prompt_pack
from agents.protocols import Price
from agents.strategies.registry import NEEDS_TIMES, SCREEN_THEN_TIME, STRATEGIES
from db.records import JobRecord, TaskRecord
from evaluator.platforms import SCREENED, load_platform
from service.errors import BadRequest
from service.settings import Settings
from service.translation import check_reference, source_language
from tasks.task import Task

SANDBOX = "sandbox"
"""The option of a job that names the sandbox which it requires; without it any sandbox will do."""

DEVICE_TEXT = "device_text"
"""The option of a job that holds what its models are told of the device. It is stored once, before the first prompt."""

BASELINES = "baselines"
"""The option of a job that names what its kernels are timed against, by commas."""

OUT = "out"
"""The option of a job that says where its result goes."""

MODEL_PLATFORMS = ("cpu",)
"""Platforms whose kernels can be put back into a model and timed in it."""

# Settings that must be the same when a job is resumed, besides the columns of its row.
_OPTIONS = (
    *("judge_model", "rounds", "seed", "plateau_rounds", "roofline_target", "memory", "api_base", "image", "price"),
    *("budget_usd", "budget_tokens", "budget_s", "budget_evaluations"),
    BASELINES,
)


def options_of(settings: Settings) -> dict[str, Any]:
    """The settings that are stored with a job, as plain values."""
    options: dict[str, Any] = {name: getattr(settings, name) for name in _OPTIONS}
    if settings.api_key_file is not None:
        options["api_key_file"] = str(settings.api_key_file.expanduser().absolute())
    return options


def settings_of(job: JobRecord, settings: Settings) -> Settings:
    """`settings` with those that are stored with the job."""
    return settings_of_options(job.options, settings).model_copy(
        update={"platform": job.platform, "model": job.model, "strategy": job.strategy}
    )


def settings_of_options(options: Mapping[str, Any], settings: Settings) -> Settings:
    """`settings` with those that `options_of` has stored."""
    stored = {name: options.get(name) for name in (*_OPTIONS, "api_key_file")}
    stored[BASELINES] = options.get(BASELINES) or settings.baselines  # a job of an earlier version names none
    return settings.model_copy(update=stored)


def for_provider(settings: Settings, model: str) -> Settings:
    """`settings`, without address and key file unless `model` is of the same provider as the settings' own model."""
    if provider_of(model) == provider_of(settings.model):
        return settings
    return settings.model_copy(update={"api_base": None, "api_key_file": None})


def task_of(job: JobRecord) -> Task:
    """The task of a job that was read with its source.

    Raises:
        TypeError: the job comes from a list, whose tasks have no sources.
    """
    if not isinstance(job.task, TaskRecord):
        raise TypeError(f"job {job.id} was read without its task's source; use db.jobs.jobs.get_job")
    return job.task.to_task()


def spec_of(task: Task, settings: Settings, *, device: str) -> JobSpec:
    """The agents' description of the job.

    Args:
        task: the task.
        settings: the job's settings.
        device: what prompts say of the device.

    Raises:
        BadRequest: the strategy needs times and the platform has none, or screens and the platform does not, it is
            unknown, a model cannot write for the platform, a bound is out of range, the kernel that the task brings is
            for no platform that is known, or it is the reference and the platform times candidates.
    """
    if refused := strategy_refusal(settings.strategy, settings.platform, settings.device):
        raise BadRequest(refused)
    check_reference(task, settings.platform)
    price = None
    if settings.price is not None:
        prompt, reply = (float(dollars) / 1e6 for dollars in settings.price.split(","))
        price = Price(prompt, reply)
    spec = JobSpec(
        task_id=task.id,
        task_source=task.source,
        category=task.category,
        dtype=task.dtype,
        platform=settings.platform,
        device=device,
        prompts=prompts_of(settings.platform),
        model=settings.model,
        judge_model=settings.judge_model,
        strategy=settings.strategy,
        rounds=settings.rounds,
        seed=settings.seed,
        budget=Budget(settings.budget_usd, settings.budget_tokens, settings.budget_s, settings.budget_evaluations),
        price=price,
        plateau_rounds=settings.plateau_rounds,
        roofline_target=settings.roofline_target,
        source_language=source_language(task),
    )
    try:
        check_spec(spec)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return spec


def strategy_refusal(strategy: str, platform: str, device: int = 0) -> str:
    """Why a strategy cannot be used on a platform, and what to do; empty if it can."""
    if load_platform(platform, device).timed == "nothing" and strategy in NEEDS_TIMES:
        return (
            f"strategy {strategy!r} chooses by times, and platform {platform!r} times nothing; "
            f"choose {', '.join(name for name in STRATEGIES if name not in NEEDS_TIMES)}"
        )
    if strategy == SCREEN_THEN_TIME and platform not in SCREENED:
        return (
            f"strategy {SCREEN_THEN_TIME!r} is for platforms whose candidates are screened where their device is not: "
            f"{', '.join(SCREENED)}; platform {platform!r} is none of them, so choose judge"
        )
    return ""


def check_model_platform(name: str) -> None:
    """Refuse a platform whose kernels cannot be put back into a model and timed there.

    Raises:
        BadRequest: it is one.
    """
    if name not in MODEL_PLATFORMS:
        raise BadRequest(f"platform {name[:80]!r}: whole models are for {', '.join(MODEL_PLATFORMS)}")


def prompts_of(platform: str) -> PromptPack:
    """What prompts say about a platform."""
    found = load_platform(platform).prompts()
    return read_prompt_pack(found.folder, default_category=found.default_category, seeds=found.seeds, rules=found.rules)


def device_class_of(platform: str, description: str) -> str:
    """Identifies devices whose figures are comparable: the first letters of a hash of `Device.describe`."""
    return hashlib.sha256(f"{platform}\n{description}".encode()).hexdigest()[:8]


def started_device_class(job: JobRecord) -> str | None:
    """The device class that a job began on; None for one that has not begun."""
    known, description = job.options.get("device_kind"), job.options.get("device")
    if known is not None:
        return str(known)
    return None if description is None else device_class_of(job.platform, str(description))


def told_device_text(job: JobRecord, *, begun: bool) -> str | None:
    """What a job's models have been told of the device; None if they have not been told anything yet.

    A job that was begun by a version that stored no such text has told them the device's description.
    """
    text = job.options.get(DEVICE_TEXT) or (job.options.get("device") if begun else None)
    return None if text is None else str(text)


def required_sandbox(job: JobRecord) -> str | None:
    """The sandbox that a job began in, else the one that it asks for; None if any sandbox will do."""
    begun = job.sandbox if started_device_class(job) is not None else None
    asked = job.options.get(SANDBOX)
    return begun or (None if asked is None else str(asked))


@dataclass(frozen=True)
class MeasurementTarget:
    """A device and a sandbox in which jobs are measured; `device` is the device's full description."""

    platform: str
    device: str
    sandbox: str

    @property
    def device_class(self) -> str:
        """The class of the device."""
        return device_class_of(self.platform, self.device)

    def options_for(self, job: JobRecord, *, any_sandbox: bool = False) -> dict[str, str] | None:
        """The options that a job must store to be measured here; None if it may not be.

        A job stays with the device class and the sandbox that it began in, since speedups in others are not comparable.

        Args:
            job: the job.
            any_sandbox: whether the job may change its sandbox.
        """
        began_on, sandbox = started_device_class(job), required_sandbox(job)
        if began_on not in (None, self.device_class) or (not any_sandbox and sandbox not in (None, self.sandbox)):
            return None
        return {"device": str(job.options.get("device") or self.device), "device_kind": self.device_class}
