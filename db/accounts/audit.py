"""The audit log: who changed what, and why. Rows are never changed or deleted."""

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.records import AuditRecord, JsonValue
from db.tables import AuditRow
from db.types import clean_json


def add_audit(
    session: Session, *, actor: str, action: str, subject: str, reason: str, data: Mapping[str, JsonValue] | None = None
) -> None:
    """Add a line to the log. Use the transaction that makes the change."""
    session.add(AuditRow(actor=actor, action=action, subject=subject, reason=reason, data=clean_json(data or {})))


def add_change_of_anothers(session: Session, *, actor: str, owner: str, action: str, subject: str) -> None:
    """Add a line about a change that `actor` made to what is `owner`'s; what users do to their own is not logged."""
    if actor != owner:
        add_audit(session, actor=actor, action=action, subject=subject, reason="", data={"user": owner})


def list_audit(
    session: Session, *, subject: str | None = None, before: int | None = None, limit: int | None = None
) -> list[AuditRecord]:
    """Lines, newest first. `subject` and `before` (a lower id) are conditions."""
    query = select(AuditRow).order_by(AuditRow.id.desc())
    if subject is not None:
        query = query.where(AuditRow.subject == subject)
    if before is not None:
        query = query.where(AuditRow.id < before)
    if limit is not None:
        query = query.limit(limit)
    return [
        AuditRecord(row.id, row.at, row.actor, row.action, row.subject, row.reason, row.data)
        for row in session.scalars(query)
    ]
