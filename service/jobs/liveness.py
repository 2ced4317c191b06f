"""Whether the process that runs a job is alive: its identity, its heartbeat, and its ownership of the job."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

from sqlalchemy.orm import Session

from db.errors import StoreError
from db.jobs import jobs
from db.records import Owner
from db.store import Store
from sandbox import owner as processes
from service.cancellation import CancelToken
from service.errors import JobLost


def this_process() -> Owner:
    """This process as an owner of jobs."""
    process = processes.this_process()
    return Owner(host=socket.gethostname(), pid=process.pid, started=process.to_label())


def died_on_this_host(owner: Owner) -> bool:
    """Whether the owner was a process of this host since its boot, and has ended. Host names need not be unique."""
    process = processes.ProcessIdentity.from_label(owner.started)
    return process is not None and processes.same_boot(process) and is_dead(owner)


def runs_on_this_host(owner: Owner) -> bool:
    """Whether the owner is certainly a live process of this host, however long it has been silent."""
    process, own = processes.ProcessIdentity.from_label(owner.started), processes.this_process()
    if process is None or owner.host != socket.gethostname():
        return False
    same = (process.boot, process.namespace) == (own.boot, own.namespace)
    return same and not processes.is_gone(process, container_runs=False)


def is_dead(owner: Owner) -> bool:
    """Whether the owner has certainly ended. Processes on other hosts cannot be checked and count as alive."""
    if owner.host != socket.gethostname():
        return False
    process = processes.ProcessIdentity.from_label(owner.started)
    return process is not None and processes.is_gone(process, container_runs=False)


HEARTBEAT_S = 2.0
LOST_AFTER_S = 15.0
"""An owner that is silent for so long is given up."""

_GAP_S = 3 * HEARTBEAT_S

log = logging.getLogger(__name__)


class Heartbeat:
    """Writes a heartbeat every `HEARTBEAT_S` seconds, from `start` until `stop`.

    Args:
        store: where to write it.
        write: writes one heartbeat, and returns whether the owner still counts as alive.
        on_lost: called once when the owner no longer counts as alive; `lost` is set before.
    """

    def __init__(
        self, store: Store, write: Callable[[Session], bool], on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self.lost = threading.Event()
        self._store = store
        self._write = write
        self._on_given_up = on_lost
        self._over = threading.Event()
        self._last = self._since = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._over.set()

    def is_running(self) -> bool:
        """Whether the heartbeat's thread is alive."""
        return self._thread.is_alive()

    def uninterrupted_s(self) -> float:
        """For how many seconds heartbeats have been written without a gap; 0 after a gap.

        A process that cannot write to the store, or was paused, cannot tell whether other processes are silent.
        """
        last, since = self._last, self._since
        return 0.0 if time.monotonic() - last > _GAP_S else time.monotonic() - since

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with self._store.write(announce=False) as session:
                    heard = self._write(session)
                if not heard:
                    self.lost.set()
                    self._on_given_up()
                    return
                now = time.monotonic()
                if now - self._last > _GAP_S:
                    self._since = now
                self._last = now
            except StoreError as error:
                log.error("store: %s", error)
            except Exception:  # whatever it was, a worker that works must be heard of
                log.exception("a heartbeat failed")
            self._over.wait(HEARTBEAT_S)


LOST = "lost"
"""Why work stops whose job was taken for dead by others."""


@contextlib.contextmanager
def job_heartbeat(store: Store, job_id: int, owner: Owner, cancel: CancelToken) -> Iterator[None]:
    """Write heartbeats for a job during the block. Cancel the work once `owner` no longer runs the job."""
    heartbeat = Heartbeat(
        store, lambda session: jobs.record_heartbeat(session, job_id, owner), on_lost=lambda: cancel.request(LOST)
    )
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()


def require_owned(session: Session, job_id: int, owner: Owner) -> None:
    """Check in a transaction that `owner` still runs a job, and lock it so until the transaction ends.

    Raises:
        JobLost: another process has the job now.
    """
    if not jobs.lock_if_owned(session, job_id, owner):
        raise job_lost(job_id)


def job_lost(job_id: int) -> JobLost:
    """The error that another process has a job now."""
    return JobLost(
        f"job {job_id}: others have it now, for this process was not heard of;"
        f" `kernelwright jobs show {job_id}` says how it stands"
    )
