"""Runs over whole models in the store: their stage, their regions, what was decided, and the proof.

A run is a job of kind `model`, and has its id. The job has the owner, the settings and the end; here is what it did.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Bundle, Session, aliased

from db.errors import NotInStore
from db.evaluations.tasks import HEAD_COLUMNS, task_head, task_record
from db.records import OPEN, JobStatus, JsonValue, ModelRegionRecord, ModelRunHead, ModelRunRecord
from db.tables import JobRow, ModelRegionRow, ModelRunRow, TaskRow
from db.types import clean_json

_OF_RUN = ("stage", "batch_id", "kept", "evaluation_id")
_OF_JOB = tuple(field.name for field in fields(ModelRunHead) if field.name not in ("task", *_OF_RUN))
_HEAD_COLUMNS = (
    *(getattr(JobRow, name).label(name) for name in _OF_JOB),
    *(getattr(ModelRunRow, name).label(name) for name in _OF_RUN),
)


def add_run(session: Session, job_id: int) -> None:
    """Store a run that has done nothing yet: that of the job of kind `model` with this id, which is the run's too."""
    session.add(ModelRunRow(id=job_id, stage="plan", plan={}, trials=[]))
    session.flush()


def get_run(session: Session, run_id: int) -> ModelRunRecord:
    """The run with this id, with its regions.

    Raises:
        NotInStore: there is no such run.
    """
    row = session.execute(
        select(*_HEAD_COLUMNS, JobRow.options, JobRow.task_id, ModelRunRow.plan, ModelRunRow.trials)
        .join(ModelRunRow, ModelRunRow.id == JobRow.id)
        .where(JobRow.id == run_id)
    ).one_or_none()
    if row is None:
        raise NotInStore(f"model run {run_id} is not in the store; `kernelwright models list` shows those that are")
    regions = session.scalars(
        select(ModelRegionRow).where(ModelRegionRow.run_id == run_id).order_by(ModelRegionRow.position)
    )
    return ModelRunRecord(
        task=task_record(session.get_one(TaskRow, row.task_id)),
        options=row.options if isinstance(row.options, dict) else {},
        plan=row.plan,
        trials=tuple(row.trials),
        regions=tuple(_region(each) for each in regions),
        **_head_values(row),
    )


def list_runs(session: Session, *, before: int | None = None, limit: int | None = None) -> list[ModelRunHead]:
    """Runs, newest first, without sources, plans and decisions. `before` (a lower id) is a condition."""
    task_columns: Bundle[Any] = Bundle("task_head", *HEAD_COLUMNS)
    query = (
        select(*_HEAD_COLUMNS, task_columns)
        .join(ModelRunRow, ModelRunRow.id == JobRow.id)
        .join(TaskRow, TaskRow.id == JobRow.task_id)
        .order_by(JobRow.id.desc())
    )
    if before is not None:
        query = query.where(JobRow.id < before)
    return [
        ModelRunHead(task=task_head(row.task_head), **_head_values(row))
        for row in session.execute(query if limit is None else query.limit(limit))
    ]


def set_capture(session: Session, run_id: int, capture: bytes) -> None:
    """Store what the program in the sandbox said of the model."""
    _update(session, run_id, capture=zlib.compress(capture))


def get_capture(session: Session, run_id: int) -> bytes | None:
    """What the program in the sandbox said of the model; None before that."""
    kept = session.scalar(select(ModelRunRow.capture).where(ModelRunRow.id == run_id))
    return None if kept is None else zlib.decompress(kept)


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
    """Store what the run does now."""
    _update(session, run_id, stage=stage)


def add_trial(session: Session, run_id: int, trial: Mapping[str, JsonValue]) -> None:
    """Store one more decision on what is kept."""
    row = session.get_one(ModelRunRow, run_id)
    row.trials = [*row.trials, clean_json(trial)]


def set_kept(session: Session, run_id: int, kept: Sequence[str]) -> None:
    """Store which regions have a kernel in what is delivered."""
    _update(session, run_id, kept=list(kept))


def set_proof(session: Session, run_id: int, evaluation_id: str) -> None:
    """Store the evaluation of what is to be delivered."""
    _update(session, run_id, evaluation_id=evaluation_id)


def set_files(session: Session, run_id: int, files: Mapping[str, str]) -> None:
    """Store what is delivered, the text of each file by its name."""
    _update(session, run_id, files=zlib.compress(json.dumps(dict(files)).encode()))


def get_files(session: Session, run_id: int) -> Mapping[str, str]:
    """What was delivered, the text of each file by its name; empty if nothing was."""
    kept = session.scalar(select(ModelRunRow.files).where(ModelRunRow.id == run_id))
    return {} if kept is None else dict(json.loads(zlib.decompress(kept)))


def add_runs_of_batch(session: Session, batch_id: int) -> None:
    """Store the runs of all jobs of kind `model` of a batch, which have done nothing yet."""
    of_models = select(JobRow.id).where(JobRow.batch_id == batch_id, JobRow.kind == "model")
    for job_id in session.scalars(of_models.order_by(JobRow.id)).all():
        add_run(session, job_id)


def batch_of(session: Session, job_id: int) -> int | None:
    """The batch of the regions' jobs of a run; None: it has none yet, or the job is none over a model."""
    return session.scalar(select(ModelRunRow.batch_id).where(ModelRunRow.id == job_id))


def of_open_run() -> ColumnElement[bool]:
    """Whether a job (of `JobRow`) is that of a region whose run waits or runs, so that the run counts in its place."""
    run = aliased(JobRow)
    return (
        select(ModelRunRow.id)
        .join(run, run.id == ModelRunRow.id)
        .where(ModelRunRow.batch_id == JobRow.batch_id, run.status.in_(OPEN))
        .exists()
    )


def run_of_batch(session: Session, batch_id: int) -> int | None:
    """The run whose regions' jobs a batch holds; None: it is a batch that a user asked for."""
    return session.scalar(select(ModelRunRow.id).where(ModelRunRow.batch_id == batch_id))


def _update(session: Session, run_id: int, **values: Any) -> None:
    session.execute(update(ModelRunRow).where(ModelRunRow.id == run_id).values(**values))


def _head_values(row: Any) -> dict[str, Any]:
    """The fields of a `ModelRunHead` but its task, of a row with the columns `_HEAD_COLUMNS`."""
    found = {name: getattr(row, name) for name in (*_OF_JOB, *_OF_RUN)}
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
