"""What a server's JSON stands for, as the values that this machine's store would give."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from db.records import AuditRecord, EvaluationRecord, JobRecord, JobStatus, LeaderboardEntry, Measurements, TaskRecord
from service.jobs.query import RoundLine

_TIMES = ("at", "created_at", "started_at", "finished_at", "retracted_at", "evaluated_at")


def job_of(values: Mapping[str, Any]) -> JobRecord:
    """A job; its task comes without the source, and nobody here can ask after its process."""
    given = fields_of(JobRecord, values)
    task = fields_of(TaskRecord, values["task"]) | {"source": ""}
    return JobRecord(**given | {"task": TaskRecord(**task), "owner": None, "status": JobStatus(values["status"])})


def evaluation_of(values: Mapping[str, Any]) -> EvaluationRecord:
    """An evaluation; its candidate comes without the source."""
    measurements = Measurements(**fields_of(Measurements, values))
    given = fields_of(EvaluationRecord, values)
    return EvaluationRecord(**given | {"measurements": measurements, "source": "", "tags": tuple(values["tags"])})


def round_of(values: Mapping[str, Any]) -> RoundLine:
    """A round of a job."""
    return RoundLine(**fields_of(RoundLine, values))


def entry_of(values: Mapping[str, Any]) -> LeaderboardEntry:
    """A line of the leaderboard."""
    return LeaderboardEntry(**fields_of(LeaderboardEntry, values) | {"tags": tuple(values["tags"])})


def audit_of(values: Mapping[str, Any]) -> AuditRecord:
    """A line of the audit log."""
    return AuditRecord(**fields_of(AuditRecord, values))


def fields_of(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `kind` among the values: a newer server may send more."""
    found = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    for name in _TIMES:
        if isinstance(found.get(name), str):
            found[name] = datetime.fromisoformat(found[name])
    return found
