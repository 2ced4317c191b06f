"""An upper bound on what a user's jobs have cost and may still cost."""

import math
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session, aliased

from db.jobs import model_runs
from db.records import OPEN, PLAN_ONLY, RESUMABLE, JobCost, JobStatus
from db.tables import EventRow, JobRow


def max_spending_usd(
    session: Session,
    user: str,
    since: datetime,
    *,
    free_models: Callable[[str | None, str | None], bool],
    max_paid_usd: Callable[[Session, JobCost], float],
) -> float:
    """The most that a user's jobs may have cost since a moment, with what open jobs may still cost.

    A run over a whole model counts by its budget while it is open, and then by the jobs of its regions. One that only
    plans calls no model.

    Args:
        session: A transaction.
        user: The user.
        since: Jobs that ended before are not counted.
        free_models: Whether a job with this model and judge model costs nothing.
        max_paid_usd: The most that a job may have cost whose process died before it stored its costs.

    Returns:
        Dollars; infinite if an open job has no budget.
    """
    columns = [getattr(JobRow, field.name) for field in fields(JobCost)]
    ended_run = and_(JobRow.kind == "model", JobRow.status.not_in(OPEN))
    query = select(_costs_unknown(), *columns).where(
        JobRow.user == user,
        or_(JobRow.status.in_(OPEN), JobRow.finished_at >= since),
        ~ended_run,
        ~model_runs.of_open_run(),
    )
    total = 0.0
    for costs_unknown, job_id, status, *rest in session.execute(query).all():
        job = JobCost(job_id, JobStatus(status), *rest)
        spent = max_paid_usd(session, job) if costs_unknown else job.cost_usd + job.unsettled_usd
        if job.status in OPEN and job.kind != "evaluate" and not job.options.get(PLAN_ONLY):
            budget = job.options.get("budget_usd")
            free = free_models(job.model, job.options.get("judge_model"))
            spent = max(spent, 0.0 if free else math.inf if budget is None else float(budget))
        total += spent
    return total


def _costs_unknown() -> ColumnElement[bool]:
    """Whether a resumable job has started LLM calls after it last stored what it had spent."""
    call, stop = aliased(EventRow), aliased(EventRow)
    stored = select(stop.id).where(stop.job_id == JobRow.id, stop.kind == "job_stopped", stop.id > call.id)
    started = select(call.id).where(call.job_id == JobRow.id, call.kind == "llm_started", ~stored.exists())
    return and_(JobRow.status.in_(RESUMABLE), JobRow.started_at.is_not(None), started.exists())
