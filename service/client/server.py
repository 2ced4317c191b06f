"""A Kernelwright server as the command line uses it: the API's JSON as the values that local commands work with."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from db.records import (
    AuditRecord,
    BatchRecord,
    EvaluationRecord,
    JobRecord,
    JobStatus,
    LeaderboardEntry,
    LeaderboardFilters,
    LeaderboardSort,
    Measurements,
    ModelRunHead,
    TaskRecord,
    WorkerStatus,
)
from service.batches.export import WRITTEN_BY
from service.batches.manage import BatchDetails, BatchLine
from service.batches.results import Baseline, BatchJob, groups_of
from service.client.http import SENDING, ApiClient
from service.errors import BadRequest, ServiceError
from service.jobs.activity import Activity, PhaseTime, Waiting
from service.jobs.memory import NOTHING_TOLD, ToldMemory
from service.jobs.query import JobDetails, JobEnd, RoundLine
from service.settings import Settings
from service.transcripts.calls import Entry
from service.transcripts.render import entry_of_json
from service.weights import read_state
from tasks.task import Task

MAX_PAGE = 1000
_TASK_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_TIMES = ("at", "since", "created_at", "started_at", "finished_at", "retracted_at", "evaluated_at")


@dataclass(frozen=True)
class TaskLine:
    """A task of a server without its source; `id` is suite/name."""

    id: str
    suite: str
    name: str
    category: str
    dtype: str
    source_hash: str


class ServerClient(ApiClient):
    """The jobs, batches, tasks, leaderboard and audit log of a server."""

    def submit(self, body: Mapping[str, Any], *, key: str) -> JobRecord:
        """Queue a job; requests with the same key queue one."""
        return _job(self.create("/jobs", body, key=key))

    def submit_evaluation(self, body: Mapping[str, Any], *, key: str) -> JobRecord:
        """Queue the evaluation of a candidate; requests with the same key queue one."""
        return _job(self.create("/evaluations", body, key=key))

    def list_jobs(self, *, everything: bool, limit: int) -> list[JobRecord]:
        """Jobs, newest first; `everything` includes single evaluations."""
        query = {} if everything else {"kind": "optimize"}
        return [_job(job) for job in self.pages("/jobs", "jobs", query, limit=limit)]

    def show_job(self, job_id: int) -> JobDetails:
        """A job with its rounds and its best candidate."""
        found = self.json("GET", f"/jobs/{job_id}")
        job = _job(found["job"])
        best = None
        if job.best_evaluation_id is not None:
            best = _evaluation(self.json("GET", f"/evaluations/{job.best_evaluation_id}"))
        rounds = tuple(round_line(line) for line in found["rounds"])
        end = JobEnd(found["unsettled_usd"], found["summary"], found["unpriced_calls"])
        return JobDetails(
            job,
            rounds,
            best,
            end,
            found.get("on_leaderboard", ""),
            activity=_activity(found.get("activity")),
            told=ToldMemory.from_json(found["memory"]) if found.get("memory") else NOTHING_TOLD,
        )

    def cancel_job(self, job_id: int) -> JobRecord:
        """Cancel a job."""
        return _job(self.json("POST", f"/jobs/{job_id}/cancel"))

    def resume_job(self, job_id: int, limits: Mapping[str, Any] | None = None) -> JobRecord:
        """Queue a job again, with larger limits if some are given."""
        return _job(self.json("POST", f"/jobs/{job_id}/resume", **({"json": dict(limits)} if limits else {})))

    def transcript(self, job_id: int) -> list[Entry]:
        """A job's calls and the events between them."""
        return [
            entry_of_json(each) for each in self.pages(f"/jobs/{job_id}/transcript", "entries", {"messages": "true"})
        ]

    def export_job(self, job_id: int) -> tuple[str, str]:
        """The best candidate's kernel and its report."""
        return self.text(f"/jobs/{job_id}/export"), self.text(f"/jobs/{job_id}/report")

    def evaluation_result(self, job: JobRecord) -> Mapping[str, Any] | None:
        """The result of an evaluation that `submit_evaluation` queued; None if it ended without one."""
        for candidate in self.json("GET", f"/jobs/{job.id}/candidates")["candidates"]:
            if candidate["hash"] == job.options["candidate_hash"] and candidate["evaluation"] is not None:
                found: Mapping[str, Any] = self.json("GET", f"/evaluations/{candidate['evaluation']['id']}")["result"]
                return found
        return None

    def retract(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Take an evaluation back."""
        return self._change_evaluation(evaluation_id, "retract", reason)

    def restore(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Let a retracted evaluation count again."""
        return self._change_evaluation(evaluation_id, "restore", reason)

    def _change_evaluation(self, evaluation_id: str, action: str, reason: str) -> EvaluationRecord:
        path = f"/evaluations/{quote(evaluation_id, safe='')}/{action}"
        return _evaluation({"result": {}, **self.json("POST", path, json={"reason": reason})})

    def leaderboard(
        self, filters: LeaderboardFilters, *, sort: LeaderboardSort, descending: bool | None, limit: int | None
    ) -> tuple[list[LeaderboardEntry], int]:
        """Entries, and how many there are with these filters."""
        query = {name: value for name, value in asdict(filters).items() if value is not None} | {"sort": sort.value}
        if descending is not None:
            query["order"] = "desc" if descending else "asc"
        found: list[LeaderboardEntry] = []
        while True:
            size = MAX_PAGE if limit is None else min(limit - len(found), MAX_PAGE)
            page = self.json("GET", "/leaderboard", params={**query, "limit": size, "offset": len(found)})
            found += [
                LeaderboardEntry(**_fields_of(LeaderboardEntry, entry) | {"tags": tuple(entry["tags"])})
                for entry in page["entries"]
            ]
            total = int(page["total"])
            if not page["entries"] or len(found) >= (total if limit is None else min(limit, total)):
                return found, total

    def audit(self, *, limit: int) -> list[AuditRecord]:
        """The audit log, newest first."""
        return [AuditRecord(**_fields_of(AuditRecord, line)) for line in self.pages("/audit", "lines", {}, limit=limit)]

    def lacks_worker(self, platform: str) -> bool:
        """Whether no worker for this platform is alive; False if the server does not say."""
        with contextlib.suppress(ServiceError):
            devices = self.json("GET", "/devices")["devices"]
            return not any((each["platform"], each["status"]) == (platform, WorkerStatus.ALIVE) for each in devices)
        return False

    def list_tasks(self) -> list[TaskLine]:
        """All tasks of the server's suites, built in or imported."""
        return [
            TaskLine(each["task"], *(each[name] for name in ("suite", "name", "category", "dtype", "source_hash")))
            for each in self.pages("/tasks", "tasks", {})
        ]

    def show_task(self, ref: str) -> Task:
        """A task of the server with its source, by suite/name.

        Raises:
            BadRequest: the server has no such task.
        """
        if _TASK_REF.fullmatch(ref) is None:
            raise BadRequest(f"{ref[:200] or 'task'}: no such task or file; name a .py file, or a task as suite/name")
        found = self.json("GET", f"/tasks/{ref}")
        return Task(**{name: found[name] for name in ("name", "source", "suite", "category", "dtype")})

    def check_task(self, source: str, name: str) -> str | None:
        """What the server finds wrong with an op, which it reads and does not run; None if nothing."""
        found: Mapping[str, Any] = self.json("POST", "/tasks/check", json={"source": source, "name": name})
        return None if found["ok"] else str(found["message"])

    def submit_model(self, body: Mapping[str, Any], *, key: str) -> int:
        """Queue a run over a whole model; its id. Requests with the same key queue one run."""
        return int(self.create("/models", body, key=key)["id"])

    def send_weights(self, path: Path) -> str:
        """Have the server keep the weights in a file for the user's jobs, unless it does; their digest.

        Raises:
            BadRequest: the file is no safetensors file, or the server refuses it.
        """
        digest = read_state(path).digest
        if self.exists(f"/weights/{digest}"):
            return digest
        with path.open("rb") as file:
            headers = {"Content-Type": "application/octet-stream"}
            kept = self.json("PUT", "/weights", content=file, headers=headers, timeout=SENDING)
        return str(kept["digest"])

    def list_models(self, *, limit: int) -> list[ModelRunHead]:
        """Runs over whole models, newest first."""
        return [_model_run(each) for each in self.pages("/models", "models", {}, limit=limit)]

    def show_model(self, run_id: int) -> Mapping[str, Any]:
        """A run over a whole model, as `models show --json` prints it."""
        found: Mapping[str, Any] = self.json("GET", f"/models/{run_id}")
        return found

    def export_model(self, run_id: int) -> bytes:
        """What a run delivers: a .zip archive of its files."""
        return self.content(f"/models/{run_id}/export")

    def start_batch(self, body: Mapping[str, Any], *, key: str) -> int:
        """Queue all jobs of a batch; its id. Requests with the same key queue one batch."""
        return int(self.create("/batches", body, key=key)["id"])

    def list_batches(self, *, limit: int) -> list[BatchLine]:
        """Batches, newest first."""
        return [_batch_line(each) for each in self.pages("/batches", "batches", {}, limit=limit)]

    def show_batch(self, batch_id: int, *, over: Baseline = "eager") -> BatchDetails:
        """A batch with its figures over a baseline, as far as it has come."""
        found = self.json("GET", f"/batches/{batch_id}")
        jobs = tuple(batch_job(row) for row in found["figures"]["jobs"])
        refused = tuple((each["task"], each["reason"]) for each in found["figures"]["refused"])
        return BatchDetails(_batch_line(found["batch"]), over, groups_of(jobs, over), jobs, refused)

    def cancel_batch(self, batch_id: int) -> int:
        """Cancel a batch; the number of jobs that this concerns."""
        return int(self.json("POST", f"/batches/{batch_id}/cancel")["concerned"])

    def resume_batch(self, batch_id: int, *, budget_usd: float | None) -> None:
        """Queue the jobs again that ended before they were done."""
        self.json("POST", f"/batches/{batch_id}/resume", json={"budget_usd": budget_usd})


def open_server(settings: Settings) -> ServerClient:
    """The server that the settings name.

    Raises:
        BadRequest: they name none, or not by an http address.
    """
    parsed = urlsplit(settings.server or "")
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise BadRequest(
            f"--server {(settings.server or '')[:80]}: give an address such as https://kernels.example.com"
        )
    token = None if settings.token is None else settings.token.get_secret_value()
    if token is not None and not (token.isascii() and token.isprintable()):
        raise BadRequest("KERNELWRIGHT_TOKEN=...: holds what no token holds; copy it again")
    return ServerClient(settings.server or "", token)


def _job(values: Mapping[str, Any]) -> JobRecord:
    """A job. The API gives neither the task's source nor the process that runs the job."""
    task = TaskRecord(**_fields_of(TaskRecord, values["task"]) | {"source": ""})
    status = JobStatus(values["status"])
    return JobRecord(**_fields_of(JobRecord, values) | {"task": task, "owner": None, "status": status})


def _activity(values: Mapping[str, Any] | None) -> Activity | None:
    """What a job is doing; an older server does not say."""
    if values is None:
        return None
    waiting = values["waiting"] and Waiting(**_fields_of(Waiting, values["waiting"]))
    if waiting:
        waiting = replace(waiting, held_by=tuple(waiting.held_by))
    phases = tuple(PhaseTime(**_fields_of(PhaseTime, each)) for each in values["phases"])
    return Activity(**_fields_of(Activity, values) | {"phases": phases, "waiting": waiting})


def _model_run(values: Mapping[str, Any]) -> ModelRunHead:
    task = TaskRecord(**_fields_of(TaskRecord, values["task"]) | {"source": ""})
    kept = None if values["kept"] is None else tuple(values["kept"])
    status = JobStatus(values["status"])
    return ModelRunHead(**_fields_of(ModelRunHead, values) | {"task": task, "kept": kept, "status": status})


def _evaluation(values: Mapping[str, Any]) -> EvaluationRecord:
    """An evaluation. The API does not give the candidate's source with it."""
    measurements = Measurements(**_fields_of(Measurements, values))
    given = _fields_of(EvaluationRecord, values)
    return EvaluationRecord(**given | {"measurements": measurements, "source": "", "tags": tuple(values["tags"])})


def _batch_line(values: Mapping[str, Any]) -> BatchLine:
    counts = {status: values["counts"].get(status.value, 0) for status in JobStatus}
    batch = BatchRecord(**_fields_of(BatchRecord, values))
    return BatchLine(batch, {status: count for status, count in counts.items() if count}, values["spent_usd"])


def batch_job(row: Mapping[str, Any]) -> BatchJob:
    """A job of a batch as the JSON form of the batch holds it; an older program's row has fewer columns."""
    found = _fields_of(BatchJob, row) | {"status": JobStatus(row["status"]), "tags": tuple(row["tags"])}
    judged_by = {name: version for name, version in found.get("versions", {}).items() if name != WRITTEN_BY}
    return BatchJob(**found | {"versions": judged_by})


def round_line(values: Mapping[str, Any]) -> RoundLine:
    """A round as the API gives it; an older server gives no variants."""
    found = _fields_of(RoundLine, values)
    variants = tuple(round_line(each) for each in found.get("variants", ()))
    return RoundLine(**found | {"tags": tuple(found.get("tags", ())), "variants": variants})


def _fields_of(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a dataclass's fields; a newer server may send more."""
    found = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    for name in _TIMES:
        if isinstance(found.get(name), str):
            found[name] = datetime.fromisoformat(found[name])
    return found
