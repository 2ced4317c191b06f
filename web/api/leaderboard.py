"""The leaderboard: a page as JSON, or all of it as CSV."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse

from db.records import LeaderboardEntry, LeaderboardFilters, LeaderboardSort
from service.batches.export import csv_lines
from service.views.leaderboard import leaderboard_page
from web.api.parameters import MAX_ID, ModelName, PlatformName, Suite, TaskRef
from web.api.schemas.results import Board, Leaderboard
from web.dependencies import Dependencies, Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(tags=["leaderboard"])
_CSV_PAGE = 1000
_COLUMNS = tuple(field.name for field in fields(LeaderboardEntry))


@dataclass(frozen=True)
class LeaderboardQuery:
    """The filters and the order of the entries."""

    suite: Suite = None
    platform: PlatformName = None
    task: TaskRef = None
    model: ModelName = None
    dtype: Annotated[str | None, Query(pattern="^[a-z0-9_]{1,32}$", description="Only this dtype.")] = None
    device: Annotated[str | None, Query(pattern=r"^[ -~]{1,200}$", description="Only this device; the full name.")] = (
        None
    )
    sort: Annotated[
        LeaderboardSort,
        Query(
            description="The value to sort by. Entries without a rank come last, and among the ranked ones those"
            " without the value. `board` sorts by task, and within a board by rank."
        ),
    ] = LeaderboardSort.SPEEDUP
    order: Annotated[
        Literal["asc", "desc"] | None,
        Query(description="By default the best value comes first, the latest date, or names from A."),
    ] = None

    @property
    def filters(self) -> LeaderboardFilters:
        """The filters as the store takes them."""
        return LeaderboardFilters(self.suite, self.platform, self.task, self.model, self.dtype, self.device)

    @property
    def descending(self) -> bool | None:
        """Whether the highest value comes first; None for the usual direction of the order."""
        return None if self.order is None else self.order == "desc"


QueryParameters = Annotated[LeaderboardQuery, Depends()]


@router.get("/leaderboard", responses=problems())
def show(
    deps: Deps,
    _: Viewer,
    query: QueryParameters,
    limit: Annotated[int, Query(ge=1, le=1000, description="The number of entries, at most.")] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_ID, description="The number of entries to skip.")] = 0,
) -> Leaderboard:
    """A page of the leaderboard."""
    entries, total = _page(deps, query, limit, offset)
    return Leaderboard(entries=[Board.of(entry) for entry in entries], total=total)


@router.get(
    "/leaderboard.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems()},
)
def export(deps: Deps, _: Viewer, query: QueryParameters) -> Response:
    """The whole leaderboard as CSV, with one line for each entry."""
    headers = {"Content-Disposition": 'attachment; filename="leaderboard.csv"'}
    return StreamingResponse(_csv(deps, query), media_type="text/csv", headers=headers)


def _page(deps: Dependencies, query: LeaderboardQuery, limit: int, offset: int) -> tuple[list[LeaderboardEntry], int]:
    return leaderboard_page(
        deps.store, query.filters, sort=query.sort, descending=query.descending, limit=limit, offset=offset
    )


def _csv(deps: Dependencies, query: LeaderboardQuery) -> Iterator[str]:
    yield csv_lines([_COLUMNS])
    offset = 0
    while entries := _page(deps, query, _CSV_PAGE, offset)[0]:
        yield csv_lines([astuple(entry) for entry in entries])
        offset += len(entries)
