"""Larger limits for a job that has ended: which it may be given, and whether it can go on with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from agents.protocols import Event
from agents.replay import resume_state_from_events
from agents.stop_rules import StopReason
from agents.strategies.registry import TELLS_ROUNDS
from db.evaluations import results
from db.jobs import jobs
from db.locks import lock_job
from db.records import OPEN, RESUMABLE, EventRecord, JobRecord, JobStatus
from service.errors import BadRequest, Conflict
from service.jobs.query import time_worked_s

_BUDGETS = {
    "budget_usd": "${:.4g}",
    "budget_tokens": "{:,.0f} tokens",
    "budget_s": "{:,.0f} s",
    "budget_evaluations": "{:,.0f} evaluations",
}
_SHOWN = {"rounds": "{:,.0f} rounds", **_BUDGETS}

LIMITS = tuple(_SHOWN)
"""The options that limit a job and may be raised when it goes on. A job's other options stay as they are."""

_ENDED_BY = {StopReason.ROUNDS: ("rounds",), StopReason.BUDGET: tuple(_BUDGETS)}
"""By the reason for which a job is done: the limits of which a larger one lets it go on."""


@dataclass(frozen=True)
class Used:
    """What a job has used of each of its limits, over all of its runs; `worst_usd` and `worst_tokens` at most."""

    rounds: int
    worst_usd: float
    worst_tokens: int
    worked_s: float
    evaluations: int

    def of(self, limit: str) -> float:
        """What is used of one of `LIMITS`."""
        return {
            "rounds": self.rounds,
            "budget_usd": self.worst_usd,
            "budget_tokens": self.worst_tokens,
            "budget_s": self.worked_s,
            "budget_evaluations": self.evaluations,
        }[limit]


@dataclass(frozen=True)
class LimitLine:
    """A limit that a job that has ended may be given more of, with its present value and what is used of it."""

    name: str
    present: float
    used: float


NOTHING_USED = Used(0, 0.0, 0, 0.0, 0)


def raisable(job: JobRecord) -> tuple[str, ...]:
    """The limits of which a larger one lets a job go on that is done; empty: a larger limit changes nothing."""
    if job.kind != "optimize" or job.batch_id is not None or job.status is not JobStatus.DONE:
        return ()
    names = _ENDED_BY.get(StopReason(job.stop_reason), ()) if job.stop_reason in list(StopReason) else ()
    return () if names == ("rounds",) and job.strategy in TELLS_ROUNDS else names


def may_go_on(job: JobRecord) -> bool:
    """Whether a job has ended and can go on: it ended early, or is done and larger limits let it go on."""
    return job.status in RESUMABLE or bool(raisable(job))


def used_by(job: JobRecord, events: list[EventRecord]) -> Used:
    """What a job has used of its limits, by all of its events."""
    told = [Event(event.kind, event.round, {"reply": "", **event.data}) for event in events]
    spent = resume_state_from_events(told).spent
    return Used(
        rounds=job.rounds_done,
        worst_usd=spent.cost_usd + spent.unsettled_usd,
        worst_tokens=spent.tokens + spent.unsettled_tokens,
        worked_s=time_worked_s(events),
        evaluations=spent.evaluations,
    )


def limit_lines(job: JobRecord, events: list[EventRecord]) -> tuple[LimitLine, ...]:
    """The limits that a job has and may be given more of, so that it goes on."""
    if job.kind != "optimize" or job.batch_id is not None or not may_go_on(job):
        return ()
    names = raisable(job) or tuple(name for name in LIMITS if name != "rounds" or job.strategy not in TELLS_ROUNDS)
    own = {name: job.options.get(name) for name in names}
    used = used_by(job, events)
    return tuple(
        LimitLine(name, float(value), used.of(name)) for name, value in own.items() if isinstance(value, int | float)
    )


def given_limits(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `LIMITS` among `values` that have a value."""
    return {name: values[name] for name in LIMITS if values.get(name) is not None}


def raise_limits(session: Session, job_id: int, limits: Mapping[str, Any]) -> JobRecord:
    """Store larger limits in the options of a job that has ended, in the caller's transaction. Nothing is queued.

    Returns:
        The job with its new options.

    Raises:
        NotInStore, Conflict, BadRequest: as `check_limits`.
    """
    lock_job(session, job_id)
    check_limits(session, jobs.get_job(session, job_id), limits)
    if limits:
        jobs.update_options(session, job_id, **limits)
    return jobs.get_job(session, job_id)


def check_limits(session: Session, job: JobRecord, limits: Mapping[str, Any]) -> None:
    """Check that a job can go on with larger limits.

    Args:
        session: a transaction.
        job: the job.
        limits: the new values by their names in `LIMITS`; empty: the job keeps those that it has.

    Raises:
        Conflict: the job has not ended, or has ended for a reason that larger limits do not change.
        BadRequest: it is a job whose limits are not its own, or a limit is too small.
    """
    job_id = job.id
    if job.status in OPEN:
        remedy = f"; `kernelwright jobs cancel {job_id}` ends it, and its limits can then be raised" if limits else ""
        raise Conflict(f"job {job_id} is {job.status} already{remedy}")
    if limits:
        _check_owned(job)
    if job.status is JobStatus.DONE:
        _check_goes_on(job, limits)
    if "rounds" in limits and job.strategy in TELLS_ROUNDS:
        raise BadRequest(
            f"rounds: the models of job {job_id} were told the number at the beginning (strategy {job.strategy}), and"
            " with another one every call would be made and paid for anew; give it a larger budget, or submit a new job"
        )
    used = used_by(job, results.list_events(session, job_id)) if limits else NOTHING_USED
    for name, value in limits.items():
        _check_larger(job, name, value, used)


def _check_owned(job: JobRecord) -> None:
    """Refuse to raise limits that are not the job's own."""
    if job.kind != "optimize":
        raise BadRequest(f"job {job.id} is of kind {job.kind}; limits are raised of jobs that optimize an op")
    if job.batch_id is not None:
        raise BadRequest(
            f"job {job.id} is one of batch {job.batch_id}, whose jobs are compared under the same limits; `kernelwright"
            f" batch resume {job.batch_id} --budget-usd X` raises the total of the batch, or submit its op anew"
        )


def _check_goes_on(job: JobRecord, limits: Mapping[str, Any]) -> None:
    """Refuse to go on with a job that is done, unless it is given more of what it ended for."""
    needed = raisable(job)
    if not needed:
        raise Conflict(f"job {job.id} is done ({job.stop_reason}); submit a new one")
    if not any(name in limits for name in needed):
        own = [name for name in needed if job.options.get(name) is not None]
        flags = " or ".join(f"--{name.replace('_', '-')}" for name in own or needed)
        raise Conflict(f"job {job.id} is done ({job.stop_reason}); it goes on with a larger limit: {flags}")


def _check_larger(job: JobRecord, name: str, value: float, used: Used) -> None:
    """Refuse a limit that is not above what was used, or not above the one that the job has."""
    shown, present = _SHOWN[name], job.options.get(name)
    flag = f"--{name.replace('_', '-')} {value:g}"
    if not value > used.of(name):
        at_most = ", at the most that unanswered calls may have cost" if name in ("budget_usd", "budget_tokens") else ""
        raise BadRequest(
            f"{flag}: job {job.id} has used {shown.format(used.of(name))} already{at_most}; give it more than that"
        )
    if isinstance(present, int | float) and not value > present:
        raise BadRequest(f"{flag}: job {job.id} has a limit of {shown.format(present)}; give it a larger one")
