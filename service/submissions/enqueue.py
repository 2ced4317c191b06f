"""Puts jobs into the queue, one at a time or for a batch."""

from typing import Any

from sqlalchemy.orm import Session

from agents.llm.models import provider_of
from db.jobs import job_queue, model_runs
from db.records import PLAN_ONLY, WEIGHTS
from evaluator.platforms import PLATFORM_NAMES
from service.errors import BadRequest
from service.jobs.persistence import save_task
from service.jobs.spec import SANDBOX, check_model_platform, options_of, spec_of
from service.settings import Settings
from service.translation import translation_option
from tasks.task import Task

PRIORITIES = {"low": 1, "normal": 0, "high": -1}
"""Names of priorities, as the queue counts them: the lowest number first."""


def check_submission(task: Task, settings: Settings, priority: str, *, whole_model: bool = False) -> None:
    """Check whether a job could be queued. `whole_model` says that it is one over a whole model.

    Raises:
        BadRequest: platform, priority, model or strategy cannot be used.
    """
    if priority not in PRIORITIES:
        raise BadRequest(f"priority {priority[:80]!r} is unknown; there is: {', '.join(PRIORITIES)}")
    if whole_model:
        check_model_platform(settings.platform)
    if settings.platform not in PLATFORM_NAMES:
        raise BadRequest(f"platform {settings.platform[:80]!r} is unknown; there is: {', '.join(PLATFORM_NAMES)}")
    for model in (settings.model, settings.judge_model or settings.model):
        if provider_of(model) == "manual":
            raise BadRequest(
                f"model {model[:80]}: works with files of one machine; use it with `kernelwright optimize`"
            )
    spec_of(task, settings, device="")


def queue_job(
    session: Session,
    task: Task,
    *,
    settings: Settings,
    user: str,
    priority: str,
    kind: str = "optimize",
    **more_options: Any,
) -> int:
    """Store a checked job in the caller's transaction, with `more_options` beside those of the settings; its id."""
    return job_queue.add_queued_job(
        session,
        task_id=save_task(session, task),
        kind=kind,
        platform=settings.platform,
        model=settings.model,
        strategy=settings.strategy,
        options=kept_options(task, settings) | more_options,
        user=user,
        priority=PRIORITIES[priority],
    )


def queue_model(
    session: Session,
    model: Task,
    *,
    settings: Settings,
    user: str,
    priority: str,
    plan_only: bool = False,
    weights: str | None = None,
) -> int:
    """Store a checked job over a whole model in the caller's transaction; its id. `weights` is their digest."""
    asked = {PLAN_ONLY: plan_only, WEIGHTS: weights}
    job_id = queue_job(session, model, settings=settings, user=user, priority=priority, kind="model", **asked)
    model_runs.add_run(session, job_id)
    return job_id


def kept_options(task: Task, settings: Settings) -> dict[str, Any]:
    """The options that are stored with a queued job."""
    return options_of(settings) | asked_sandbox(settings) | translation_option(task) | {"ref": task.id, "out": None}


def asked_sandbox(settings: Settings) -> dict[str, Any]:
    """The option that makes a job require the settings' sandbox; empty if they name none."""
    return {} if settings.sandbox is None else {SANDBOX: settings.sandbox}
