"""`batch run` and `batch resume` through a server: queue, follow job by job, and show the figures."""

import uuid
from collections.abc import Mapping
from typing import Any

from db.records import OPEN, WEIGHTS
from service.batches.manage import BatchDetails
from service.batches.spec import BatchSpec, with_kept_weights
from service.cli.batch_output import show_outcome, show_refused, title_of
from service.cli.output import note
from service.cli.progress import show_progress
from service.cli.remote.jobs import DETACHED, refuse_flags, watch
from service.client.server import ServerClient, open_server
from service.errors import BadRequest
from service.jobs.memory import MEMORY
from service.settings import Settings
from service.submissions.jobs import OPTIONS

_JOB_OPTIONS = tuple(name for name in OPTIONS if name not in ("platform", "model"))


def run_batch_at_server(
    spec: BatchSpec, settings: Settings, *, server_flags: Mapping[str, object], detach: bool, as_json: bool
) -> int:
    """Have a server run a batch. `server_flags` are given options that only the server may set.

    Raises:
        BadRequest: the spec or an option is not for a server, or the server refuses.
        Unavailable: the server does not answer.
    """
    refuse_flags(server_flags)
    body = _batch_request(spec, settings)
    with open_server(settings) as server:
        if spec.weights:
            body[WEIGHTS] = with_kept_weights(spec, server.send_weights).weights
        batch_id = server.start_batch(body, key=uuid.uuid4().hex)
        return _follow(server, batch_id, detach=detach, as_json=as_json)


def resume_batch_at_server(
    batch_id: int,
    settings: Settings,
    *,
    server_flags: Mapping[str, object],
    budget_usd: float | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Have a server resume a batch.

    Raises:
        BadRequest: an option is only for the server to set, or the server refuses.
        Unavailable: the server does not answer.
    """
    refuse_flags(server_flags)
    with open_server(settings) as server:
        server.resume_batch(batch_id, budget_usd=budget_usd)
        return _follow(server, batch_id, detach=detach, as_json=as_json)


def _batch_request(spec: BatchSpec, settings: Settings) -> dict[str, Any]:
    """The API's request for a batch, with the job options that this machine's environment sets.

    Raises:
        BadRequest: the spec holds what only the server may set, or files of this machine.
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
    job = {name: value for name in _JOB_OPTIONS if (value := getattr(spec.job, name)) is not None}
    for name, value in dict(spec.job).items():
        if value is not None and name not in job:
            raise BadRequest(f"job.{name}: is the server's to set; leave it out with --server")
    for name in (settings.model_fields_set & set(_JOB_OPTIONS)) - {MEMORY}:  # which a batch has only if it says so
        if (value := getattr(settings, name)) is not None:
            job.setdefault(name, value)
    values = spec.model_dump(mode="json", exclude_none=True)
    return {**values, "models": [choice.name for choice in spec.choices], "job": job}


def _follow(server: ServerClient, batch_id: int, *, detach: bool, as_json: bool) -> int:
    details = server.show_batch(batch_id)
    show_refused(details)
    at = f" --server {server.server}"
    if not detach:
        try:
            _watch(server, details)
        except KeyboardInterrupt:
            note(f"\nbatch {batch_id} goes on there; look at it: kernelwright batch show {batch_id}{at}")
            note(f"stop it: kernelwright batch cancel {batch_id}{at}")
            return DETACHED
        details = server.show_batch(batch_id)
    show_outcome(details, detached=detach, as_json=as_json, at=at)
    return 0


def _watch(server: ServerClient, details: BatchDetails) -> None:
    """Show the progress of the open jobs one after the other; workers may run several at the same time."""
    open_jobs = [job for job in details.jobs if job.status in OPEN]
    several = len(details.groups) > 1
    note(f"batch {details.line.batch.id}: {len(open_jobs)} of {details.line.jobs} jobs to run at {server.server}")
    for number, job in enumerate(open_jobs, 1):
        position = f"{number}/{len(open_jobs)}"
        with show_progress(title_of(job.task, job.model, job.sample, position, several)) as observe:
            watch(server, job.job, job.platform, observe)
