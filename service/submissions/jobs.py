"""Job requests over HTTP: within the limits of the token, and without access to the server's own settings."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy.orm import Session

from agents.llm.models import BUILTIN_MODELS, is_builtin
from db.accounts.audit import add_change_of_anothers
from db.jobs import job_queue, jobs
from db.records import PLAN_ONLY, JobRecord
from db.store import Store
from service.batches.manage import requeue_regions
from service.errors import BadRequest
from service.jobs.batch_budget import worst_paid_usd
from service.jobs.limits import raise_limits
from service.jobs.query import cancel_job
from service.jobs.spec import for_provider, settings_of
from service.settings import Settings, override
from service.submissions.access import NotAllowed, Principal, Role, require, require_owner
from service.submissions.enqueue import check_submission, queue_job
from service.submissions.idempotency import run_idempotent
from service.submissions.quotas import check_quota, hold_quota, priced_models
from service.translation import translated
from service.weights import require_weights, weights_named
from tasks.restrict import restrict
from tasks.task import Task

OPTIONS = (
    *("platform", "model", "judge_model", "strategy", "rounds", "seed", "plateau_rounds", "roofline_target", "memory"),
    *("baselines", "price", "budget_usd", "budget_tokens", "budget_s", "budget_evaluations"),
)
"""The options that a request may set. Addresses, key files, images, sandboxes and paths of the server are not."""


def settings_for(settings: Settings, principal: Principal, options: Mapping[str, Any]) -> Settings:
    """The server's settings with the options of a job.

    Raises:
        BadRequest: an option may not be set, or its value is not valid.
        NotAllowed: this role may not use the model, or may not set a price.
    """
    if refused := sorted(options.keys() - set(OPTIONS)):
        raise BadRequest(f"{refused[0][:80]}: is the server's to set; leave it out")
    check_price_setter(principal, options.get("price"))
    wanted = override(for_provider(settings, options.get("model") or settings.model), **options)
    check_models(settings, principal, wanted.model, wanted.judge_model or wanted.model)
    return wanted


def check_models(settings: Settings, principal: Principal, *models: str) -> None:
    """Check that a role may use these models.

    Raises:
        NotAllowed: it may not use one; the text names that model and those allowed.
    """
    for model in dict.fromkeys(models):
        if not may_use(settings, principal, model):
            allowed = ", ".join(allowed_models(settings))
            raise NotAllowed(f"model {model[:80]!r} is not among those allowed here: {allowed}")


def check_price_setter(principal: Principal, *prices: str | None) -> None:
    """Check that only an operator sets prices, because quotas are counted by them.

    Raises:
        NotAllowed: another user gave a price.
    """
    if any(price is not None for price in prices) and not principal.role.includes(Role.OPERATOR):
        raise NotAllowed("price: is an operator's to set, for quotas are counted by it; leave it out")


def allowed_models(settings: Settings) -> tuple[str, ...]:
    """Patterns of models for submitters: the built-in models, the server's own, and those of the setting `models`."""
    own = [model for model in (settings.model, settings.judge_model) if model is not None]
    given = [pattern.strip() for pattern in settings.models.split(",") if pattern.strip()]
    return tuple(dict.fromkeys([*BUILTIN_MODELS, *own, *given]))


def may_use(settings: Settings, principal: Principal, model: str) -> bool:
    """Whether this role may use a model; operators may use any."""
    if principal.role.includes(Role.OPERATOR):
        return True
    return is_builtin(model) or any(fnmatchcase(model, pattern) for pattern in allowed_models(settings))


def submit_for(
    principal: Principal,
    task: Task,
    *,
    options: Mapping[str, Any],
    origin: str | None = None,
    kernel: str | None = None,
    domain: str | None = None,
    priority: str = "normal",
    settings: Settings,
    store: Store,
    key: str | None = None,
) -> tuple[int, bool]:
    """Queue a job. `origin` and `kernel` say which kernel it translates, if any (`service.translation`), and `domain`
    on which inputs the task is asked for, if not on all (`tasks.restrict`).

    Returns:
        The job's id, and False if an earlier request with this key had queued it.

    Raises:
        BadRequest, TaskError: the request is invalid.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)
    if priority == "high":
        require(principal, Role.OPERATOR)
    wanted = settings_for(settings, principal, options)
    task = translated(restrict(task, domain), wanted, origin=origin, kernel=kernel)
    check_submission(task, wanted, priority)
    priced = priced_models(principal, [wanted])

    def create(session: Session) -> str:
        check_quota(session, principal, [wanted], priced=priced)
        return str(queue_job(session, task, settings=wanted, user=principal.user, priority=priority))

    request = {"do": "submit", "task": task.id, "source": task.source, "priority": priority, **options}
    created, new = run_idempotent(store, create, user=principal.user, key=key, request=request)
    return int(created), new


def cancel_for(principal: Principal, job_id: int, *, store: Store) -> JobRecord:
    """Cancel a job; a job that has ended stays as it is.

    Raises:
        NotInStore: there is none with this id.
        NotAllowed: it is another user's.
    """
    return cancel_job(
        store,
        job_id,
        actor=principal.actor,
        check_owner=lambda owner: require_owner(principal, owner, f"job {job_id}", "cancel"),
    )


def resume_for(
    principal: Principal,
    job_id: int,
    *,
    limits: Mapping[str, Any] | None = None,
    settings: Settings,
    store: Store,
) -> JobRecord:
    """Queue a job again that ended early, or that is done and gets larger limits. Paid work is not repeated.

    Args:
        principal: the user of the request.
        job_id: the job.
        limits: larger limits of the job, by their names in `service.jobs.limits.LIMITS`.
        settings: the server's settings.
        store: the store.

    Raises:
        NotInStore: there is none with this id.
        NotAllowed, QuotaExceeded: it is another user's, or the token has no room for it.
        Conflict: it is done, queued or running.
        BadRequest: a limit cannot be raised so.
    """
    with store.read() as session:
        job = jobs.get_job(session, job_id)
    priced = priced_models(principal, [_wanted(job, settings)])
    with store.write() as session:
        require_owner(principal, jobs.get_job(session, job_id).user, f"job {job_id}", "resume")
        hold_quota(session, principal)  # before the job is locked: who resumes a batch takes these locks in this order
        job = raise_limits(session, job_id, limits or {})
        wanted = _wanted(job, settings)
        check_quota(session, principal, [wanted], priced=priced, spent_usd=worst_paid_usd(session, job))
        require_weights(session, job.user, weights_named(job))
        job_queue.requeue_job(session, job_id, done=bool(limits))
        if job.kind == "model":
            requeue_regions(session, job_id)
        add_change_of_anothers(
            session, actor=principal.actor, owner=job.user, action="job.resume", subject=f"job/{job_id}"
        )
        return jobs.get_job(session, job_id)


def _wanted(job: JobRecord, settings: Settings) -> Settings | None:
    """The settings of a job that is queued again; None for one that calls no model."""
    return None if job.kind == "evaluate" or job.options.get(PLAN_ONLY) else settings_of(job, settings)
