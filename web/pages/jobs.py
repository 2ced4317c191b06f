"""The pages of jobs: the list, and one job."""

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from db.errors import NotInStore
from db.records import EvaluationRecord, JobStatus
from service.errors import BadRequest
from service.jobs.export import kernel_text, report_text
from service.jobs.query import JobDetails, RoundLine, show_job
from service.settings import Settings, override
from service.submissions.access import Principal, may_change
from service.submissions.jobs import cancel_for, resume_for
from service.version import program_version
from service.views.evaluation import Ratio
from service.views.jobs import JobView, job_list, job_view
from service.views.wording import LIMIT_NAMES
from web.dependencies import Dependencies, Deps
from web.pages.parameters import Before, CsrfChecked, JobId
from web.pages.render import speedup_bars
from web.pages.render.render import page
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/jobs", include_in_schema=False)

_Number = Annotated[str, Form(max_length=40)]
_STATUSES = tuple(status.value for status in JobStatus)


@router.get("")
def list_(
    request: Request,
    deps: Deps,
    _: Viewer,
    status: Annotated[str | None, Query(max_length=20)] = None,
    before: Before = None,
) -> HTMLResponse:
    """The list of jobs, newest first."""
    chosen = status if status in _STATUSES else None
    view = job_list(deps.store, status=chosen, before=before)
    axis = speedup_bars.axis(line.speedup for line in view.lines if not line.unreliable)
    return page(request, "jobs.html", view=view, axis=axis, chosen=chosen, statuses=_STATUSES)


@router.get("/{job_id}")
def show(request: Request, deps: Deps, principal: Viewer, job_id: JobId) -> Response:
    """A job. A script updates the page. A run over a whole model has a page of its own."""
    view = job_view(deps.store, job_id)
    if view.job.kind == "model":
        return RedirectResponse(f"/models/{job_id}", status_code=303)
    return page(request, "job.html", **_context(view, principal))


@router.get("/{job_id}/part")
def part(request: Request, deps: Deps, principal: Viewer, job_id: JobId) -> HTMLResponse:
    """The part of a job's page that changes while the job runs."""
    return page(request, "job_part.html", **_context(job_view(deps.store, job_id), principal))


@router.post("/{job_id}/cancel", dependencies=[CsrfChecked])
def cancel(deps: Deps, principal: Submitter, job_id: JobId) -> RedirectResponse:
    """Cancel a job."""
    cancel_for(principal, job_id, store=deps.store)
    return RedirectResponse(f"/jobs/{job_id}", status_code=303)


@router.post("/{job_id}/resume", dependencies=[CsrfChecked])
def resume(
    deps: Deps,
    principal: Submitter,
    job_id: JobId,
    rounds: _Number = "",
    budget_usd: _Number = "",
    budget_tokens: _Number = "",
    budget_s: _Number = "",
    budget_evaluations: _Number = "",
) -> RedirectResponse:
    """Put a job back into the queue, with larger limits if the form gives some."""
    given = {
        "rounds": rounds,
        "budget_usd": budget_usd,
        "budget_tokens": budget_tokens,
        "budget_s": budget_s,
        "budget_evaluations": budget_evaluations,
    }
    limits = {name: _number(deps.settings, name, text.strip()) for name, text in given.items() if text.strip()}
    resume_for(principal, job_id, limits=limits, settings=deps.settings, store=deps.store)
    return RedirectResponse(f"/jobs/{job_id}", status_code=303)


def _number(settings: Settings, name: str, text: str) -> float:
    """A limit from a form.

    Raises:
        BadRequest: it is no number that a job may have.
    """
    try:
        wanted = float(text) if name in ("budget_usd", "budget_s") else int(text)
    except ValueError as error:
        raise BadRequest(f"{name}: give a number (not {text[:40]!r})") from error
    checked: float = getattr(override(settings, **{name: wanted}), name)
    return checked


@router.get("/{job_id}/best.py")
def best(deps: Deps, _: Viewer, job_id: JobId) -> Response:
    """Download the best candidate."""
    details, evaluation = _best(deps, job_id)
    return download(kernel_text(details, evaluation), f"kernelwright-{job_id}.py", "text/x-python")


@router.get("/{job_id}/report.md")
def report(deps: Deps, _: Viewer, job_id: JobId) -> Response:
    """Download the report on the best candidate."""
    details, evaluation = _best(deps, job_id)
    kernel = Path(f"kernelwright-{job_id}.py")
    text = report_text(details, evaluation, kernel, program_version())
    return download(text, f"kernelwright-{job_id}.report.md", "text/markdown")


def download(text: str, name: str, media_type: str) -> Response:
    """A response that the browser saves as a file and never shows."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.encode("utf-8", "replace"), media_type=f"{media_type}; charset=utf-8", headers=headers)


def _best(deps: Dependencies, job_id: int) -> tuple[JobDetails, EvaluationRecord]:
    details = show_job(deps.store, job_id)
    if details.best is None:
        raise NotInStore(f"job {job_id} has no candidate that passed; there is nothing to download")
    return details, details.best


def _context(view: JobView, principal: Principal) -> dict[str, Any]:
    curve = [
        {"round": point.round, "speedup": point.speedup, "low": point.low, "high": point.high, "best": point.best,
         "sure": not each.unreliable}
        for point, each in zip(view.curve, view.rounds, strict=True)
    ]  # fmt: skip
    lines = [line for each in view.rounds for line in (each.line, *each.line.others)]
    ratios = [_ratio(line) for line in lines if not line.retracted]
    return {
        "view": view,
        "axis": speedup_bars.axis(ratios),
        "ratio_of": _ratio,
        "curve": curve,
        "may_change": may_change(principal, view.job.user),
        "limit_names": LIMIT_NAMES,
    }


def _ratio(line: RoundLine) -> Ratio | None:
    return None if line.speedup is None else Ratio(line.speedup, line.speedup_low, line.speedup_high)
