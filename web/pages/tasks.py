"""The pages of tasks: the list, and one task with its source, leaderboard and jobs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from db.records import LeaderboardFilters, LeaderboardSort
from service.views.leaderboard import BoardQuery, board_view
from service.views.tasks import task_list, task_view
from web.dependencies import Deps
from web.pages.parameters import Name
from web.pages.render import speedup_bars
from web.pages.render.render import page
from web.security.identity import Viewer

router = APIRouter(prefix="/tasks", include_in_schema=False)


@router.get("")
def list_(
    request: Request,
    deps: Deps,
    _: Viewer,
    suite: Annotated[str | None, Query(max_length=255)] = None,
    number: Annotated[int, Query(alias="page", ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    """The list of tasks, by suite."""
    view = task_list(deps.store, suite=suite or None, page=number)
    return page(request, "tasks.html", view=view, chosen=suite, page=number)


@router.get("/{suite}/{name:path}")
def show(
    request: Request,
    deps: Deps,
    _: Viewer,
    suite: Name,
    name: Name,
    source: Annotated[str | None, Query(max_length=64)] = None,
    sort: Annotated[str | None, Query(max_length=40)] = None,
    order: Annotated[str | None, Query(max_length=40)] = None,
) -> HTMLResponse:
    """A task. `source` is the hash of one of its sources."""
    view = task_view(deps.store, suite, name, source or None)
    filters = LeaderboardFilters(task=f"{suite}/{name}", source_hash=view.source_hash)
    board = board_view(deps.store, BoardQuery(filters, sort, order), otherwise=LeaderboardSort.BOARD, page_size=200)
    return page(
        request,
        "task.html",
        view=view,
        board=board,
        board_axis=speedup_bars.axis(line.eager for line in board.lines if not line.unreliable),
        jobs_axis=speedup_bars.axis(line.speedup for line in view.jobs if not line.unreliable),
    )
