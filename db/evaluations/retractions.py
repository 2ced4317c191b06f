"""Retraction and restoration of evaluations.

Each changes the evaluation, the leaderboard, the job's best candidate and the audit log in one transaction.
"""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from db.accounts.audit import add_audit
from db.errors import NotInStore
from db.evaluations.results import list_evaluations
from db.leaderboard.standings import update_entries
from db.locks import lock_job
from db.records import EvaluationRecord
from db.tables import CandidateRow, EvaluationRow, JobRow
from db.types import utc_now
from tasks.outcomes import NOT_JUDGED, RIGHT

IsBetter = Callable[[EvaluationRecord, EvaluationRecord | None], bool]
"""Whether the first evaluation replaces the second (None if there is none yet) as the best of a job."""


def retract(session: Session, evaluation_id: str, *, actor: str, reason: str, is_better: IsBetter) -> bool:
    """Retract an evaluation: it counts nowhere any more, and its job gets the next best candidate.

    Args:
        session: A transaction that writes.
        evaluation_id: The evaluation.
        actor: The user's name for the audit log.
        reason: The reason for the audit log.
        is_better: How the job's best evaluation is chosen.

    Returns:
        False if it is retracted already.

    Raises:
        NotInStore: There is no such evaluation.
    """
    return _set(session, evaluation_id, utc_now(), "retract", actor, reason, is_better)


def restore(session: Session, evaluation_id: str, *, actor: str, reason: str, is_better: IsBetter) -> bool:
    """Undo a retraction. The arguments are those of `retract`.

    Returns:
        False if the evaluation is not retracted.

    Raises:
        NotInStore: There is no such evaluation.
    """
    return _set(session, evaluation_id, None, "restore", actor, reason, is_better)


def choose_best(session: Session, job_id: int, is_better: IsBetter) -> str | None:
    """Store a job's best evaluation, chosen among the candidates of which none was retracted or refused.

    Returns:
        The evaluation's id, or None if there is none.
    """
    best: EvaluationRecord | None = None
    found = list_evaluations(session, job_id)
    good = RIGHT | NOT_JUDGED
    out = {each.candidate_hash for each in found if each.retracted_at is not None or each.verdict not in good}
    for each in found:
        if each.candidate_hash not in out and is_better(each, best):
            best = each
    chosen = None if best is None else best.id
    session.execute(update(JobRow).where(JobRow.id == job_id).values(best_evaluation_id=chosen))
    return chosen


def _set(
    session: Session,
    evaluation_id: str,
    retracted_at: datetime | None,
    action: str,
    actor: str,
    reason: str,
    is_better: IsBetter,
) -> bool:
    job_id = session.scalar(select(CandidateRow.job_id).join(EvaluationRow).where(EvaluationRow.id == evaluation_id))
    if job_id is None:
        raise NotInStore(f"evaluation {evaluation_id} is not in the store")
    lock_job(session, job_id)
    row = session.get_one(EvaluationRow, evaluation_id, populate_existing=True)
    if (row.retracted_at is None) == (retracted_at is None):
        return False
    row.retracted_at = retracted_at
    session.flush()
    update_entries(session, row)
    before = session.scalar(select(JobRow.best_evaluation_id).where(JobRow.id == job_id))
    after = choose_best(session, job_id, is_better) if before == evaluation_id or retracted_at is None else before
    data = {"job_id": job_id, "best_before": before, "best_after": after}
    add_audit(session, actor=actor, action=action, subject=f"evaluation/{evaluation_id}", reason=reason, data=data)
    return True
