"""The pages of tasks: the list, and one task with its source, leaderboard and jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from db.records import LeaderboardFilters, LeaderboardSort
from service.views.leaderboard import BoardQuery, board_view
from service.views.task_candidates import TargetCandidates, task_candidates_view
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
    candidates = task_candidates_view(deps.store, suite, name, view.source_hash)
    return page(
        request,
        "task.html",
        view=view,
        candidates=candidates,
        candidates_axis=speedup_bars.axis(
            line.eager for target in candidates.targets for line in target.lines if line.counts
        ),
        rooflines=[_roofline_chart(target) for target in candidates.targets],
        board=board,
        board_axis=speedup_bars.axis(line.eager for line in board.lines if not line.unreliable),
        jobs_axis=speedup_bars.axis(line.speedup for line in view.jobs if not line.unreliable),
    )


def _roofline_chart(target: TargetCandidates) -> dict[str, Any] | None:
    """The data of the roofline with a dot for each candidate: over FLOPs per byte, or bytes moved by model."""
    found, clock = target.roofline, target.roofline_clock
    if found is None or not found.peak_gb_per_s or not found.bytes_moved:
        return None
    by_model: dict[str, list[dict[str, Any]]] = {}
    for line in target.lines:
        if line.gb_per_s is not None:
            dot = {"gb": line.gb_per_s, "gflop": line.gflop_per_s, "hash": line.candidate.hash[:8], "sure": line.counts}
            by_model.setdefault(line.candidate.model, []).append(dot)
    if not by_model:
        return None
    series = [{"name": name, "dots": dots} for name, dots in by_model.items()]
    data = {"peak_gb_per_s": found.peak_gb_per_s, "bandwidth_unit": clock.bandwidth_unit, "series": series}
    if not found.flops:
        return {"chart": "rates", "data": data}
    work = {
        "intensity": found.flops / found.bytes_moved,
        "peak_gflop_per_s": found.peak_gflop_per_s,
        "compute_unit": clock.compute_unit,
    }
    return {"chart": "roofline", "data": data | work}
