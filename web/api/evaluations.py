"""Evaluations: start, show, retract and restore."""

from fastapi import APIRouter, Response

from service.audit import restore_evaluation, retract_evaluation
from service.submissions.evaluations import evaluate_for
from service.tasks import find_task
from service.views.evaluation import get_evaluation
from tasks.load import task_from_source
from web.api.jobs import queued_response
from web.api.parameters import EvaluationId, IdempotencyKey
from web.api.schemas.jobs import Job
from web.api.schemas.results import EvaluationOfTask, EvaluationRequest, EvaluationSummary, EvaluationWhole, Judgement
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Operator, Submitter, Viewer

router = APIRouter(prefix="/evaluations", tags=["evaluations"])


@router.post(
    "",
    status_code=201,
    responses={200: {"model": Job, "description": "Queued by an earlier request."}, **problems(409)},
)
def start(
    body: EvaluationRequest, response: Response, deps: Deps, principal: Submitter, key: IdempotencyKey = None
) -> Job:
    """Queue the evaluation of a candidate. No model is called. The response is the job."""
    if isinstance(body, EvaluationOfTask):
        task = find_task(body.task, store=deps.store, files=False)
    else:
        task = task_from_source(body.source, name=body.name)
    job_id, new = evaluate_for(
        principal,
        task,
        body.candidate,
        platform=body.platform,
        profile=body.profile,
        cold=body.cold,
        tolerance=body.tolerance,
        shape_group=body.shape_group,
        baselines=body.baselines,
        weights=body.weights,
        sanitize=body.sanitize,
        settings=deps.settings,
        store=deps.store,
        key=key,
    )
    return queued_response(deps, response, job_id, new=new)


@router.get("/{evaluation_id}", responses=problems(404))
def show(evaluation_id: EvaluationId, deps: Deps, _: Viewer) -> EvaluationWhole:
    """Show an evaluation with the evaluator's whole result."""
    found = get_evaluation(deps.store, evaluation_id)
    return EvaluationWhole(**EvaluationSummary.of(found).model_dump(), result=dict(found.result))


@router.post("/{evaluation_id}/retract", responses=problems(404, 409))
def retract(evaluation_id: EvaluationId, body: Judgement, deps: Deps, principal: Operator) -> EvaluationSummary:
    """Retract an evaluation. The audit log stores the user and the reason."""
    return EvaluationSummary.of(
        retract_evaluation(deps.store, evaluation_id, actor=principal.actor, reason=body.reason)
    )


@router.post("/{evaluation_id}/restore", responses=problems(404, 409))
def restore(evaluation_id: EvaluationId, body: Judgement, deps: Deps, principal: Operator) -> EvaluationSummary:
    """Undo the retraction of an evaluation."""
    return EvaluationSummary.of(
        restore_evaluation(deps.store, evaluation_id, actor=principal.actor, reason=body.reason)
    )
