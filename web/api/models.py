"""Runs over whole models: list and show. `kernelwright model` starts them."""

from typing import Annotated

from fastapi import APIRouter, Path

from service.views.models import model_run_list, model_run_view
from web.api.parameters import MAX_ID, Cursor, Limit
from web.api.schemas.models import ModelRun, ModelRunPage, ModelRunWhole
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(prefix="/models", tags=["models"])
RunId = Annotated[int, Path(ge=1, le=MAX_ID, description="The run's number.", examples=[1])]


@router.get("", responses=problems())
def list_(deps: Deps, _: Viewer, cursor: Cursor = None, limit: Limit = 50) -> ModelRunPage:
    """List runs over whole models, newest first."""
    found = model_run_list(deps.store, before=cursor, limit=limit)
    return ModelRunPage(models=[ModelRun.of(line) for line in found.lines], next_cursor=found.next_before)


@router.get("/{run_id}", responses=problems(404))
def show(run_id: RunId, deps: Deps, _: Viewer) -> ModelRunWhole:
    """Show a run with its regions, the trials that chose kernels, and the proof so far."""
    return ModelRunWhole.of(model_run_view(deps.store, run_id))
