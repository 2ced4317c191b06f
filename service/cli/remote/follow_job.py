"""`optimize` and `jobs resume` through a server: submit, follow, and bring the kernel home."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.protocols import Event
from db.records import JobRecord, JobStatus
from service.cancellation import CancelToken
from service.cli.job_output import finish
from service.cli.output import note
from service.cli.progress import showing
from service.client.server import Remote, open_remote
from service.errors import BadRequest
from service.jobs.export import Exported, check_target, report_path, write_whole
from service.jobs.journal import Observer
from service.jobs.query import JobDetails
from service.jobs.run import JobReport
from service.settings import Settings
from service.submissions.jobs import OPTIONS
from tasks.load import load_task, names_file

DETACHED = 130


def optimize_there(op: str, settings: Settings, *, flags: Mapping[str, object], out: Path | None, as_json: bool) -> int:
    """Have a server optimize an op; what options or this machine's environment set is asked for.

    `flags` are those that only the server can set.

    Raises:
        BadRequest: a flag is the server's to set, or the server refuses.
        TaskError: the op is not valid.
        Unavailable: the server does not answer.
    """
    refuse_flags(flags)
    body: dict[str, Any] = {
        name: getattr(settings, name)
        for name in OPTIONS
        if name in settings.model_fields_set and getattr(settings, name) is not None
    }
    body |= asked_task(op)
    if out is not None:
        check_target(out, keep=Path(op) if names_file(op) else None)
    remote = open_remote(settings)
    try:
        job = remote.submit(body, key=uuid.uuid4().hex)
        return _follow(remote, job, f"Optimizing {op} at {remote.server}", settings, out, as_json=as_json)
    finally:
        remote.close()


def resume_there(job_id: int, settings: Settings, *, as_json: bool) -> int:
    """Have a server go on with a job, and follow it.

    Raises:
        BadRequest, Unavailable: the server refuses, or does not answer.
    """
    remote = open_remote(settings)
    try:
        job = remote.resume(job_id)
        title = f"Going on with job {job_id} at {remote.server}"
        return _follow(remote, job, title, settings, None, as_json=as_json)
    finally:
        remote.close()


def asked_task(op: str) -> dict[str, str]:
    """What of a request says which op is meant: a file of this machine by its source, others by suite/name.

    Raises:
        TaskError: the file cannot be read or holds no valid op.
    """
    if not names_file(op):
        return {"task": op}
    task = load_task(Path(op))
    return {"source": task.source, "name": task.name}


def refuse_flags(flags: Mapping[str, object]) -> None:
    """Refuse what only the server can set.

    Raises:
        BadRequest: one of them was given.
    """
    for name, value in flags.items():
        if value is not None:
            raise BadRequest(f"--{name.replace('_', '-')}: is the server's to set; leave it out with --server")


def watch(remote: Remote, job: JobRecord, observe: Observer) -> None:
    """Show what happens in a server's job until it ends, or Ctrl-C leaves it alone."""
    shown = ""
    for name, data in remote.follow(job.id):
        if name == "message":
            observe(Event(data["kind"], data["round"], data["data"]))
        elif name == "status" and data["status"] != shown:
            shown = data["status"]
            if shown == JobStatus.QUEUED:
                lack = f"; none for {job.platform} is there yet" if remote.lacks_worker(job.platform) else ""
                observe(Event("step", 0, {"text": f"job {job.id}: waiting for a worker{lack}"}))
            elif shown == JobStatus.RUNNING:
                observe(Event("step", 0, {"text": f"job {job.id}: at work"}))


def goes_on(remote: Remote, job_id: int) -> None:
    """Say how to get back to a server's job that nobody follows any more."""
    at = f"--server {remote.server}"
    note(f"\njob {job_id} goes on there; look at it: kernelwright jobs show {job_id} {at}")
    note(f"stop it: kernelwright jobs cancel {job_id} {at}")


def _follow(remote: Remote, job: JobRecord, title: str, settings: Settings, out: Path | None, *, as_json: bool) -> int:
    try:
        with showing(title) as observe:
            watch(remote, job, observe)
    except KeyboardInterrupt:
        goes_on(remote, job.id)
        return DETACHED
    details = remote.show_job(job.id)
    return finish(_report(remote, details, settings, out), CancelToken(), as_json=as_json)


def _report(remote: Remote, details: JobDetails, settings: Settings, out: Path | None) -> JobReport:
    job = details.job
    return JobReport(
        job,
        details.best,
        None if details.best is None else bring_home(remote, job.id, settings, out),
        job.stop_reason or job.status.value,
        job.error or "",
        details.end.unsettled_usd,
        details.end.unpriced_calls,
        details.end.summary,
    )


def bring_home(remote: Remote, job_id: int, settings: Settings, out: Path | None) -> Exported:
    """Write the kernel and its report here: to `out`, else into a folder of this server's and job's."""
    host = urlsplit(remote.server).netloc.replace(":", "_")
    target = out or settings.data_dir / "servers" / host / str(job_id) / "best.py"
    if out is None:
        target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target)
    kernel, report = remote.export(job_id)
    exported = Exported(target, report_path(target))
    write_whole(exported.kernel, kernel)
    write_whole(exported.report, report)
    return exported
