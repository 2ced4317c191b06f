"""A Kernelwright server as the command line uses it: the same things as on this machine, over HTTP."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from db.records import (
    AuditRecord,
    EvaluationRecord,
    JobRecord,
    LeaderboardEntry,
    LeaderboardFilters,
    LeaderboardSort,
    WorkerStatus,
)
from service.client.decode import audit_of, entry_of, evaluation_of, job_of, round_of
from service.client.http import RemoteHttp
from service.errors import BadRequest, ServiceError
from service.jobs.query import JobDetails, JobEnd
from service.settings import Settings
from tasks.task import Task

MAX_PAGE = 1000


class Remote(RemoteHttp):
    """The jobs, workers, leaderboard and audit log of a server."""

    def submit(self, body: Mapping[str, Any], *, key: str) -> JobRecord:
        """Queue a job; with the same key, once."""
        return job_of(self.make("/jobs", body, key=key))

    def show_job(self, job_id: int) -> JobDetails:
        """A job with its rounds."""
        whole = self.json("GET", f"/jobs/{job_id}")
        job = job_of(whole["job"])
        best = None
        if job.best_evaluation_id is not None:
            best = evaluation_of(self.json("GET", f"/evaluations/{job.best_evaluation_id}"))
        rounds = tuple(round_of(line) for line in whole["rounds"])
        return JobDetails(job, rounds, best, JobEnd(whole["unsettled_usd"], whole["summary"], whole["unpriced_calls"]))

    def list_jobs(self, *, everything: bool, limit: int) -> list[JobRecord]:
        """Jobs, newest first."""
        query = {} if everything else {"kind": "optimize"}
        return [job_of(job) for job in self.pages("/jobs", "jobs", query, limit=limit)]

    def cancel(self, job_id: int) -> JobRecord:
        """Stop a job."""
        return job_of(self.json("POST", f"/jobs/{job_id}/cancel"))

    def resume(self, job_id: int) -> JobRecord:
        """Put a job back in line."""
        return job_of(self.json("POST", f"/jobs/{job_id}/resume"))

    def export(self, job_id: int) -> tuple[str, str]:
        """The best candidate's kernel and its report."""
        return self.text(f"/jobs/{job_id}/export"), self.text(f"/jobs/{job_id}/report")

    def retract(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Take an evaluation back."""
        return self._judge(evaluation_id, "retract", reason)

    def restore(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Let an evaluation count again that was taken back."""
        return self._judge(evaluation_id, "restore", reason)

    def _judge(self, evaluation_id: str, what: str, reason: str) -> EvaluationRecord:
        place = f"/evaluations/{quote(evaluation_id, safe='')}/{what}"
        return evaluation_of({"result": {}, **self.json("POST", place, json={"reason": reason})})

    def leaderboard(
        self, filters: LeaderboardFilters, *, sort: LeaderboardSort, descending: bool | None, limit: int | None
    ) -> tuple[list[LeaderboardEntry], int]:
        """Entries, and how many there are with these filters."""
        wanted = {name: value for name, value in asdict(filters).items() if value is not None} | {"sort": sort.value}
        if descending is not None:
            wanted["order"] = "desc" if descending else "asc"
        found: list[LeaderboardEntry] = []
        while True:
            size = MAX_PAGE if limit is None else min(limit - len(found), MAX_PAGE)
            page = self.json("GET", "/leaderboard", params={**wanted, "limit": size, "offset": len(found)})
            found += [entry_of(entry) for entry in page["entries"]]
            total = int(page["total"])
            if not page["entries"] or len(found) >= (total if limit is None else min(limit, total)):
                return found, total

    def audit(self, *, limit: int) -> list[AuditRecord]:
        """The audit log, newest first."""
        return [audit_of(line) for line in self.pages("/audit", "lines", {}, limit=limit)]

    def lacks_worker(self, platform: str) -> bool:
        """Whether nobody is there to work for this platform now; False where the server does not say."""
        with contextlib.suppress(ServiceError):
            there = self.json("GET", "/devices")["devices"]
            return not any((each["platform"], each["status"]) == (platform, WorkerStatus.ALIVE) for each in there)
        return False


def open_remote(settings: Settings) -> Remote:
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
    return Remote(settings.server or "", token)


def ask_evaluation(remote: Remote, body: Mapping[str, Any], *, key: str) -> JobRecord:
    """The job that evaluates a candidate; with the same key, one."""
    return job_of(remote.make("/evaluations", body, key=key))


def result_of(remote: Remote, job: JobRecord) -> Mapping[str, Any] | None:
    """All that was found out about the candidate of such a job; None where it ended without."""
    for candidate in remote.json("GET", f"/jobs/{job.id}/candidates")["candidates"]:
        if candidate["hash"] == job.options["candidate_hash"] and candidate["evaluation"] is not None:
            found: Mapping[str, Any] = remote.json("GET", f"/evaluations/{candidate['evaluation']['id']}")["result"]
            return found
    return None


_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class TaskLine:
    """A task of a server without its source. `id` is suite/name, as of a `Task`."""

    id: str
    suite: str
    name: str
    category: str
    dtype: str
    source_hash: str


def list_tasks_there(remote: Remote) -> list[TaskLine]:
    """All tasks of the server's suites, built in or imported."""
    return [_line(each) for each in remote.pages("/tasks", "tasks", {})]


def show_task_there(remote: Remote, ref: str) -> Task:
    """A task of the server's with its source, by suite/name.

    Raises:
        BadRequest: the server knows none of this name.
    """
    if _REF.fullmatch(ref) is None:
        raise BadRequest(f"{ref[:200] or 'task'}: no such task or file; name a .py file, or a task as suite/name")
    found = remote.json("GET", f"/tasks/{ref}")
    return Task(
        name=found["name"],
        source=found["source"],
        suite=found["suite"],
        category=found["category"],
        dtype=found["dtype"],
    )


def check_source_there(remote: Remote, source: str, name: str) -> str | None:
    """What is wrong with an op as far as reading it tells the server; None where nothing is."""
    found: Mapping[str, Any] = remote.json("POST", "/tasks/check", json={"source": source, "name": name})
    return None if found["ok"] else str(found["message"])


def _line(found: Mapping[str, Any]) -> TaskLine:
    return TaskLine(
        id=found["task"],
        suite=found["suite"],
        name=found["name"],
        category=found["category"],
        dtype=found["dtype"],
        source_hash=found["source_hash"],
    )
