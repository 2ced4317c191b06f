"""`evaluate` through a server: it queues, its workers measure, and the result is shown here."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from db.records import JobRecord, JobStatus
from service.cli.job_output import show_results
from service.cli.output import note
from service.cli.progress import showing
from service.cli.remote.follow_job import DETACHED, asked_task, goes_on, refuse_flags, watch
from service.client.server import Remote, ask_evaluation, open_remote, result_of
from service.errors import Unavailable
from service.evaluate import check_rules, read_candidate
from service.settings import Settings


def evaluate_there(
    op: str,
    candidate: Path,
    settings: Settings,
    *,
    flags: Mapping[str, object],
    asked: Mapping[str, Any],
    repeat: int,
    as_json: bool,
) -> int:
    """Have a server evaluate a candidate, `repeat` times, each by a job of its own and from the beginning.

    `flags` are those that only the server can set, `asked` is what the API takes besides op and candidate.

    Raises:
        BadRequest, TaskError: a flag is the server's to set, a file cannot be used, or the server refuses.
        Unavailable: the server does not answer, or its workers could not evaluate.
    """
    refuse_flags(flags)
    check_rules(() if asked.get("tolerance") is None else (asked["tolerance"],))
    body = {**asked_task(op), **asked, "candidate": read_candidate(candidate)}
    if "platform" in settings.model_fields_set:
        body["platform"] = settings.platform
    remote = open_remote(settings)
    results: list[Mapping[str, Any]] = []
    status, left, platform = 0, 0, settings.platform
    try:
        with showing(f"Evaluating {candidate} for {op} at {remote.server}") as observe:
            while len(results) < repeat:
                job = ask_evaluation(remote, body, key=uuid.uuid4().hex)
                platform = job.platform
                try:
                    watch(remote, job, observe)
                except KeyboardInterrupt:
                    status, left = DETACHED, job.id
                    break
                found = result_of(remote, job)
                if found is None:
                    _refuse_failed(remote, job)
                    status = 1
                    break
                results.append(found)
    finally:
        remote.close()
    if left:
        goes_on(remote, left)
    if status and results:
        note(f"stopped after {len(results)} of {repeat} evaluations")
    elif status != DETACHED and not results:
        note("error: stopped before there was a verdict")
    if results:
        _tell_devices(results)
        show_results(results, repeat, profile=bool(asked.get("profile")), platform=platform, as_json=as_json)
    return status


def _refuse_failed(remote: Remote, job: JobRecord) -> None:
    """Tell a job that failed from one that someone called off.

    Raises:
        Unavailable: it failed.
    """
    ended = remote.show_job(job.id).job
    if ended.status is JobStatus.FAILED:
        at = f"--server {remote.server}"
        raise Unavailable(f"{ended.error or ended.stop_reason} (job {job.id}; kernelwright jobs resume {job.id} {at})")


def _tell_devices(results: list[Mapping[str, Any]]) -> None:
    """Speedups of different devices are different numbers: whoever compares them must know."""
    devices = {str(((one.get("provenance") or {}).get("device") or {}).get("name")) for one in results}
    if len(devices) > 1:
        note(f"measured on different devices, so differences may be theirs: {'; '.join(sorted(devices))}")
