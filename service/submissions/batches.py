"""Batch requests over HTTP. Each job of a batch has the limits of a single job."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from db.accounts.audit import add_change_of_anothers
from db.jobs import batches, jobs, model_runs
from db.records import RESUMABLE, JobCost
from db.store import Store
from service.batches.manage import FINAL, cancel_batch, queue_batch, requeue_batch
from service.batches.plan import plan_batch
from service.batches.spec import BatchSpec
from service.jobs.query import mark_dead_jobs
from service.jobs.spec import settings_of
from service.settings import Settings
from service.submissions.access import Principal, Role, require, require_owner
from service.submissions.idempotency import run_idempotent
from service.submissions.jobs import OPTIONS, check_models, check_price_setter
from service.submissions.quotas import QuotaExceeded, check_quota, hold_quota, priced_models


def start_batch_for(
    principal: Principal, spec: BatchSpec, *, settings: Settings, store: Store, key: str | None = None
) -> tuple[int, bool]:
    """Queue all jobs of a batch.

    Returns:
        The batch's id, and False if an earlier request with this key had queued it.

    Raises:
        BadRequest: the request is invalid; nothing was queued.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)
    if spec.priority == "high":
        require(principal, Role.OPERATOR)
    check_price_setter(principal, spec.job.price, *(choice.price for choice in spec.choices))
    for choice in spec.choices:
        check_models(settings, principal, choice.name, choice.judge_model or spec.job.judge_model or choice.name)
    plan = plan_batch(spec, settings=settings, store=store, files=False)
    wanted = [planned_job.settings for planned_job in plan.jobs]
    priced = priced_models(principal, wanted)

    def create(session: Session) -> str:
        check_quota(session, principal, wanted, priced=priced)
        return str(queue_batch(session, spec, plan, user=principal.user))

    request = {"do": "batch", **spec.model_dump(mode="json")}
    created, new = run_idempotent(store, create, user=principal.user, key=key, request=request)
    return int(created), new


def cancel_batch_for(principal: Principal, batch_id: int, *, store: Store) -> int:
    """Cancel a batch.

    Returns:
        The number of jobs that this concerns.

    Raises:
        NotInStore: there is no batch with this id.
        NotAllowed: it is another user's.
    """
    return cancel_batch(
        store,
        batch_id,
        actor=principal.actor,
        check_owner=lambda owner: require_owner(principal, owner, f"batch {batch_id}", "cancel"),
    )


def resume_batch_for(
    principal: Principal, batch_id: int, *, budget_usd: float | None = None, settings: Settings, store: Store
) -> int:
    """Queue the jobs of a batch again that ended before they were done. `budget_usd`, if given, becomes its total.

    Returns:
        The number of waiting jobs.

    Raises:
        NotInStore: there is no batch with this id.
        NotAllowed, QuotaExceeded: it is another user's, or the token has no room for them. Of a token with a limit in
            dollars, the total of a run's regions stays: the run counts by its own budget.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        owner = batches.get_batch(session, batch_id).user
        require_owner(principal, owner, f"batch {batch_id}", "resume")
        wanted = {job.id: settings_of(job, settings) for job in jobs.list_jobs(session, batch_id=batch_id)}
    priced = priced_models(principal, wanted.values())
    with store.write() as session:
        hold_quota(session, principal)  # before reading which jobs ended, because another request may queue them
        again = [
            wanted[job.id].model_copy(update={"budget_usd": job.options.get("budget_usd")})
            for job in batches.job_costs(session, batch_id)
            if _may_run_again(job)
        ]
        check_quota(session, principal, again, priced=priced)
        if budget_usd is not None and principal.max_usd_a_day is not None:
            _require_own_total(session, batch_id)
        waiting = requeue_batch(session, batch_id)
        if budget_usd is not None:
            batches.set_budget(session, batch_id, budget_usd)
        if again or budget_usd is not None:
            add_change_of_anothers(
                session, actor=principal.actor, owner=owner, action="batch.resume", subject=f"batch/{batch_id}"
            )
        return waiting


def public_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A batch's spec without the server's files and its access to models."""
    names = (
        "name",
        "tasks",
        "whole_models",
        "models",
        "platforms",
        "domain",
        "translate_from",
        "weights",
        "samples",
        "budget_usd",
        "priority",
        "job",
    )
    told = {name: spec[name] for name in names if name in spec}
    if "tasks" in told:
        told["tasks"] = [ref for ref in told["tasks"] if not (str(ref).endswith(".py") or str(ref).count("/") > 1)]
    if "weights" in told:
        told["weights"] = {ref: digest for ref, digest in told["weights"].items() if ref in told["tasks"]}
    if "models" in told:
        told["models"] = [model["name"] if isinstance(model, Mapping) else model for model in told["models"]]
    if "job" in told:
        told["job"] = {name: value for name, value in told["job"].items() if name in OPTIONS}
    return told


def _may_run_again(job: JobCost) -> bool:
    return job.status in RESUMABLE and job.stop_reason not in FINAL


def _require_own_total(session: Session, batch_id: int) -> None:
    if (run := model_runs.run_of_batch(session, batch_id)) is not None:
        raise QuotaExceeded(
            f"batch {batch_id} spends the budget_usd of model run {run}, which counts in the dollars of the day;"
            " submit a new run for more"
        )
