"""Retracts and restores evaluations, and lists the audit log of such changes."""

from collections.abc import Callable

from db.accounts import audit
from db.evaluations import results, retractions
from db.records import AuditRecord, EvaluationRecord
from db.store import Store
from service.errors import BadRequest, Conflict
from service.jobs.journal import is_better_record

MAX_REASON_CHARS = 2000


def retract_evaluation(store: Store, evaluation_id: str, *, actor: str, reason: str) -> EvaluationRecord:
    """Retract an evaluation: it leaves the leaderboard, and its job gets the next best candidate that passed.

    Raises:
        NotInStore: there is no such evaluation.
        BadRequest: no reason is given, or it has been retracted already.
    """
    return _change(store, evaluation_id, actor, reason, retractions.retract, "was retracted already")


def restore_evaluation(store: Store, evaluation_id: str, *, actor: str, reason: str) -> EvaluationRecord:
    """Let a retracted evaluation count again.

    Raises:
        NotInStore: there is no such evaluation.
        BadRequest: no reason is given, or it is not retracted.
    """
    return _change(store, evaluation_id, actor, reason, retractions.restore, "is not retracted")


def list_audit(
    store: Store, *, subject: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditRecord]:
    """The audit log, newest first. With `before`, only lines with a lower id."""
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
