"""Evaluations: all that was found out, and taking a result off the leaderboard."""

from fastapi import APIRouter

from db import results
from service.audit import restore_evaluation, retract_evaluation
from web.api.answers import problems
from web.api.fields import EvaluationId
from web.api.schemas_results import EvaluationSummary, EvaluationWhole, Judgement
from web.identity import Operator, Viewer
from web.parts import TheParts

router = APIRouter(prefix="/evaluations", tags=["evaluations"])


@router.get("/{evaluation_id}", responses=problems(404))
def show(evaluation_id: EvaluationId, parts: TheParts, _: Viewer) -> EvaluationWhole:
    """Show an evaluation with all that the evaluator found out."""
    with parts.store.read() as session:
        found = results.get_evaluation(session, evaluation_id)
    return EvaluationWhole(**EvaluationSummary.of(found).model_dump(), result=dict(found.result))


@router.post("/{evaluation_id}/retract", responses=problems(404, 409))
def retract(evaluation_id: EvaluationId, body: Judgement, parts: TheParts, principal: Operator) -> EvaluationSummary:
    """Take a result off the leaderboard; who did it and why stays in the audit log."""
    return EvaluationSummary.of(
        retract_evaluation(parts.store, evaluation_id, actor=principal.actor, reason=body.reason)
    )


@router.post("/{evaluation_id}/restore", responses=problems(404, 409))
def restore(evaluation_id: EvaluationId, body: Judgement, parts: TheParts, principal: Operator) -> EvaluationSummary:
    """Let a result that was taken back count again."""
    return EvaluationSummary.of(
        restore_evaluation(parts.store, evaluation_id, actor=principal.actor, reason=body.reason)
    )
