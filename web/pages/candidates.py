"""The page of a candidate: its source, its evaluations, and a comparison with another source."""

from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from markupsafe import Markup, escape

from service.audit import restore_evaluation, retract_evaluation
from service.submissions.evaluations import reevaluate
from service.views.candidates import MAX_LINE_CHARS, DiffView, candidate_view, diff_with, get_source
from service.views.evaluation import EvaluationView
from service.views.safe_text import shown as shown_text
from web.dependencies import Deps
from web.pages.jobs import download
from web.pages.parameters import CandidateHash, CsrfChecked, JobId
from web.pages.render import speedup_bars
from web.pages.render.render import page
from web.pages.render.source import MAX_HIGHLIGHTED_CHARS, code_line
from web.security.identity import Operator, Submitter, Viewer

router = APIRouter(prefix="/jobs/{job_id}/candidates/{candidate_hash}", include_in_schema=False)


@router.get("")
def show(
    request: Request,
    deps: Deps,
    _: Viewer,
    job_id: JobId,
    candidate_hash: CandidateHash,
    against: Annotated[str | None, Query(max_length=64)] = None,
    evaluation: Annotated[str | None, Query(max_length=64)] = None,
) -> HTMLResponse:
    """A candidate with its evaluations. `against` is the hash of a candidate to compare it with, or `reference`."""
    view = candidate_view(deps.store, job_id, candidate_hash, evaluation or None)
    difference = diff_with(deps.store, view, against) if against else None
    shown = view.shown
    return page(
        request,
        "candidate.html",
        view=view,
        against=against,
        difference=difference,
        code_of=_highlighter(difference),
        samples=None if shown is None else _samples_chart(shown),
        roofline=None if shown is None else _roofline_chart(shown),
        axis=speedup_bars.axis(each.eager for each in view.evaluations),
    )


@router.get("/source.py")
def source(deps: Deps, _: Viewer, job_id: JobId, candidate_hash: CandidateHash) -> Response:
    """Download the candidate's source.

    Raises:
        NotInStore: The job has no such candidate.
    """
    text = get_source(deps.store, job_id, candidate_hash)
    return download(text, f"candidate-{job_id}-{candidate_hash[:8]}.py", "text/x-python")


@router.post("/evaluate", dependencies=[CsrfChecked])
def evaluate(deps: Deps, principal: Submitter, job_id: JobId, candidate_hash: CandidateHash) -> RedirectResponse:
    """Queue another evaluation of the candidate."""
    new_id, _ = reevaluate(principal, job_id, candidate_hash, store=deps.store)
    return RedirectResponse(f"/jobs/{new_id}", status_code=303)


@router.post("/retract", dependencies=[CsrfChecked])
def retract(
    deps: Deps,
    principal: Operator,
    job_id: JobId,
    candidate_hash: CandidateHash,
    evaluation: Annotated[str, Form(max_length=64)],
    reason: Annotated[str, Form(max_length=4000)] = "",
    do: Annotated[Literal["retract", "restore"], Form()] = "retract",
) -> RedirectResponse:
    """Retract an evaluation, or undo a retraction. The reason is stored in the audit log."""
    change = retract_evaluation if do == "retract" else restore_evaluation
    change(deps.store, evaluation, actor=principal.actor, reason=reason)
    query = urlencode({"evaluation": evaluation})
    return RedirectResponse(f"/jobs/{job_id}/candidates/{quote(candidate_hash, safe='')}?{query}", status_code=303)


def _highlighter(difference: DiffView | None) -> Callable[[str], Markup]:
    """The function that formats a line of the difference. It highlights unless there is too much text."""
    if difference is None:
        return escape
    chars = sum(len(line.left) + len(line.right) for line in difference.lines)
    return code_line if chars <= MAX_HIGHLIGHTED_CHARS else lambda text: escape(shown_text(text, MAX_LINE_CHARS))


def _samples_chart(evaluation: EvaluationView) -> dict[str, Any]:
    """The data of the chart of all timed calls, in the unit of the evaluation's clock."""
    clock = evaluation.clock
    lines = [
        {
            "name": line.name,
            "title": line.title,
            "sets": [[clock.amount(value) for value in each] for each in line.sets_ms],
        }
        for line in evaluation.latencies
    ]
    return {"unit": clock.unit, "lines": lines}


def _roofline_chart(evaluation: EvaluationView) -> dict[str, Any] | None:
    """The data of the roofline chart: over FLOPs per byte, or only the bandwidth if no FLOPs were counted."""
    found = evaluation.roofline
    if found is None or not found.peak_gb_per_s or not found.achieved_gb_per_s:
        return None
    data = {"peak_gb_per_s": found.peak_gb_per_s, "bandwidth_unit": evaluation.clock.bandwidth_unit}
    if not found.flops or not found.bytes_moved or not found.achieved_gflop_per_s:
        return {"chart": "bandwidth", "data": data | {"achieved_gb_per_s": found.achieved_gb_per_s}}
    dot = {"gflop": found.achieved_gflop_per_s, "hash": evaluation.candidate_hash[:8], "sure": True}
    work = {
        "intensity": found.flops / found.bytes_moved,
        "peak_gflop_per_s": found.peak_gflop_per_s,
        "compute_unit": evaluation.clock.compute_unit,
        "series": [{"name": "candidate", "dots": [dot]}],
    }
    return {"chart": "roofline", "data": data | work}
