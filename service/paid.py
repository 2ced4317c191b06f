"""What a job has cost at the most: what was billed, and calls whose reply was lost at their worst."""

from sqlalchemy.orm import Session

from agents.ports import Event
from agents.replay import past_of_events
from db import results
from db.records import JobCost, JobRecord, JobStatus


def worst_paid_usd(session: Session, job: JobRecord | JobCost) -> float:
    """What earlier runs of a job cost at the most, in dollars, also where its process died without a word."""
    if job.status is JobStatus.DONE:
        return job.cost_usd + job.unsettled_usd
    if job.started_at is None:
        return 0.0
    # What a process that died had begun stands in the job's events alone.
    events = [
        Event(event.kind, event.round, {"reply": "", **event.data})
        for event in results.list_events(session, job.id, kinds=("llm_started", "llm_call", "llm_failed"))
    ]
    spent = past_of_events(events).spent
    return spent.cost_usd + spent.unsettled_usd
