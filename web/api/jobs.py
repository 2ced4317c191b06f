"""Jobs: submit, list, show, cancel, resume, and download the result."""

from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Query, Response

from db.records import JobStatus
from service.errors import Conflict
from service.jobs.export import kernel_text, report_text
from service.jobs.limits import given_limits
from service.jobs.query import get_job, list_jobs, show_job
from service.submissions.jobs import cancel_for, resume_for, submit_for
from service.tasks import find_task
from service.version import program_version
from tasks.load import task_from_source
from web.api.parameters import Cursor, IdempotencyKey, JobId, Limit, ModelName, TaskRef
from web.api.schemas.jobs import Job, JobOfTask, JobPage, JobRequest, JobWhole, LargerLimits
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/jobs", tags=["jobs"])
REPLAYED = "Idempotency-Replayed"


@router.post(
    "",
    status_code=201,
    responses={200: {"model": Job, "description": "Queued by an earlier request."}, **problems(409)},
)
def submit(body: JobRequest, response: Response, deps: Deps, principal: Submitter, key: IdempotencyKey = None) -> Job:
    """Queue a job for a built-in task or for an op of the user's own. Other options have the server's settings."""
    if isinstance(body, JobOfTask):
        task = find_task(body.task, store=deps.store, files=False)
    else:
        task = task_from_source(body.source, name=body.name)
    job_id, new = submit_for(
        principal,
        task,
        options=body.options(),
        origin=body.translate_from,
        kernel=body.source_kernel,
        priority=body.priority,
        settings=deps.settings,
        store=deps.store,
        key=key,
    )
    return queued_response(deps, response, job_id, new=new)


@router.get("", responses=problems())
def list_(
    deps: Deps,
    _: Viewer,
    status: Annotated[JobStatus | None, Query(description="Only this status.")] = None,
    kind: Annotated[str | None, Query(pattern="^(optimize|evaluate|model)$", description="Only this kind.")] = None,
    user: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9_.@-]{1,64}$", description="Only this user's.")] = None,
    model: ModelName = None,
    task: TaskRef = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> JobPage:
    """List jobs, newest first."""
    found = list_jobs(
        deps.store, kind=kind, status=status, user=user, model=model, task=task, before=cursor, limit=limit + 1
    )
    return JobPage(
        jobs=[Job.of(job) for job in found[:limit]], next_cursor=found[limit - 1].id if len(found) > limit else None
    )


@router.get("/{job_id}", responses=problems(404))
def show(job_id: JobId, deps: Deps, _: Viewer) -> JobWhole:
    """Show a job with its rounds and its best candidate so far."""
    return JobWhole.of(show_job(deps.store, job_id))


@router.post("/{job_id}/cancel", responses=problems(404))
def cancel(job_id: JobId, deps: Deps, principal: Submitter) -> Job:
    """Cancel a job. It keeps its best candidate so far. A job that has ended does not change."""
    return Job.of(cancel_for(principal, job_id, store=deps.store))


@router.post("/{job_id}/resume", responses=problems(404, 409))
def resume(job_id: JobId, deps: Deps, principal: Submitter, body: LargerLimits | None = None) -> Job:
    """Put a job back into the queue that ended early, or that is done by a limit and gets a larger one.

    Work that is done and paid for is not repeated. Limits are totals over all runs of the job.
    """
    limits = {} if body is None else given_limits(body.model_dump())
    return Job.of(resume_for(principal, job_id, limits=limits, settings=deps.settings, store=deps.store))


@router.get(
    "/{job_id}/export",
    response_class=Response,
    responses={200: {"content": {"text/x-python": {"schema": {"type": "string"}}}}, **problems(404, 409)},
)
def export(job_id: JobId, deps: Deps, _: Viewer) -> Response:
    """The best candidate as one Python file that runs with PyTorch alone."""
    details = show_job(deps.store, job_id)
    if details.best is None:
        raise Conflict(f"job {job_id} has no candidate that passed; there is nothing to export")
    headers = {"Content-Disposition": f'attachment; filename="kernelwright-{job_id}.py"'}
    return Response(kernel_text(details, details.best), media_type="text/x-python", headers=headers)


@router.get(
    "/{job_id}/report",
    response_class=Response,
    responses={200: {"content": {"text/markdown": {"schema": {"type": "string"}}}}, **problems(404, 409)},
)
def report(job_id: JobId, deps: Deps, _: Viewer) -> Response:
    """The report on the best candidate as Markdown: measurements and checks."""
    details = show_job(deps.store, job_id)
    if details.best is None:
        raise Conflict(f"job {job_id} has no candidate that passed; there is nothing to report")
    text = report_text(details, details.best, FilePath(f"kernelwright-{job_id}.py"), program_version())
    return Response(text, media_type="text/markdown")


def queued_response(deps: Deps, response: Response, job_id: int, *, new: bool) -> Job:
    """Set the headers of the response to a request that queued a job.

    Args:
        deps: The application's dependencies.
        response: The response.
        job_id: The job.
        new: False if an earlier request with the same idempotency key queued the job.

    Returns:
        The job.
    """
    response.headers["Location"] = f"/api/v1/jobs/{job_id}"
    if not new:
        response.status_code = 200
        response.headers[REPLAYED] = "true"
    return Job.of(get_job(deps.store, job_id))
