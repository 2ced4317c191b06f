"""The pages of runs over whole models: the list, and one run."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from service.views.models import STAGES, model_run_list, model_run_view
from web.dependencies import Deps
from web.pages.parameters import RunId
from web.pages.render import speedup_bars, time_bars
from web.pages.render.render import page
from web.security.identity import Viewer

router = APIRouter(prefix="/models", include_in_schema=False)

_KERNELS = 12


@router.get("")
def list_(
    request: Request, deps: Deps, _: Viewer, before: Annotated[int | None, Query(ge=1, le=2**31)] = None
) -> HTMLResponse:
    """The list of runs, newest first."""
    view = model_run_list(deps.store, before=before)
    axis = speedup_bars.axis(line.eager for line in view.lines if line.counts)
    return page(request, "models.html", view=view, axis=axis)


@router.get("/{run_id}")
def show(request: Request, deps: Deps, _: Viewer, run_id: RunId) -> HTMLResponse:
    """A run."""
    view = model_run_view(deps.store, run_id)
    return page(
        request,
        "model.html",
        view=view,
        stages=STAGES,
        picture=time_bars.picture(view.times.bars),
        axis=speedup_bars.axis(line.eager for line in view.regions if not line.unreliable),
        kernels=view.kernels_ms[:_KERNELS],
    )
