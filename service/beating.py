"""The sign of life of a job that a command runs, so that other hosts find out when this one has vanished."""

import contextlib
from collections.abc import Iterator

from sqlalchemy.orm import Session

from db import jobs
from db.records import Owner
from db.store import Store
from service.errors import JobLost
from service.stopping import Stop
from service.worker.heart import Heart

LOST = "lost"
"""Why work stops whose job was taken for dead by others."""


@contextlib.contextmanager
def beating(store: Store, job_id: int, owner: Owner, stop: Stop) -> Iterator[None]:
    """Beat for a job that `owner` runs, for the length of the block; once it is not his, `stop` is requested."""
    heart = Heart(store, lambda session: jobs.beat(session, job_id, owner), on_given_up=lambda: stop.request(LOST))
    heart.start()
    try:
        yield
    finally:
        heart.stop()


def require_run_by(session: Session, job_id: int, owner: Owner) -> None:
    """Find out, in a transaction that writes to a job, whether it is still `owner`'s, and keep it so until the end.

    Raises:
        JobLost: others have it now.
    """
    if not jobs.is_run_by(session, job_id, owner):
        raise job_lost(job_id)


def job_lost(job_id: int) -> JobLost:
    """Says that a job is others' now."""
    return JobLost(
        f"job {job_id}: others have it now, for this process was not heard of;"
        f" `kernelwright jobs show {job_id}` says how it stands"
    )
