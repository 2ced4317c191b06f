"""What is new in jobs and batches that someone watches, read for all of them at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from db.records import OPEN, EventRecord, JobStatus
from db.tables import BatchRow, EventRow, JobRow

MAX_EVENTS = 2000
_CHUNK = 200


@dataclass(frozen=True)
class JobState:
    """How a watched job stands."""

    status: JobStatus
    stop_reason: str | None
    cancel_requested: bool
    rounds_done: int
    cost_usd: float
    tokens: int
    best_evaluation_id: str | None

    @property
    def ended(self) -> bool:
        """Whether no more events are to come, unless it is resumed."""
        return self.status not in OPEN


@dataclass(frozen=True)
class BatchState:
    """How a watched batch stands: sums over its jobs; `solved` of them have a candidate that passed."""

    cancel_requested: bool = False
    counts: Mapping[JobStatus, int] = field(default_factory=dict)
    cost_usd: float = 0.0
    rounds_done: int = 0
    solved: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more happens in it, unless it is resumed."""
        return not any(status in OPEN for status in self.counts)


def batch_states(session: Session, batch_ids: Sequence[int]) -> dict[int, BatchState]:
    """How these batches stand."""
    found: dict[int, BatchState] = {}
    for begin in range(0, len(batch_ids), _CHUNK):
        chunk = batch_ids[begin : begin + _CHUNK]
        known = select(BatchRow.id, BatchRow.cancel_requested).where(BatchRow.id.in_(chunk))
        found |= {row.id: BatchState(row.cancel_requested) for row in session.execute(known)}
        jobs = (
            select(
                JobRow.batch_id,
                JobRow.status,
                func.count().label("jobs"),
                func.sum(JobRow.cost_usd).label("cost_usd"),
                func.sum(JobRow.rounds_done).label("rounds_done"),
                func.count(JobRow.best_evaluation_id).label("solved"),
            )
            .where(JobRow.batch_id.in_(chunk))
            .group_by(JobRow.batch_id, JobRow.status)
            .order_by(JobRow.batch_id, JobRow.status)
        )
        for row in session.execute(jobs):
            state = found[row.batch_id]
            found[row.batch_id] = BatchState(
                state.cancel_requested,
                {**state.counts, JobStatus(row.status): row.jobs},
                state.cost_usd + row.cost_usd,
                state.rounds_done + row.rounds_done,
                state.solved + row.solved,
            )
    return found


def states(session: Session, job_ids: Sequence[int]) -> dict[int, JobState]:
    """How these jobs stand. Read before their events: those of a job that has ended are then complete."""
    columns = tuple(getattr(JobRow, name) for name in JobState.__dataclass_fields__)
    found: dict[int, JobState] = {}
    for begin in range(0, len(job_ids), _CHUNK):
        query = select(JobRow.id, *columns).where(JobRow.id.in_(job_ids[begin : begin + _CHUNK]))
        for row in session.execute(query):
            found[row[0]] = JobState(JobStatus(row[1]), *row[2:])
    return found


def events_after(session: Session, last_ids: Mapping[int, int]) -> list[tuple[int, EventRecord]]:
    """The events of each job with an id above the one that is given for it, in order; at most MAX_EVENTS a chunk."""
    found: list[tuple[int, EventRecord]] = []
    wanted = list(last_ids.items())
    for begin in range(0, len(wanted), _CHUNK):
        newer = (and_(EventRow.job_id == job_id, EventRow.id > last) for job_id, last in wanted[begin : begin + _CHUNK])
        query = select(EventRow).where(or_(*newer)).order_by(EventRow.id).limit(MAX_EVENTS)
        for row in session.scalars(query):
            found.append((row.job_id, EventRecord(row.id, row.kind, row.round, row.data, row.created_at)))
    return found


def last_event_id(session: Session, job_id: int) -> int:
    """The id of a job's newest event; 0 if it has none."""
    return session.scalar(select(func.max(EventRow.id)).where(EventRow.job_id == job_id)) or 0


def backlog(session: Session, job_id: int, *, after: int, upto: int, limit: int = 500) -> list[EventRecord]:
    """A job's events with ids above `after` and not above `upto`, in order."""
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.id > after, EventRow.id <= upto)
    rows = session.scalars(query.order_by(EventRow.id).limit(limit))
    return [EventRecord(row.id, row.kind, row.round, row.data, row.created_at) for row in rows]
