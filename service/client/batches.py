"""Batches of a server, as the values that this machine's store would give.

Figures are made here, of what the server says of each job: by the same rules as of the batches of this machine.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from db.records import BatchRecord, BestEvaluation, JobRecord, JobStatus, TaskHead
from service.batches.manage import BatchDetails, BatchLine
from service.batches.results import Baseline, Cell, groups_of
from service.batches.spec import BatchSpec
from service.client.decode import fields_of
from service.client.server import Remote
from service.errors import BadRequest
from service.settings import Settings
from service.submissions.jobs import OPTIONS

_OF_JOBS = tuple(name for name in OPTIONS if name not in ("platform", "model"))


def asked_batch(spec: BatchSpec, settings: Settings) -> dict[str, Any]:
    """The request for a batch; what this machine's environment sets for jobs is asked for, too.

    Raises:
        BadRequest: the spec holds what only the server may set, or what is on this machine alone.
    """
    for ref in spec.tasks:
        if ref.endswith(".py") or ref.count("/") > 1:
            raise BadRequest(
                f"tasks: {ref[:200]}: is a file of this machine; with --server name suites or tasks of the server's"
            )
    for choice in spec.choices:
        for name in choice.model_fields_set - {"name"}:
            where = "in [job], for all" if name in OPTIONS else "not at all, it is the server's to set"
            raise BadRequest(f"models: {name} of {choice.name[:80]}: with --server give it {where}")
    job = {name: value for name in _OF_JOBS if (value := getattr(spec.job, name)) is not None}
    for name, value in dict(spec.job).items():
        if value is not None and name not in job:
            raise BadRequest(f"job.{name}: is the server's to set; leave it out with --server")
    for name in settings.model_fields_set & set(_OF_JOBS):
        if (value := getattr(settings, name)) is not None:
            job.setdefault(name, value)
    whole = spec.model_dump(mode="json", exclude_none=True)
    return {**whole, "models": [choice.name for choice in spec.choices], "job": job}


def start_batch_there(remote: Remote, body: Mapping[str, Any], *, key: str) -> int:
    """Queue all jobs of a batch; its id. With the same key, once."""
    return int(remote.make("/batches", body, key=key)["id"])


def resume_batch_there(remote: Remote, batch_id: int, *, budget_usd: float | None) -> None:
    """Put the jobs that ended before they were done back in line."""
    remote.json("POST", f"/batches/{batch_id}/resume", json={"budget_usd": budget_usd})


def cancel_batch_there(remote: Remote, batch_id: int) -> int:
    """Stop a batch; how many jobs that concerns."""
    return int(remote.json("POST", f"/batches/{batch_id}/cancel")["concerned"])


def list_batches_there(remote: Remote, *, limit: int) -> list[BatchLine]:
    """Batches, newest first."""
    return [_line(each) for each in remote.pages("/batches", "batches", {}, limit=limit)]


def show_batch_there(remote: Remote, batch_id: int, *, over: Baseline = "eager") -> BatchDetails:
    """A batch with its figures over a baseline, as far as it has come."""
    whole = remote.json("GET", f"/batches/{batch_id}")
    line = _line(whole["batch"])
    cells = tuple(_cell(row, line.batch) for row in whole["figures"]["jobs"])
    refused = tuple((each["task"], each["reason"]) for each in whole["figures"]["refused"])
    return BatchDetails(line, over, groups_of(cells, over), cells, refused)


def _line(values: Mapping[str, Any]) -> BatchLine:
    counts = {status: values["counts"].get(status.value, 0) for status in JobStatus}
    batch = BatchRecord(**fields_of(BatchRecord, values))
    return BatchLine(batch, {status: count for status, count in counts.items() if count}, values["spent_usd"])


def _cell(row: Mapping[str, Any], batch: BatchRecord) -> Cell:
    """A job of a batch as `service.batches.export.row_of` has written it."""
    best = None
    if row["evaluation"] is not None:
        given = {field.name: row[field.name] for field in fields(BestEvaluation) if field.name in row}
        own = {"id": row["evaluation"], "tags": tuple(row["tags"]), "retracted": row["reason"] == "retracted"}
        best = BestEvaluation(**{**given, **own})
    return Cell(
        job=_job(row, batch),
        outcome=row["outcome"],
        compiled=row["compiled"],
        best=best,
        counts=row["counts"],
        reason=row["reason"],
    )


def _job(row: Mapping[str, Any], batch: BatchRecord) -> JobRecord:
    suite, _, name = row["task"].partition("/")
    task = TaskHead(0, suite, name, row["source_hash"], row["category"], row["dtype"])
    own = {
        "id": row["job"],
        "task": task,
        "kind": "optimize",
        "options": {},
        "status": JobStatus(row["status"]),
        "error": None,
        "cancel_requested": False,
        "owner": None,
        "rounds_done": row["rounds"],
        "best_evaluation_id": row["evaluation"],
        "user": batch.user,
        "priority": 0,
        "fair_tag": 0,
        "attempt": 0,
        "worker_id": None,
        "batch_id": batch.id,
    }
    return JobRecord(**{**fields_of(JobRecord, row), **own})
