"""`batch run` and `batch resume` through a server: queue, follow job by job, and show the figures."""

import uuid
from collections.abc import Mapping

from db.records import OPEN
from service.batches.manage import BatchDetails
from service.batches.spec import BatchSpec
from service.cli.commands.batch import title_of
from service.cli.commands.batch_output import show_outcome, show_refused
from service.cli.output import note
from service.cli.progress import showing
from service.cli.remote.follow_job import DETACHED, refuse_flags, watch
from service.client.batches import asked_batch, resume_batch_there, show_batch_there, start_batch_there
from service.client.server import Remote, open_remote
from service.settings import Settings


def run_batch_there(
    spec: BatchSpec, settings: Settings, *, flags: Mapping[str, object], detach: bool, as_json: bool
) -> int:
    """Have a server run a batch. `flags` are those that only the server can set.

    Raises:
        BadRequest: the spec or a flag is not for a server, or it refuses.
        Unavailable: it does not answer.
    """
    refuse_flags(flags)
    body = asked_batch(spec, settings)
    remote = open_remote(settings)
    try:
        batch_id = start_batch_there(remote, body, key=uuid.uuid4().hex)
        return _go(remote, batch_id, detach=detach, as_json=as_json)
    finally:
        remote.close()


def resume_batch_at(
    batch_id: int,
    settings: Settings,
    *,
    flags: Mapping[str, object],
    budget_usd: float | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Have a server go on with a batch.

    Raises:
        BadRequest: a flag is the server's to set, or it refuses.
        Unavailable: it does not answer.
    """
    refuse_flags(flags)
    remote = open_remote(settings)
    try:
        resume_batch_there(remote, batch_id, budget_usd=budget_usd)
        return _go(remote, batch_id, detach=detach, as_json=as_json)
    finally:
        remote.close()


def _go(remote: Remote, batch_id: int, *, detach: bool, as_json: bool) -> int:
    details = show_batch_there(remote, batch_id)
    show_refused(details)
    at = f" --server {remote.server}"
    if not detach:
        try:
            _watch(remote, details)
        except KeyboardInterrupt:
            note(f"\nbatch {batch_id} goes on there; look at it: kernelwright batch show {batch_id}{at}")
            note(f"stop it: kernelwright batch cancel {batch_id}{at}")
            return DETACHED
        details = show_batch_there(remote, batch_id)
    show_outcome(details, detached=detach, as_json=as_json, at=at)
    return 0


def _watch(remote: Remote, details: BatchDetails) -> None:
    """Show what the jobs do that have not ended, one after the other; workers may do several at once meanwhile."""
    waiting = [cell.job for cell in details.cells if cell.job.status in OPEN]
    several = len(details.groups) > 1
    note(f"batch {details.line.batch.id}: {len(waiting)} of {details.line.jobs} jobs to run at {remote.server}")
    for number, job in enumerate(waiting, 1):
        with showing(title_of(job, number, len(waiting), several=several)) as observe:
            watch(remote, job, observe)
