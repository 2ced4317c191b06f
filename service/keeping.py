"""Keeps tasks and evaluations in the store."""

import uuid

from sqlalchemy.orm import Session

from db import results, tasks
from evaluator.evaluation import Evaluation, candidate_hash
from service.convert import device_name, measured_of
from service.wiring import Bench
from tasks.task import Task


def keep_task(session: Session, task: Task) -> int:
    """The task's id in the store."""
    return tasks.add_task(
        session,
        suite=task.suite,
        name=task.name,
        source_hash=task.source_hash,
        source=task.source,
        category=task.category,
        dtype=task.dtype,
    )


def keep_evaluation(
    session: Session,
    job_id: int,
    bench: Bench,
    source: str,
    evaluation: Evaluation,
    *,
    round_number: int,
    evaluation_id: str | None = None,
) -> str:
    """Keep a candidate and what it is worth; the evaluation's id, a new one if none is given."""
    candidate_id = results.add_candidate(
        session, job_id, round_number=round_number, candidate_hash=candidate_hash(source), source=source
    )
    evaluation_id = evaluation_id or uuid.uuid4().hex
    results.add_evaluation(
        session,
        evaluation_id,
        candidate_id=candidate_id,
        round_number=round_number,
        platform=bench.platform.name,
        device=device_name(evaluation),
        sandbox=bench.sandbox.name,
        verdict=evaluation.verdict.value,
        code=evaluation.code,
        message=evaluation.message,
        tags=evaluation.tags,
        measured=measured_of(evaluation),
        result=evaluation.to_json(),
    )
    return evaluation_id
