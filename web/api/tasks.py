"""Tasks: those that are built in, those that people submitted, and whether source text is one."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from db import tasks as kept_tasks
from db.errors import NotInStore
from service.errors import BadRequest
from service.requested import builtin_task
from service.tasks import list_tasks
from tasks.load import task_from_source
from tasks.suites import list_suites
from tasks.task import TaskError
from web.api.answers import problems
from web.api.fields import HEX_64, WORD, Cursor, Limit, Suite
from web.api.schemas import Checked, CheckRequest, TaskPage, TaskSummary, TaskWhole
from web.identity import Submitter, Viewer
from web.parts import TheParts

router = APIRouter(prefix="/tasks", tags=["tasks"])


@router.get("", responses=problems())
def list_(
    parts: TheParts,
    _: Viewer,
    origin: Annotated[
        Literal["builtin", "stored"], Query(description="Built-in suites, or what people submitted, newest first.")
    ] = "builtin",
    suite: Suite = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> TaskPage:
    """List tasks."""
    if origin == "stored":
        with parts.store.read() as session:
            stored = kept_tasks.list_tasks(session, suite=suite, before=cursor, limit=limit + 1)
        shown = [TaskSummary.of(task) for task in stored[:limit]]
        return TaskPage(tasks=shown, next_cursor=stored[limit - 1].id if len(stored) > limit else None)
    begin = cursor or 0
    found = list_tasks(suite) if suite is None or suite in list_suites() else []
    page = [TaskSummary.of(task) for task in found[begin : begin + limit]]
    return TaskPage(tasks=page, next_cursor=begin + limit if begin + limit < len(found) else None)


@router.post("/check", responses=problems())
def check(body: CheckRequest, _: Submitter) -> Checked:
    """Read an op without running any of it: whether it could be queued, or what is wrong with it."""
    try:
        task = task_from_source(body.source, name=body.name)
    except TaskError as error:
        return Checked(ok=False, message=str(error))
    return Checked(ok=True, message=None, category=task.category, dtype=task.dtype, source_hash=task.source_hash)


@router.get("/{suite}/{name}", responses=problems(404))
def show(
    suite: Annotated[str, Path(pattern=WORD, examples=["starter"])],
    name: Annotated[str, Path(pattern=WORD, examples=["rmsnorm_gelu"])],
    parts: TheParts,
    _: Viewer,
    source_hash: Annotated[
        str | None, Query(pattern=HEX_64, description="One certain source of this name; else the newest.")
    ] = None,
) -> TaskWhole:
    """Show a task with its source: the built-in one, or the newest that was submitted under this name."""
    ref = f"{suite}/{name}"
    try:
        builtin = builtin_task(ref)
        if source_hash in (None, builtin.source_hash):
            return TaskWhole(**TaskSummary.of(builtin).model_dump(), source=builtin.source)
    except BadRequest:
        pass
    with parts.store.read() as session:
        found = kept_tasks.find_task(session, suite=suite, name=name, source_hash=source_hash)
    if found is None:
        raise NotInStore(f"task {ref} is not known; GET /api/v1/tasks lists those that are")
    return TaskWhole(**TaskSummary.of(found).model_dump(), source=found.source)
