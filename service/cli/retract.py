"""`kernelwright jobs retract|restore`."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from service.cli.options import Json

EvaluationId = Annotated[
    str, typer.Argument(metavar="EVALUATION", help="An evaluation's id, as `leaderboard --json` shows it.")
]
Reason = Annotated[str, typer.Option(help="Why, for the audit log.")]


def retract(evaluation_id: EvaluationId, reason: Reason, as_json: Json = False) -> None:
    """Take an evaluation back: it leaves the leaderboard, and its job has its next best candidate."""
    from service.audit import retract_evaluation

    _change(retract_evaluation, evaluation_id, reason, "retracted", as_json)


def restore(evaluation_id: EvaluationId, reason: Reason, as_json: Json = False) -> None:
    """Let an evaluation count again that was retracted."""
    from service.audit import restore_evaluation

    _change(restore_evaluation, evaluation_id, reason, "restored", as_json)


def _change(use_case: Callable[..., Any], evaluation_id: str, reason: str, done: str, as_json: bool) -> None:
    from db.tables import LOCAL_USER
    from service.cli.output import print_json
    from service.jobs import get_job
    from service.settings import load_settings
    from service.store import open_store

    store = open_store(load_settings())
    try:
        record = use_case(store, evaluation_id, actor=LOCAL_USER, reason=reason)
        best = get_job(store, record.job_id).best_evaluation_id
    finally:
        store.close()
    if as_json:
        values = {"evaluation_id": record.id, "job_id": record.job_id, "retracted_at": record.retracted_at}
        print_json({"schema": "kernelwright.retraction/1", **values, "best_evaluation_id": best})
    else:
        print(f"evaluation {record.id} is {done}; best of job {record.job_id}: {best or 'none'}")
