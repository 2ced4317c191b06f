"""The candidates of a job: list, show, compare, and evaluate again."""

import difflib
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from db.records import CandidateRecord
from service.submissions.evaluations import reevaluate
from service.views.candidates import get_candidate, list_candidates
from web.api.jobs import queued_response
from web.api.parameters import HEX_64, MAX_ID, CandidateHash, IdempotencyKey, JobId
from web.api.schemas.jobs import Job
from web.api.schemas.results import CandidateList, CandidateSummary, CandidateWhole, EvaluationSummary
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Submitter, Viewer

router = APIRouter(prefix="/jobs/{job_id}/candidates", tags=["candidates"])
MAX_DIFF_LINES = 20_000


@router.get("", responses=problems(404))
def list_(job_id: JobId, deps: Deps, _: Viewer) -> CandidateList:
    """List the candidates of a job with their latest evaluations."""
    found = list_candidates(deps.store, job_id)
    return CandidateList(candidates=[CandidateSummary(**_summary(candidate)) for candidate in found])


@router.get("/{candidate_hash}", responses=problems(404))
def show(job_id: JobId, candidate_hash: CandidateHash, deps: Deps, _: Viewer) -> CandidateWhole:
    """Show a candidate with its source."""
    candidate = get_candidate(deps.store, job_id, candidate_hash)
    return CandidateWhole(**_summary(candidate), source=candidate.source)


@router.get(
    "/{candidate_hash}/diff",
    response_class=Response,
    responses={200: {"content": {"text/x-diff": {"schema": {"type": "string"}}}}, **problems(404)},
)
def diff(
    job_id: JobId,
    candidate_hash: CandidateHash,
    deps: Deps,
    _: Viewer,
    against: Annotated[str, Query(pattern=HEX_64, description="The hash of the candidate to compare it with.")],
    against_job: Annotated[
        int | None, Query(ge=1, le=MAX_ID, description="The job of that candidate; by default the same job.")
    ] = None,
) -> Response:
    """The changes from the candidate `against` to this one, as a unified diff."""
    new = get_candidate(deps.store, job_id, candidate_hash)
    old = get_candidate(deps.store, against_job or job_id, against)
    lines = difflib.unified_diff(
        old.source.splitlines()[:MAX_DIFF_LINES],
        new.source.splitlines()[:MAX_DIFF_LINES],
        old.hash[:12],
        new.hash[:12],
        lineterm="",
    )
    return Response("".join(f"{line}\n" for line in lines), media_type="text/x-diff")


@router.post(
    "/{candidate_hash}/evaluations",
    status_code=201,
    responses={200: {"model": Job, "description": "Queued by an earlier request."}, **problems(404, 409)},
)
def evaluate_again(
    job_id: JobId,
    candidate_hash: CandidateHash,
    response: Response,
    deps: Deps,
    principal: Submitter,
    key: IdempotencyKey = None,
) -> Job:
    """Queue another evaluation of a candidate. No model is called."""
    new_id, new = reevaluate(principal, job_id, candidate_hash, store=deps.store, key=key)
    return queued_response(deps, response, new_id, new=new)


def _summary(candidate: CandidateRecord) -> dict[str, Any]:
    values = asdict(candidate)
    del values["source"]
    values["evaluation"] = None if candidate.evaluation is None else EvaluationSummary.of(candidate.evaluation)
    return values
