"""Runs over whole models: submit, list, show, and download what is delivered."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from service.submissions.models import submit_model_for
from service.tasks import find_task
from service.views.models import model_run_list, model_run_view
from tasks.load import task_from_source
from web.api.jobs import REPLAYED
from web.api.parameters import MAX_ID, Cursor, IdempotencyKey, Limit
from web.api.schemas.models import ModelOfTask, ModelRequest, ModelRun, ModelRunPage, ModelRunWhole
from web.archives import model_archive
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/models", tags=["models"])
RunId = Annotated[int, Path(ge=1, le=MAX_ID, description="The run's number.", examples=[1])]


@router.post(
    "",
    status_code=201,
    responses={200: {"model": ModelRunWhole, "description": "Queued by an earlier request."}, **problems(409)},
)
def submit(
    body: ModelRequest, response: Response, deps: Deps, principal: Submitter, key: IdempotencyKey = None
) -> ModelRunWhole:
    """Queue a run over a whole model: a task of the server, or a model of the user's own.

    A run has the id of its job: `/jobs/{id}/events`, `/jobs/{id}/cancel` and `/jobs/{id}/resume` are for it as well.
    """
    if isinstance(body, ModelOfTask):
        model = find_task(body.task, store=deps.store, files=False)
    else:
        model = task_from_source(body.source, name=body.name)
    run_id, new = submit_model_for(
        principal,
        model,
        options=body.options(),
        plan_only=body.plan_only,
        weights=body.weights,
        priority=body.priority,
        settings=deps.settings,
        store=deps.store,
        key=key,
    )
    response.headers["Location"] = f"/api/v1/models/{run_id}"
    if not new:
        response.status_code = 200
        response.headers[REPLAYED] = "true"
    return ModelRunWhole.of(model_run_view(deps.store, run_id))


@router.get("", responses=problems())
def list_(deps: Deps, _: Viewer, cursor: Cursor = None, limit: Limit = 50) -> ModelRunPage:
    """List runs over whole models, newest first."""
    found = model_run_list(deps.store, before=cursor, limit=limit)
    return ModelRunPage(models=[ModelRun.of(line) for line in found.lines], next_cursor=found.next_before)


@router.get("/{run_id}", responses=problems(404))
def show(run_id: RunId, deps: Deps, _: Viewer) -> ModelRunWhole:
    """Show a run with its regions, the trials that chose kernels, and the proof so far."""
    return ModelRunWhole.of(model_run_view(deps.store, run_id))


@router.get(
    "/{run_id}/export",
    response_class=Response,
    responses={
        200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}},
        **problems(404, 409),
    },
)
def export(run_id: RunId, deps: Deps, _: Viewer) -> Response:
    """What the run delivers, as a .zip archive: a model that runs with PyTorch alone, its kernels, and the report."""
    return model_archive(deps, run_id)
