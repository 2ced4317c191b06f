"""Batches in the store: their jobs, costs and results."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from db.errors import NotInStore
from db.evaluations.results import was_refuted
from db.jobs import model_runs
from db.jobs.job_queue import requeue_batch
from db.locks import lock_jobs
from db.records import MEASUREMENTS, BatchRecord, BatchState, BestEvaluation, JobCost, JobStatus, JsonValue
from db.tables import BatchRow, CandidateRow, EvaluationRow, JobRow, ModelRunRow
from db.types import clean_json, utc_now

_BATCHES_A_QUERY = 200
_BEST_COLUMNS = ("verdict", "device", "sandbox", *MEASUREMENTS)


def add_batch(
    session: Session, *, name: str, user: str, spec: Mapping[str, JsonValue], budget_usd: float | None
) -> int:
    """Store a batch without its jobs, which the caller adds in the same transaction.

    Returns:
        The batch's id.
    """
    row = BatchRow(name=name, user=user, spec=clean_json(spec), budget_usd=budget_usd)
    session.add(row)
    session.flush()
    return row.id


def get_batch(session: Session, batch_id: int, *, lock: bool = False) -> BatchRecord:
    """The batch with this id. `lock` locks it until the transaction ends (not on SQLite, which has one writer).

    Raises:
        NotInStore: There is no such batch.
    """
    query = select(BatchRow).where(BatchRow.id == batch_id)
    row = session.scalars(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotInStore(f"batch {batch_id} is not in the store; `kernelwright batch list` shows those that are")
    return _record(row)


def list_batches(
    session: Session, *, user: str | None = None, before: int | None = None, limit: int | None = None
) -> list[BatchRecord]:
    """Batches, newest first. `user` and `before` (a lower id) are conditions."""
    query = select(BatchRow).order_by(BatchRow.id.desc())
    if user is not None:
        query = query.where(BatchRow.user == user)
    if before is not None:
        query = query.where(BatchRow.id < before)
    return [_record(row) for row in session.scalars(query if limit is None else query.limit(limit))]


def set_budget(session: Session, batch_id: int, budget_usd: float | None) -> None:
    """Set the total budget of a batch; None: it has none."""
    session.execute(update(BatchRow).where(BatchRow.id == batch_id).values(budget_usd=budget_usd))


def set_cancelled(session: Session, batch_id: int, cancelled: bool) -> None:
    """Store whether a batch was asked to stop."""
    session.execute(update(BatchRow).where(BatchRow.id == batch_id).values(cancel_requested=cancelled))


def cancel_jobs(session: Session, batch_id: int) -> int:
    """Cancel the jobs of a batch that are not running, and ask its running jobs to stop. So too the jobs of regions.

    Returns:
        The number of the batch's own jobs that were cancelled or asked.
    """
    lock_jobs(session, batch_id)  # else a job that is requeued between the two statements would be missed
    of_regions = select(ModelRunRow.batch_id).join(JobRow, JobRow.id == ModelRunRow.id)
    of_runs = of_regions.where(JobRow.batch_id == batch_id, ModelRunRow.batch_id.is_not(None))
    for regions in session.scalars(of_runs.order_by(ModelRunRow.batch_id)).all():
        cancel_jobs(session, int(regions or 0))
    ended = _cancel(session, batch_id, (JobStatus.QUEUED, JobStatus.INTERRUPTED), reason="cancelled")
    asked = session.execute(
        update(JobRow)
        .where(JobRow.batch_id == batch_id, JobRow.status == JobStatus.RUNNING.value)
        .values(cancel_requested=True)
        .returning(JobRow.id)
    ).all()
    return ended + len(asked)


def cancel_regions(session: Session, job_id: int) -> None:
    """`cancel_jobs` for the regions of a run over a whole model. A job that is none has no regions."""
    if (regions := model_runs.batch_of(session, job_id)) is not None:
        cancel_jobs(session, regions)


def cancel_queued(session: Session, batch_id: int, job_ids: Collection[int], *, reason: str) -> int:
    """Cancel those of these jobs of a batch that wait in the queue, for this reason.

    Returns:
        The number of jobs.
    """
    lock_jobs(session, batch_id)
    return _cancel(session, batch_id, (JobStatus.QUEUED,), reason=reason, only=job_ids)


def _cancel(
    session: Session,
    batch_id: int,
    statuses: Sequence[JobStatus],
    *,
    reason: str,
    only: Collection[int] | None = None,
) -> int:
    """End the jobs of a batch that have one of these statuses, of `only` if given; the number of them.

    The caller has locked the jobs.
    """
    wanted = [JobRow.batch_id == batch_id, JobRow.status.in_([status.value for status in statuses])]
    if only is not None:
        wanted.append(JobRow.id.in_(only))
    changed = session.execute(
        update(JobRow)
        .where(*wanted)
        .values(status=JobStatus.CANCELLED.value, stop_reason=reason, finished_at=utc_now())
        .returning(JobRow.id)
    ).all()
    return len(changed)


def count_stopping(session: Session, batch_id: int) -> int:
    """The number of a batch's jobs that were asked to stop and still run. Locks the jobs until the transaction ends."""
    lock_jobs(session, batch_id)
    stopping = (JobRow.status == JobStatus.RUNNING.value, JobRow.cancel_requested)
    return session.scalar(select(func.count()).where(JobRow.batch_id == batch_id, *stopping)) or 0


def requeue_jobs(session: Session, batch_id: int, *, final: Sequence[str]) -> int:
    """Put all resumable jobs of a batch back into the queue, but those with a stop reason in `final`.

    Returns:
        The number of jobs.
    """
    lock_jobs(session, batch_id)
    return requeue_batch(session, batch_id, final=final)


def next_queued(session: Session, batch_id: int, *, excluding: Sequence[int] = ()) -> int | None:
    """The id of the queued job of a batch that runs next and is not in `excluding`, or None."""
    query = select(JobRow.id).where(
        JobRow.batch_id == batch_id, JobRow.status == JobStatus.QUEUED.value, JobRow.id.not_in(excluding)
    )
    return session.scalar(query.order_by(JobRow.priority, JobRow.fair_tag, JobRow.id).limit(1))


def count_jobs(session: Session, batch_ids: Sequence[int]) -> dict[int, dict[JobStatus, int]]:
    """The numbers of jobs by status, for each batch."""
    counts: dict[int, dict[JobStatus, int]] = {batch_id: {} for batch_id in batch_ids}
    query = (
        select(JobRow.batch_id, JobRow.status, func.count())
        .where(JobRow.batch_id.in_(batch_ids))
        .group_by(JobRow.batch_id, JobRow.status)
    )
    for batch_id, status, count in session.execute(query):
        counts[int(batch_id or 0)][JobStatus(status)] = count
    return counts


def spent_usd(session: Session, batch_ids: Sequence[int]) -> dict[int, float]:
    """What the jobs of each batch have cost so far in dollars, without LLM calls whose reply was lost."""
    query = (
        select(JobRow.batch_id, func.sum(JobRow.cost_usd))
        .where(JobRow.batch_id.in_(batch_ids))
        .group_by(JobRow.batch_id)
    )
    found: dict[int, float] = dict.fromkeys(batch_ids, 0.0)
    for batch_id, usd in session.execute(query):
        found[int(batch_id or 0)] = float(usd or 0.0)
    return found


def states(session: Session, batch_ids: Sequence[int]) -> dict[int, BatchState]:
    """The states of batches by id."""
    found: dict[int, BatchState] = {}
    for begin in range(0, len(batch_ids), _BATCHES_A_QUERY):
        chunk = batch_ids[begin : begin + _BATCHES_A_QUERY]
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


def job_costs(session: Session, batch_id: int) -> list[JobCost]:
    """The costs of a batch's jobs, by id."""
    query = select(*(getattr(JobRow, field.name) for field in fields(JobCost))).where(JobRow.batch_id == batch_id)
    return [JobCost(row[0], JobStatus(row[1]), *row[2:]) for row in session.execute(query.order_by(JobRow.id))]


def best_evaluations(session: Session, batch_id: int) -> dict[int, BestEvaluation]:
    """The best evaluation of each job of a batch, by job id. Jobs without a passed candidate are left out."""
    columns = [getattr(EvaluationRow, name) for name in _BEST_COLUMNS]
    query = (
        select(
            *(JobRow.id, CandidateRow.hash, EvaluationRow.id, EvaluationRow.retracted_at, EvaluationRow.tags),
            was_refuted(),
            EvaluationRow.result["provenance"],
            *columns,
        )
        .join(EvaluationRow, EvaluationRow.id == JobRow.best_evaluation_id)
        .join(CandidateRow, CandidateRow.id == EvaluationRow.candidate_id)
        .where(JobRow.batch_id == batch_id)
    )
    return {
        job_id: BestEvaluation(
            id=evaluation_id,
            candidate_hash=candidate,
            tags=tuple(tags),
            retracted=retracted is not None,
            refuted=refuted,
            provenance=provenance or {},
            **dict(zip(_BEST_COLUMNS, values, strict=True)),
        )
        for job_id, candidate, evaluation_id, retracted, tags, refuted, provenance, *values in session.execute(query)
    }


def verdicts(session: Session, batch_id: int) -> dict[int, list[str]]:
    """The verdicts of each job's evaluations, oldest first, by job id."""
    query = (
        select(JobRow.id, EvaluationRow.verdict)
        .join(CandidateRow, CandidateRow.job_id == JobRow.id)
        .join(EvaluationRow, EvaluationRow.candidate_id == CandidateRow.id)
        .where(JobRow.batch_id == batch_id)
        .order_by(EvaluationRow.created_at, EvaluationRow.id)
    )
    found: dict[int, list[str]] = {}
    for job_id, verdict in session.execute(query):
        found.setdefault(job_id, []).append(verdict)
    return found


def _record(row: BatchRow) -> BatchRecord:
    return BatchRecord(row.id, row.name, row.user, row.spec, row.budget_usd, row.cancel_requested, row.created_at)
