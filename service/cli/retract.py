"""`kernelwright jobs retract|restore`."""

from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import Json, Server

if TYPE_CHECKING:
    from db.records import EvaluationRecord

EvaluationId = Annotated[
    str, typer.Argument(metavar="EVALUATION", help="An evaluation's id, as `leaderboard --json` shows it.")
]
Reason = Annotated[str, typer.Option(help="Why, for the audit log.")]


def retract(evaluation_id: EvaluationId, reason: Reason, server: Server = None, as_json: Json = False) -> None:
    """Take an evaluation back: it leaves the leaderboard, and its job has its next best candidate."""
    from service.cli.where import where

    with where(server) as place:
        record = place.retract(evaluation_id, reason)
        best = place.show_job(record.job_id).job.best_evaluation_id
    _tell(record, best, "retracted", as_json)


def restore(evaluation_id: EvaluationId, reason: Reason, server: Server = None, as_json: Json = False) -> None:
    """Let an evaluation count again that was retracted."""
    from service.cli.where import where

    with where(server) as place:
        record = place.restore(evaluation_id, reason)
        best = place.show_job(record.job_id).job.best_evaluation_id
    _tell(record, best, "restored", as_json)


def _tell(record: "EvaluationRecord", best: str | None, done: str, as_json: bool) -> None:
    from service.cli.output import print_json

    if as_json:
        values = {"evaluation_id": record.id, "job_id": record.job_id, "retracted_at": record.retracted_at}
        print_json({"schema": "kernelwright.retraction/1", **values, "best_evaluation_id": best})
    else:
        print(f"evaluation {record.id} is {done}; best of job {record.job_id}: {best or 'none'}")
