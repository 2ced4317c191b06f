"""Evaluations that a server has its workers do: ask for one, and what it found out."""

from collections.abc import Mapping
from typing import Any

from db.records import JobRecord
from service.remote import Remote
from service.remote_json import job_of


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
