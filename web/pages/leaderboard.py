"""The page of the leaderboard."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from db.records import LeaderboardFilters
from service.views.leaderboard import BoardQuery, board_choices, board_view
from web.dependencies import Deps
from web.pages.render import speedup_bars
from web.pages.render.render import page
from web.security.identity import Viewer

router = APIRouter(include_in_schema=False)

_Text = Annotated[str | None, Query(max_length=300)]
_FILTERS = ("suite", "platform", "model", "dtype", "task")


@router.get("/leaderboard")
def show(
    request: Request,
    deps: Deps,
    _: Viewer,
    suite: _Text = None,
    platform: _Text = None,
    model: _Text = None,
    dtype: _Text = None,
    task: _Text = None,
    sort: _Text = None,
    order: _Text = None,
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
) -> HTMLResponse:
    """A page of the leaderboard."""
    filters = LeaderboardFilters(suite=suite, platform=platform, model=model, dtype=dtype, task=task)
    view = board_view(deps.store, BoardQuery(filters, sort, order, number))
    known = board_choices(deps.store)
    query = request.query_params
    return page(
        request,
        "leaderboard.html",
        view=view,
        axis=speedup_bars.axis(line.eager for line in view.lines if not line.unreliable),
        choices=(
            ("suite", "Suite", known.suites),
            ("platform", "Platform", known.platforms),
            ("model", "Model", known.models),
            ("dtype", "Data type", known.dtypes),
        ),
        is_filtered=any(query.get(key) for key in _FILTERS),
        order_query={key: value for key in ("sort", "order") if (value := query.get(key))},
        export_query={key: value for key in _FILTERS if (value := query.get(key))}
        | {"sort": view.sort, "order": "desc" if view.descending else "asc"},
    )
