"""The pages of runs over whole models: the list, and one run with its actions and downloads."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from service.submissions.access import Principal, may_change
from service.submissions.jobs import cancel_for, resume_for
from service.views.models import STAGES, ModelRunView, model_run_list, model_run_view
from web.archives import model_archive
from web.dependencies import Deps
from web.pages.parameters import Before, CsrfChecked, RunId
from web.pages.render import speedup_bars, time_bars
from web.pages.render.render import page
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/models", include_in_schema=False)

_KERNELS = 12


@router.get("")
def list_(request: Request, deps: Deps, _: Viewer, before: Before = None) -> HTMLResponse:
    """The list of runs, newest first."""
    view = model_run_list(deps.store, before=before)
    axis = speedup_bars.axis(line.eager for line in view.lines if line.counts)
    return page(request, "models.html", view=view, axis=axis)


@router.get("/{run_id}")
def show(request: Request, deps: Deps, principal: Viewer, run_id: RunId) -> HTMLResponse:
    """A run. A script updates the page."""
    return page(request, "model.html", **_context(model_run_view(deps.store, run_id), principal))


@router.get("/{run_id}/part")
def part(request: Request, deps: Deps, principal: Viewer, run_id: RunId) -> HTMLResponse:
    """The part of a run's page that changes while it is under way."""
    return page(request, "model_part.html", **_context(model_run_view(deps.store, run_id), principal))


@router.post("/{run_id}/cancel", dependencies=[CsrfChecked])
def cancel(deps: Deps, principal: Submitter, run_id: RunId) -> RedirectResponse:
    """Cancel a run and the jobs of its regions."""
    cancel_for(principal, run_id, store=deps.store)
    return RedirectResponse(f"/models/{run_id}", status_code=303)


@router.post("/{run_id}/resume", dependencies=[CsrfChecked])
def resume(deps: Deps, principal: Submitter, run_id: RunId) -> RedirectResponse:
    """Put a run back into the queue."""
    resume_for(principal, run_id, settings=deps.settings, store=deps.store)
    return RedirectResponse(f"/models/{run_id}", status_code=303)


@router.get("/{run_id}/model.zip")
def archive(deps: Deps, _: Viewer, run_id: RunId) -> Response:
    """Download what a run delivers."""
    return model_archive(deps, run_id)


def _context(view: ModelRunView, principal: Principal) -> dict[str, Any]:
    return {
        "view": view,
        "stages": STAGES,
        "picture": time_bars.picture(view.times.bars),
        "axis": speedup_bars.axis(line.eager for line in view.regions if not line.unreliable),
        "kernels": view.kernels_ms[:_KERNELS],
        "may_change": may_change(principal, view.run.user),
    }
