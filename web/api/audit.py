"""The audit log."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from db.records import AuditRecord
from service.audit import list_audit
from web.api.parameters import Cursor, Limit
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Operator

router = APIRouter(prefix="/audit", tags=["audit"])
Subject = Annotated[
    str | None, Query(pattern=r"^[!-~]{1,128}$", description="Only changes of this subject.", examples=["token/1"])
]


class AuditLine(BaseModel):
    """A change: who made it, to what, and why."""

    id: int
    at: datetime
    actor: str
    action: str = Field(examples=["token.create"])
    subject: str = Field(description="The kind and the id of what was changed.", examples=["token/1"])
    reason: str
    data: dict[str, Any]

    @classmethod
    def of(cls, line: AuditRecord) -> Self:
        """Convert a record."""
        return cls(**asdict(line))


class AuditPage(BaseModel):
    """A page of lines, newest first."""

    lines: list[AuditLine]
    next_cursor: int | None = Field(description="The value of `?cursor=` for the next page; null on the last page.")


@router.get("", responses=problems())
def list_(deps: Deps, _: Operator, subject: Subject = None, cursor: Cursor = None, limit: Limit = 50) -> AuditPage:
    """List the audit log, newest first."""
    found = list_audit(deps.store, subject=subject, before=cursor, limit=limit + 1)
    return AuditPage(
        lines=[AuditLine.of(line) for line in found[:limit]],
        next_cursor=found[limit - 1].id if len(found) > limit else None,
    )
