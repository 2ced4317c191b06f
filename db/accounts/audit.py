"""The audit log: who changed what others rely on, and why. Rows are only ever added."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.records import JsonValue
from db.tables import AuditRow
from db.types import clean_json


@dataclass(frozen=True)
class AuditRecord:
    """A line of the log. `subject` is kind and id, such as `evaluation/…`."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    reason: str
    data: Mapping[str, JsonValue]


def add_audit(
    session: Session, *, actor: str, action: str, subject: str, reason: str, data: Mapping[str, JsonValue] | None = None
) -> None:
    """Write a line, in the transaction that makes the change."""
    session.add(AuditRow(actor=actor, action=action, subject=subject, reason=reason, data=clean_json(data or {})))


def list_audit(
    session: Session, *, subject: str | None = None, before: int | None = None, limit: int | None = None
) -> list[AuditRecord]:
    """Lines, newest first; `before`: only those with a lower id."""
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
