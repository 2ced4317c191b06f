"""The total budget of a batch: what its jobs have cost at most, and what is left for the next one."""

import math
from typing import Any

from sqlalchemy.orm import Session

from agents.llm.models import only_builtin
from agents.protocols import Event
from agents.replay import resume_state_from_events
from db.evaluations import results
from db.jobs import batches, jobs, model_runs
from db.records import OPEN, JobCost, JobRecord, JobStatus, Owner
from service.jobs.query import end_job


def worst_paid_usd(session: Session, job: JobRecord | JobCost) -> float:
    """The most that earlier runs of a job may have cost, in dollars, including runs whose process died."""
    if (regions := _regions_of(session, job)) is not None:  # a run over a whole model costs what its jobs do
        return sum(worst_paid_usd(session, each) for each in regions)
    if job.status is JobStatus.DONE:
        return job.cost_usd + job.unsettled_usd
    if job.started_at is None:
        return 0.0
    # Only the job's events tell of calls that a process had begun when it died.
    events = [
        Event(event.kind, event.round, {"reply": "", **event.data})
        for event in results.list_events(session, job.id, kinds=("llm_started", "llm_call", "llm_failed"))
    ]
    spent = resume_state_from_events(events).spent
    return spent.cost_usd + spent.unsettled_usd


OWN_BUDGET = "own_budget_usd"
"""The option that keeps what a job was asked to cost at most; `budget_usd` holds what it was allotted."""


WEIGHT = "budget_weight"
"""The option with a job's weight where what is left of a batch's total is shared among its jobs; 1 without it."""


def allot_budget(session: Session, job_id: int) -> float:
    """Store in a job's options what it may cost in all, and return that in dollars.

    Call this right after the job was claimed, in the same transaction. What others leave is shared among the job and
    those that wait, by their weights.

    Returns:
        The dollars. 0 if nothing is left: the job must not run; call `finish_without_budget`. Infinity if nothing
        bounds the job: it has no batch, its batch has no total, or its models are free; its options stay as they are.

    Raises:
        NotInStore: there is no such job.
    """
    job = jobs.get_job(session, job_id)
    if job.batch_id is None or _is_free(job):
        return math.inf
    batch = batches.get_batch(session, job.batch_id, lock=True)
    own = job.options.get(OWN_BUDGET, job.options.get("budget_usd"))
    if batch.budget_usd is None:
        if OWN_BUDGET in job.options:  # there was a total when it last ran
            _set_budget(session, job_id, budget_usd=own)
        return math.inf
    costs = [cost for cost in batches.job_costs(session, batch.id) if not _is_free(cost)]
    paid = sum(worst_paid_usd(session, cost) for cost in costs if cost.id == job_id)
    others = [cost for cost in costs if cost.id != job_id]
    left = batch.budget_usd - paid - sum(_committed(session, other) for other in others)
    waiting = sum(_weight(other) for other in others if other.status is JobStatus.QUEUED)
    share = max(0.0, left) * _weight(job) / (waiting + _weight(job))
    allotted = paid + share if own is None else min(float(own), paid + share)
    _set_budget(session, job_id, budget_usd=allotted, **{OWN_BUDGET: own})
    return allotted if share > 0 else 0.0


def finish_without_budget(session: Session, job_id: int, owner: Owner) -> None:
    """End a job that `owner` claimed although its batch's total is spent. It can be resumed with a larger total."""
    job = jobs.get_job(session, job_id)
    total = None if job.batch_id is None else batches.get_batch(session, job.batch_id).budget_usd
    detail = f"nothing is left of the {total or 0.0:.2f} dollars of batch {job.batch_id}"
    end_job(session, job_id, owner, status=JobStatus.FAILED, reason="budget", detail=detail)


def _set_budget(session: Session, job_id: int, *, budget_usd: Any, **options: Any) -> None:
    """Store what a job may cost; for a run over a whole model that is the total of its regions' jobs as well."""
    jobs.update_options(session, job_id, budget_usd=budget_usd, **options)
    if (regions := model_runs.batch_of(session, job_id)) is not None:
        batches.set_budget(session, regions, budget_usd)


def _is_free(job: JobRecord | JobCost) -> bool:
    return only_builtin(job.model, job.options.get("judge_model"))


def _weight(job: JobRecord | JobCost) -> float:
    return max(float(job.options.get(WEIGHT, 1.0)), 1e-9)


def _committed(session: Session, job: JobCost) -> float:
    """How much of the total a job has used or reserved, in dollars."""
    if job.status is not JobStatus.RUNNING and not _regions_open(session, job):
        return worst_paid_usd(session, job)
    bound = job.options.get("budget_usd")
    return math.inf if bound is None else float(bound)  # one that runs without a bound may take it all


def _regions_open(session: Session, job: JobCost) -> bool:
    """Whether a job is a run over a whole model that waits or has ended while jobs of its regions may still spend."""
    return any(each.status in OPEN for each in _regions_of(session, job) or ())


def _regions_of(session: Session, job: JobRecord | JobCost) -> list[JobCost] | None:
    """The jobs of the regions of a run over a whole model; None: the job is no such run, or they are not queued yet."""
    batch_id = model_runs.batch_of(session, job.id) if job.kind == "model" else None
    return None if batch_id is None else batches.job_costs(session, batch_id)
