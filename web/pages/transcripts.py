"""The pages of what models said in a job: its calls in order, and one call as a whole."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from service.transcripts.redaction import known_secrets
from service.views.transcript import call_that_wrote, page_of, transcript_view, whole_call_view
from web.dependencies import Deps
from web.pages.parameters import CandidateHash, JobId
from web.pages.render.render import page
from web.security.identity import Viewer

router = APIRouter(prefix="/jobs/{job_id}", include_in_schema=False)

_Page = Annotated[int, Query(alias="page", ge=1, le=2**31)]


@router.get("/transcript")
def show(
    request: Request,
    deps: Deps,
    _: Viewer,
    job_id: JobId,
    number: _Page = 1,
    fold: Annotated[str, Query(max_length=10)] = "",
) -> HTMLResponse:
    """A page of a job's calls. With `fold=none` all of their parts are open."""
    view = transcript_view(deps.store, job_id, page=number, secrets=known_secrets(deps.settings))
    return page(request, "transcript.html", view=view, unfolded=fold == "none")


@router.get("/transcript/{call}")
def show_call(request: Request, deps: Deps, _: Viewer, job_id: JobId, call: JobId, number: _Page = 1) -> HTMLResponse:
    """One call with all that was sent and said."""
    view = whole_call_view(deps.store, job_id, call, page=number, secrets=known_secrets(deps.settings))
    return page(request, "transcript_call.html", view=view)


@router.get("/candidates/{candidate_hash}/call")
def call_of(deps: Deps, _: Viewer, job_id: JobId, candidate_hash: CandidateHash) -> RedirectResponse:
    """Lead to the call that a candidate is from, or to the transcript if nobody knows of one."""
    found = call_that_wrote(deps.store, job_id, candidate_hash)
    where = "" if found is None else f"?page={page_of(found)}#call-{found}"
    return RedirectResponse(f"/jobs/{job_id}/transcript{where}", status_code=303)
