"""`optimize`, `evaluate` and `jobs resume` through a server: submit, follow, and download the results."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.protocols import Event
from db.records import WEIGHTS, JobRecord, JobStatus
from service.cancellation import CancelToken
from service.cli.job_output import finish, show_results
from service.cli.output import note
from service.cli.progress import show_progress
from service.client.server import ServerClient, open_server
from service.errors import BadRequest, Unavailable
from service.evaluate import check_rules, read_candidate
from service.jobs.export import Exported, check_target, report_path, write_whole
from service.jobs.journal import Observer
from service.jobs.query import JobDetails
from service.jobs.run import JobReport
from service.settings import Settings
from service.submissions.jobs import OPTIONS
from tasks.load import load_task, names_file
from tasks.native_candidate import SUFFIXES, python_candidate
from tasks.restrict import restrict, restricted_ref

DETACHED = 130
"""The exit status when Ctrl-C ends the watching of a job, which continues at the server."""


def optimize_at_server(
    op: str,
    settings: Settings,
    *,
    server_flags: Mapping[str, object],
    domain: str | None,
    origin: str | None,
    kernel: str | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Have a server optimize an op, with the settings that were given as options or in this machine's environment.

    Args:
        op: the op.
        settings: the settings.
        server_flags: given options that only the server may set.
        domain: the inputs that a candidate must be right on; None: any.
        origin: the platform whose kernel is translated; None: none is.
        kernel: that kernel; None: the one that the op brings.
        out: where to write the kernel.
        as_json: whether to print JSON.

    Raises:
        BadRequest: a server's option was given, or the server refuses.
        TaskError: the op is not valid.
        Unavailable: the server does not answer.
    """
    refuse_flags(server_flags)
    body: dict[str, Any] = {
        name: getattr(settings, name)
        for name in OPTIONS
        if name in settings.model_fields_set and getattr(settings, name) is not None
    }
    body |= task_request(op, domain)
    asked = {"translate_from": origin, "source_kernel": kernel}
    body |= {name: value for name, value in asked.items() if value is not None}
    if out is not None:
        check_target(out, keep=Path(op) if names_file(op) else None)
    with open_server(settings) as server:
        job = server.submit(body, key=uuid.uuid4().hex)
        return _follow(server, job, f"Optimizing {op} at {server.server}", settings, out, as_json=as_json)


def resume_at_server(job_id: int, limits: Mapping[str, Any], settings: Settings, *, as_json: bool) -> int:
    """Have a server resume a job, with larger limits if some are given, and follow it.

    Raises:
        BadRequest, Unavailable: the server refuses, or does not answer.
    """
    with open_server(settings) as server:
        job = server.resume_job(job_id, limits)
        return _follow(server, job, f"Going on with job {job_id} at {server.server}", settings, None, as_json=as_json)


def evaluate_at_server(
    op: str,
    candidate: Path,
    settings: Settings,
    *,
    server_flags: Mapping[str, object],
    options: Mapping[str, Any],
    repeat: int,
    domain: str | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Have a server evaluate a candidate, `repeat` times, each time by a job of its own.

    Args:
        op: the op.
        candidate: the candidate's file.
        settings: the settings.
        server_flags: given options that only the server may set.
        options: the options of the API's request.
        repeat: the number of evaluations.
        domain: the inputs that the candidate must be right on; None: any.
        state: a safetensors file with weights of the op, which is sent there unless it was before.
        as_json: whether to print JSON.

    Raises:
        BadRequest, TaskError: a server's option was given, a file cannot be used, or the server refuses.
        Unavailable: the server does not answer, or its workers could not evaluate.
    """
    refuse_flags(server_flags)
    check_rules(() if options.get("tolerance") is None else (options["tolerance"],))
    body = {**task_request(op, domain), **options, "candidate": read_candidate(candidate)}
    if "platform" in settings.model_fields_set:
        body["platform"] = settings.platform
    results: list[Mapping[str, Any]] = []
    status, platform = 0, settings.platform
    with open_server(settings) as server:
        if candidate.suffix in SUFFIXES:
            task = load_task(Path(op)) if names_file(op) else server.show_task(op)
            body["candidate"] = python_candidate(task, body["candidate"], candidate)
        if state is not None:
            body[WEIGHTS] = server.send_weights(state)
        detached_from: int | None = None
        with show_progress(f"Evaluating {candidate} for {op} at {server.server}") as observe:
            while len(results) < repeat:
                job = server.submit_evaluation(body, key=uuid.uuid4().hex)
                platform = job.platform
                try:
                    watch(server, job.id, platform, observe)
                except KeyboardInterrupt:
                    status, detached_from = DETACHED, job.id
                    break
                found = server.evaluation_result(job)
                if found is None:
                    _raise_if_failed(server, job.id)
                    status = 1
                    break
                results.append(found)
        if detached_from is not None:
            _note_job_continues(server, detached_from)
    if status and results:
        note(f"stopped after {len(results)} of {repeat} evaluations")
    elif status != DETACHED and not results:
        note("error: stopped before there was a verdict")
    if results:
        _note_devices(results)
        show_results(results, repeat, profile=bool(options.get("profile")), platform=platform, as_json=as_json)
    return status


def refuse_flags(server_flags: Mapping[str, object]) -> None:
    """Refuse options that only the server may set.

    Raises:
        BadRequest: one of them was given.
    """
    for name, value in server_flags.items():
        if value is not None:
            raise BadRequest(f"--{name.replace('_', '-')}: is the server's to set; leave it out with --server")


def watch(server: ServerClient, job_id: int, platform: str, observe: Observer) -> None:
    """Pass on the events of a server's job until it ends, or Ctrl-C interrupts."""
    status = ""
    for name, data in server.follow(job_id):
        if name == "message":
            observe(Event(data["kind"], data["round"], data["data"]))
        elif name == "status" and data["status"] != status:
            status = data["status"]
            if status == JobStatus.QUEUED:
                lack = f"; none for {platform} is there yet" if server.lacks_worker(platform) else ""
                observe(Event("step", 0, {"text": f"job {job_id}: waiting for a worker{lack}"}))
            elif status == JobStatus.RUNNING:
                observe(Event("step", 0, {"text": f"job {job_id}: at work"}))


def download_export(server: ServerClient, job_id: int, settings: Settings, out: Path | None) -> Exported:
    """Write a job's kernel and report to `out`, or else to a folder for this server and job."""
    host = urlsplit(server.server).netloc.replace(":", "_")
    target = out or settings.data_dir / "servers" / host / str(job_id) / "best.py"
    if out is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target)
    kernel, report = server.export_job(job_id)
    exported = Exported(target, report_path(target))
    write_whole(exported.kernel, kernel)
    write_whole(exported.report, report)
    return exported


def task_request(op: str, domain: str | None) -> dict[str, str]:
    """The part of a request that names the op on a domain: a file of this machine by its source, others by suite/name.

    Raises:
        TaskError: the file cannot be read or holds no valid op.
    """
    if not names_file(op):
        return {"task": restricted_ref(op, domain)}
    task = restrict(load_task(Path(op)), domain)
    return {"source": task.source, "name": task.name}


def _follow(
    server: ServerClient, job: JobRecord, title: str, settings: Settings, out: Path | None, *, as_json: bool
) -> int:
    try:
        with show_progress(title) as observe:
            watch(server, job.id, job.platform, observe)
    except KeyboardInterrupt:
        _note_job_continues(server, job.id)
        return DETACHED
    details = server.show_job(job.id)
    return finish(_report(server, details, settings, out), CancelToken(), as_json=as_json)


def _report(server: ServerClient, details: JobDetails, settings: Settings, out: Path | None) -> JobReport:
    job = details.job
    return JobReport(
        job,
        details.best,
        None if details.best is None else download_export(server, job.id, settings, out),
        job.stop_reason or job.status.value,
        job.error or "",
        details.end.unsettled_usd,
        details.end.unpriced_calls,
        details.end.summary,
    )


def _note_job_continues(server: ServerClient, job_id: int) -> None:
    at = f"--server {server.server}"
    note(f"\njob {job_id} goes on there; look at it: kernelwright jobs show {job_id} {at}")
    note(f"stop it: kernelwright jobs cancel {job_id} {at}")


def _raise_if_failed(server: ServerClient, job_id: int) -> None:
    """Tell a failed evaluation from a cancelled one.

    Raises:
        Unavailable: it failed.
    """
    job = server.show_job(job_id).job
    if job.status is JobStatus.FAILED:
        at = f"--server {server.server}"
        raise Unavailable(f"{job.error or job.stop_reason} (job {job_id}; kernelwright jobs resume {job_id} {at})")


def _note_devices(results: list[Mapping[str, Any]]) -> None:
    """Say if results come from several devices, since their speedups are not comparable."""
    devices = {str(((one.get("provenance") or {}).get("device") or {}).get("name")) for one in results}
    if len(devices) > 1:
        note(f"measured on different devices, so differences may be theirs: {'; '.join(sorted(devices))}")
