"""What a job is asked for: kept with it when it begins, and read again whenever it is taken up."""

from typing import Any

from agents.job import JobSpec, check_spec
from agents.llm.budget import Budget
from agents.llm.models import provider_of
from agents.protocols import Price
from db.records import JobRecord, TaskRecord
from service.errors import BadRequest
from service.settings import Settings
from tasks.task import Task

# What must be the same when a job is taken up again, besides the columns of its row.
_OPTIONS = (
    *("judge_model", "rounds", "seed", "plateau_rounds", "roofline_target", "api_base", "image", "price"),
    *("budget_usd", "budget_tokens", "budget_s", "budget_evaluations"),
)


def options_of(settings: Settings) -> dict[str, Any]:
    """The settings that a job keeps, as plain values."""
    options: dict[str, Any] = {name: getattr(settings, name) for name in _OPTIONS}
    if settings.api_key_file is not None:
        options["api_key_file"] = str(settings.api_key_file.expanduser().absolute())
    return options


def settings_of(job: JobRecord, settings: Settings) -> Settings:
    """`settings` as the job keeps them."""
    return settings.model_copy(
        update={
            **{name: job.options.get(name) for name in (*_OPTIONS, "api_key_file")},
            "platform": job.platform,
            "model": job.model,
            "strategy": job.strategy,
        }
    )


def for_provider(settings: Settings, model: str) -> Settings:
    """`settings` with the address and key file only if `model` is of the provider that they belong to: its own."""
    if provider_of(model) == provider_of(settings.model):
        return settings
    return settings.model_copy(update={"api_base": None, "api_key_file": None})


def task_of(job: JobRecord) -> Task:
    """The task of a single job, from the store.

    Raises:
        TypeError: the job is one of a list, whose tasks have no sources.
    """
    if not isinstance(job.task, TaskRecord):
        raise TypeError(f"job {job.id} was read without its task's source; use db.jobs.jobs.get_job")
    return job.task.to_task()


def spec_of(task: Task, settings: Settings, *, device: str) -> JobSpec:
    """What the agents are to do. `device` is the text that prompts show.

    Raises:
        BadRequest: the strategy is unknown, or a bound is out of range.
    """
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
        model=settings.model,
        judge_model=settings.judge_model,
        strategy=settings.strategy,
        rounds=settings.rounds,
        seed=settings.seed,
        budget=Budget(settings.budget_usd, settings.budget_tokens, settings.budget_s, settings.budget_evaluations),
        price=price,
        plateau_rounds=settings.plateau_rounds,
        roofline_target=settings.roofline_target,
    )
    try:
        check_spec(spec)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return spec
