"""The pages of batches: the list, and one batch, also compared with another."""

from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BeforeValidator, Field

from service.batches.manage import compare_batches, list_batches
from service.batches.results import Baseline
from service.submissions.access import Principal, may_change
from service.submissions.batches import cancel_batch_for, resume_batch_for
from service.views.batches import BatchView, batch_view, column_name
from web.api.parameters import MAX_ID
from web.archives import report_archive
from web.dependencies import Dependencies, Deps
from web.pages.parameters import BatchId, Before, CsrfChecked
from web.pages.render.render import page
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/batches", include_in_schema=False)

_PAGE = 50
_BASELINES = get_args(Baseline)


@router.get("")
def list_(request: Request, deps: Deps, _: Viewer, before: Before = None) -> HTMLResponse:
    """The list of batches, newest first."""
    found = list_batches(deps.store, before=before, limit=_PAGE + 1)
    more = found[_PAGE - 1].batch.id if len(found) > _PAGE else None
    return page(request, "batches.html", lines=found[:_PAGE], next_before=more)


Over = Annotated[str, Query(max_length=20)]
_Known = Annotated[int, Field(ge=1, le=MAX_ID)]
Against = Annotated[_Known | None, BeforeValidator(lambda given: given or None), Query()]  # "": none chosen


@router.get("/{batch_id}")
def show(
    request: Request, deps: Deps, principal: Viewer, batch_id: BatchId, over: Over = "eager", against: Against = None
) -> HTMLResponse:
    """A batch. `against` is the id of a batch to compare it with. A script updates the page."""
    return page(request, "batch.html", **_context(deps, principal, batch_id, over, against))


@router.get("/{batch_id}/part")
def part(
    request: Request, deps: Deps, principal: Viewer, batch_id: BatchId, over: Over = "eager", against: Against = None
) -> HTMLResponse:
    """The part of a batch's page that changes while the batch runs."""
    return page(request, "batch_part.html", **_context(deps, principal, batch_id, over, against))


@router.get("/{batch_id}/report.zip")
def report(deps: Deps, _: Viewer, batch_id: BatchId, over: Over = "eager") -> Response:
    """Download a paper's tables and plots of a batch."""
    return report_archive(deps, batch_id, over="compile" if over == "compile" else "eager")


@router.post("/{batch_id}/cancel", dependencies=[CsrfChecked])
def cancel(deps: Deps, principal: Submitter, batch_id: BatchId) -> RedirectResponse:
    """Cancel a batch."""
    cancel_batch_for(principal, batch_id, store=deps.store)
    return RedirectResponse(f"/batches/{batch_id}", status_code=303)


@router.post("/{batch_id}/resume", dependencies=[CsrfChecked])
def resume(deps: Deps, principal: Submitter, batch_id: BatchId) -> RedirectResponse:
    """Put the jobs of a batch that can be resumed back into the queue."""
    resume_batch_for(principal, batch_id, settings=deps.settings, store=deps.store)
    return RedirectResponse(f"/batches/{batch_id}", status_code=303)


def _context(deps: Dependencies, principal: Principal, batch_id: int, over: str, against: int | None) -> dict[str, Any]:
    baseline: Baseline = "compile" if over == "compile" else "eager"
    view = batch_view(deps.store, batch_id, over=baseline)
    return {
        "view": view,
        "over": baseline,
        "baselines": _BASELINES,
        "versus": None if against is None else compare_batches(deps.store, batch_id, against, over=baseline),
        "against": against,
        "name_of": column_name,
        "may_change": may_change(principal, view.details.line.batch.user),
        "curves": _fast_p_curves(view),
        "heat": _heat_map(view),
    }


def _fast_p_curves(view: BatchView) -> list[dict[str, Any]]:
    return [
        {"name": column_name(group, view.details), "p": list(fast_p), "share": list(fast_p.values())}
        for group in view.details.groups
        if (fast_p := group.figures.fast_p)
    ]


def _heat_map(view: BatchView) -> dict[str, Any]:
    rows = view.heat.rows
    return {
        "models": view.heat.columns,
        "tasks": [row.task for row in rows],
        "logs": [[None if cell is None else cell.log for cell in row.cells] for row in rows],
        "shown": [["" if cell is None else cell.shown for cell in row.cells] for row in rows],
    }
