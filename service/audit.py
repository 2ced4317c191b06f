"""Taking results back and bringing them back, by someone and for a reason, and the log of that."""

from collections.abc import Callable

from db.accounts import audit
from db.evaluations import results, retractions
from db.records import AuditRecord, EvaluationRecord
from db.store import Store
from service.errors import BadRequest, Conflict
from service.jobs.journal import is_better_record

MAX_REASON_CHARS = 2000


def retract_evaluation(store: Store, evaluation_id: str, *, actor: str, reason: str) -> EvaluationRecord:
    """Take an evaluation off the leaderboard; its job gets the next best candidate that passed.

    Raises:
        NotInStore: there is no such evaluation.
        BadRequest: no reason is given, or it was taken back already.
    """
    return _change(store, evaluation_id, actor, reason, retractions.retract, "was retracted already")


def restore_evaluation(store: Store, evaluation_id: str, *, actor: str, reason: str) -> EvaluationRecord:
    """Let an evaluation count again.

    Raises:
        NotInStore: there is no such evaluation.
        BadRequest: no reason is given, or it was never taken back.
    """
    return _change(store, evaluation_id, actor, reason, retractions.restore, "is not retracted")


def list_audit(
    store: Store, *, subject: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditRecord]:
    """The audit log, newest first; `before`: only lines with a lower id."""
    with store.read() as session:
        return audit.list_audit(session, subject=subject, before=before, limit=limit)


def _change(
    store: Store, evaluation_id: str, actor: str, reason: str, change: Callable[..., bool], unchanged: str
) -> EvaluationRecord:
    given = reason.strip()
    if not given:
        raise BadRequest("reason: empty; say why, for the audit log")
    if len(given) > MAX_REASON_CHARS:
        raise BadRequest(f"reason: {len(given)} characters; the audit log takes {MAX_REASON_CHARS}")
    with store.write() as session:
        if not change(session, evaluation_id, actor=actor, reason=given, is_better=is_better_record):
            raise Conflict(f"evaluation {evaluation_id} {unchanged}")
        return results.get_evaluation(session, evaluation_id)
