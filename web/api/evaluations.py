"""Evaluations: all that was found out, and taking a result off the leaderboard."""

from fastapi import APIRouter

from db import results
from web.api.answers import problems
from web.api.fields import EvaluationId
from web.api.schemas_results import EvaluationSummary, EvaluationWhole
from web.identity import Viewer
from web.parts import TheParts

router = APIRouter(prefix="/evaluations", tags=["evaluations"])


@router.get("/{evaluation_id}", responses=problems(404))
def show(evaluation_id: EvaluationId, parts: TheParts, _: Viewer) -> EvaluationWhole:
    """Show an evaluation with all that the evaluator found out."""
    with parts.store.read() as session:
        found = results.get_evaluation(session, evaluation_id)
    return EvaluationWhole(**EvaluationSummary.of(found).model_dump(), result=dict(found.result))
