"""Runs over whole models in the store: their stage, their regions, what was decided, and the proof."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Bundle, Session

from db.errors import NotInStore
from db.evaluations.tasks import HEAD_COLUMNS, task_head, task_record
from db.records import JobStatus, JsonValue, ModelRegionRecord, ModelRunHead, ModelRunRecord
from db.tables import LOCAL_USER, JobRow, ModelRegionRow, ModelRunRow, TaskRow
from db.types import clean_json, utc_now

_HEAD_COLUMNS = tuple(getattr(ModelRunRow, field.name) for field in fields(ModelRunHead) if field.name != "task")


def add_run(
    session: Session,
    *,
    task_id: int,
    platform: str,
    model: str,
    options: Mapping[str, JsonValue],
    user: str = LOCAL_USER,
) -> int:
    """Store a run that begins now.

    Returns:
        Its id.
    """
    row = ModelRunRow(
        task_id=task_id,
        user=user,
        platform=platform,
        model=model,
        options=clean_json(options),
        status=JobStatus.RUNNING.value,
        stage="plan",
        plan={},
        trials=[],
    )
    session.add(row)
    session.flush()
    return row.id


def get_run(session: Session, run_id: int) -> ModelRunRecord:
    """The run with this id, with its regions.

    Raises:
        NotInStore: there is no such run.
    """
    row = session.get(ModelRunRow, run_id)
    if row is None:
        raise NotInStore(f"model run {run_id} is not in the store; `kernelwright models list` shows those that are")
    regions = session.scalars(
        select(ModelRegionRow).where(ModelRegionRow.run_id == run_id).order_by(ModelRegionRow.position)
    )
    return _record(session, row, tuple(_region(each) for each in regions))


def list_runs(session: Session, *, before: int | None = None, limit: int | None = None) -> list[ModelRunHead]:
    """Runs, newest first, without sources, plans and decisions. `before` (a lower id) is a condition."""
    task_columns: Bundle[Any] = Bundle("task", *HEAD_COLUMNS)
    query = select(*_HEAD_COLUMNS, task_columns).join(TaskRow).order_by(ModelRunRow.id.desc())
    if before is not None:
        query = query.where(ModelRunRow.id < before)
    return [
        ModelRunHead(task=task_head(row.task), **_head_values(row))
        for row in session.execute(query if limit is None else query.limit(limit))
    ]


def set_plan(
    session: Session, run_id: int, plan: Mapping[str, JsonValue], regions: Sequence[ModelRegionRecord]
) -> None:
    """Store what the capture measured, and the regions."""
    _update(session, run_id, plan=clean_json(plan))
    for region in regions:
        session.add(ModelRegionRow(run_id=run_id, **vars(region)))


def set_batch(session: Session, run_id: int, batch_id: int) -> None:
    """Store the batch of the run's jobs, and each region's job by the region's task."""
    _update(session, run_id, batch_id=batch_id, stage="optimize")
    query = select(JobRow.task_id, JobRow.id).where(JobRow.batch_id == batch_id)
    jobs = {row.task_id: row.id for row in session.execute(query)}
    for region in session.scalars(select(ModelRegionRow).where(ModelRegionRow.run_id == run_id)):
        region.job_id = jobs.get(region.task_id)


def set_stage(session: Session, run_id: int, stage: str) -> None:
    """Store what the run does now; it is running."""
    _update(session, run_id, stage=stage, status=JobStatus.RUNNING.value, error=None, finished_at=None)


def add_trial(session: Session, run_id: int, trial: Mapping[str, JsonValue]) -> None:
    """Store one more decision on what is kept."""
    row = session.get_one(ModelRunRow, run_id)
    row.trials = [*row.trials, clean_json(trial)]


def set_kept(session: Session, run_id: int, kept: Sequence[str]) -> None:
    """Store which regions have a kernel in what is delivered."""
    _update(session, run_id, kept=list(kept))


def finish_run(
    session: Session,
    run_id: int,
    *,
    status: JobStatus,
    error: str | None = None,
    stage: str | None = None,
    evaluation_id: str | None = None,
) -> None:
    """Store how a run ended, and its proof if it has one."""
    values: dict[str, Any] = {"status": status.value, "error": error, "finished_at": utc_now()}
    if stage is not None:
        values["stage"] = stage
    if evaluation_id is not None:
        values["evaluation_id"] = evaluation_id
    _update(session, run_id, **values)


def _update(session: Session, run_id: int, **values: Any) -> None:
    session.execute(update(ModelRunRow).where(ModelRunRow.id == run_id).values(**values))


def _record(session: Session, row: ModelRunRow, regions: tuple[ModelRegionRecord, ...]) -> ModelRunRecord:
    return ModelRunRecord(
        task=task_record(session.get_one(TaskRow, row.task_id)),
        options=row.options,
        plan=row.plan,
        trials=tuple(row.trials),
        regions=regions,
        **_head_values(row),
    )


def _head_values(row: Any) -> dict[str, Any]:
    """The fields of a `ModelRunHead` but its task, of a row with the columns `_HEAD_COLUMNS`."""
    found = {column.key: getattr(row, column.key) for column in _HEAD_COLUMNS}
    kept = None if row.kept is None else tuple(row.kept)
    return found | {"status": JobStatus(row.status), "kept": kept}


def _region(row: ModelRegionRow) -> ModelRegionRecord:
    return ModelRegionRecord(
        name=row.name,
        position=row.position,
        kind=row.kind,
        occurrences=row.occurrences,
        eager_ms=row.eager_ms,
        share=row.share,
        task_id=row.task_id,
        job_id=row.job_id,
    )
