"""Tasks: list, show, and check source text."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from service.tasks import known_task_heads
from service.views.tasks import get_task, list_stored
from tasks.load import task_from_source
from tasks.task import TaskError
from web.api.parameters import HEX_64, WORD, Cursor, Limit, Suite
from web.api.schemas.jobs import Checked, CheckRequest, TaskPage, TaskSummary, TaskWhole
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/tasks", tags=["tasks"])


@router.get("", responses=problems())
def list_(
    deps: Deps,
    _: Viewer,
    origin: Annotated[
        Literal["suites", "stored"],
        Query(
            description="`suites`: tasks of built-in and imported suites. `stored`: the sources of all jobs, newest"
            " first."
        ),
    ] = "suites",
    suite: Suite = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> TaskPage:
    """List tasks."""
    if origin == "stored":
        stored = list_stored(deps.store, suite=suite, before=cursor, limit=limit + 1)
        shown = [TaskSummary.of(task) for task in stored[:limit]]
        return TaskPage(tasks=shown, next_cursor=stored[limit - 1].id if len(stored) > limit else None)
    begin = cursor or 0
    found = [task for task in known_task_heads(deps.store) if suite in (None, task.suite)]
    page = [TaskSummary.of(task, named=True) for task in found[begin : begin + limit]]
    return TaskPage(tasks=page, next_cursor=begin + limit if begin + limit < len(found) else None)


@router.post("/check", responses=problems())
def check(body: CheckRequest, _: Submitter) -> Checked:
    """Check whether source text is a valid op, without executing it."""
    try:
        task = task_from_source(body.source, name=body.name)
    except TaskError as error:
        return Checked(ok=False, message=str(error))
    return Checked(ok=True, message=None, category=task.category, dtype=task.dtype, source_hash=task.source_hash)


@router.get("/{suite}/{name}", responses=problems(404))
def show(
    suite: Annotated[str, Path(pattern=WORD, examples=["starter"])],
    name: Annotated[str, Path(pattern=WORD, examples=["rmsnorm_gelu"])],
    deps: Deps,
    _: Viewer,
    source_hash: Annotated[
        str | None,
        Query(pattern=HEX_64, description="The hash of one of its sources; by default the current one."),
    ] = None,
) -> TaskWhole:
    """Show a task with its source: the task of a suite, or the last one that was submitted under this name."""
    found = get_task(deps.store, suite, name, source_hash)
    return TaskWhole(**TaskSummary.of(found).model_dump(), source=found.source)
