"""The front page: what is fast, by whom and at what cost."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from service.views.overview import Over, OverviewQuery, overview, overview_choices
from web.dependencies import Deps
from web.pages.render import overview_charts
from web.pages.render.render import page
from web.security.identity import Viewer

router = APIRouter(include_in_schema=False)

_Text = Annotated[str | None, Query(max_length=300)]
_FILTERS = ("q", "suite", "category", "dtype", "model")


@router.get("/")
def show(
    request: Request,
    deps: Deps,
    _: Viewer,
    on: Annotated[str, Query(max_length=40)] = "",
    over: Annotated[str, Query(max_length=20)] = "eager",
    q: _Text = None,
    suite: _Text = None,
    category: _Text = None,
    dtype: _Text = None,
    model: _Text = None,
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
) -> HTMLResponse:
    """The overview. `on` is the key of a target, `q` a text to look for."""
    baseline: Over = "compile" if over == "compile" else "eager"
    text = None if q is None else q.strip()
    view = overview(deps.store, OverviewQuery(on, suite, category, dtype, model, text, baseline, number))
    known = overview_choices(deps.store)
    query = request.query_params
    return page(
        request,
        "overview.html",
        view=view,
        choices=(
            ("suite", "Suite", known.suites),
            ("category", "Category", known.categories),
            ("model", "Model", known.models),
            ("dtype", "Data type", known.dtypes),
        ),
        charts=overview_charts,
        distribution=overview_charts.distribution(view.bins),
        costs=overview_charts.costs(view.models),
        curve=overview_charts.curve(view.progress),
        is_filtered=any(query.get(key) for key in _FILTERS),
        kept={key: value for key in ("on", "over") if (value := query.get(key))},
    )
