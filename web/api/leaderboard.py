"""The leaderboard: who wrote the fastest kernel that passed, as pages or as a table for other programs."""

import csv
import io
from collections.abc import Callable
from dataclasses import astuple, fields
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from db.leaderboard import Entry, leaderboard
from web.api.answers import problems
from web.api.fields import MAX_ID, ModelName, PlatformName, Suite, TaskRef
from web.api.schemas_results import Board, Leaderboard
from web.identity import Viewer
from web.parts import Parts, TheParts

router = APIRouter(tags=["leaderboard"])
MAX_CSV_LINES = 100_000
_COLUMNS = tuple(field.name for field in fields(Entry))

Sorting = Annotated[
    Literal["board", "speedup", "speedup_compile", "roofline", "model", "evaluated_at"],
    Query(description="`board`: task by task, each by rank. Entries without a figure stand last."),
]
_KEYS: dict[str, Callable[[Entry], tuple[bool, object]]] = {
    "speedup": lambda entry: (entry.speedup is None, -(entry.speedup or 0.0)),
    "speedup_compile": lambda entry: (entry.speedup_compile is None, -(entry.speedup_compile or 0.0)),
    "roofline": lambda entry: (entry.roofline_fraction is None, -(entry.roofline_fraction or 0.0)),
    "model": lambda entry: (False, entry.model),
    "evaluated_at": lambda entry: (
        entry.evaluated_at is None,
        -(entry.evaluated_at.timestamp() if entry.evaluated_at else 0.0),
    ),
}


@router.get("/leaderboard", responses=problems())
def show(
    parts: TheParts,
    _: Viewer,
    suite: Suite = None,
    platform: PlatformName = None,
    task: TaskRef = None,
    model: ModelName = None,
    sort: Sorting = "board",
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_ID, description="Leave out so many first.")] = 0,
) -> Leaderboard:
    """A page of the leaderboard."""
    entries = _entries(parts, suite, platform, task, model, sort)
    return Leaderboard(entries=[Board.of(entry) for entry in entries[offset : offset + limit]], total=len(entries))


@router.get(
    "/leaderboard.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems()},
)
def export(
    parts: TheParts,
    _: Viewer,
    suite: Suite = None,
    platform: PlatformName = None,
    task: TaskRef = None,
    model: ModelName = None,
    sort: Sorting = "board",
) -> Response:
    """The whole leaderboard as CSV, one line an entry."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    for entry in _entries(parts, suite, platform, task, model, sort)[:MAX_CSV_LINES]:
        writer.writerow([_cell(value) for value in astuple(entry)])
    headers = {"Content-Disposition": 'attachment; filename="leaderboard.csv"'}
    return Response(text.getvalue(), media_type="text/csv", headers=headers)


def _entries(
    parts: Parts, suite: str | None, platform: str | None, task: str | None, model: str | None, sort: str
) -> list[Entry]:
    with parts.store.read() as session:
        entries = leaderboard(session, suite=suite, platform=platform, task=task)
    if model is not None:
        entries = [entry for entry in entries if entry.model == model]
    return entries if sort == "board" else sorted(entries, key=_KEYS[sort])


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
