"""Reconciles the queue with the store: every waiting job is in the queue, and the work of lost workers begins again.

A reconciler compares what is there with what should be, and keeps no state that matters. If one dies half-way, or two
do the same at once, nothing is lost.
"""

import logging
import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from db.evaluations import results
from db.jobs import batches, job_queue, jobs, workers
from db.records import WorkerRecord
from db.store import Store
from service.jobs.liveness import HEARTBEAT_S, LOST_AFTER_S, died_on_this_host
from service.jobs.query import WORKER_LOST, mark_dead_jobs
from service.worker.queue import WorkQueue

CHUNK = 25
"""Jobs that are enqueued in one pass, those with the highest priority first: each costs a disk write."""

MAX_LOSSES = 4
"""A job that has lost more workers since it was requested is not run again: it may be what kills them."""

_LOOKED_UP = 500
_VERIFIED_EVERY_S = 30.0

log = logging.getLogger(__name__)


class Reconciler:
    """Every worker has one. All do the same, so one live reconciler is enough.

    Args:
        store: the store.
        queue: the queue.
        uninterrupted_s: returns for how long this worker has been able to read other workers' heartbeats.
    """

    def __init__(self, store: Store, queue: WorkQueue, uninterrupted_s: Callable[[], float]) -> None:
        self._store = store
        self._queue = queue
        self._uninterrupted_s = uninterrupted_s
        self._enqueued: set[tuple[int, int]] = set()
        self._newest = 0
        self._next_full_scan = self._next_queue_check = 0.0
        self._last_heartbeats: dict[str, tuple[object, float]] = {}

    def enqueue_waiting(self) -> int:
        """Enqueue waiting jobs that are not in the queue; the number of them.

        New jobs are looked for on each call, all others only from time to time.
        """
        now = time.monotonic()
        verifies = now >= self._next_queue_check
        if verifies:
            self._enqueued.clear()
            self._next_queue_check = now + _VERIFIED_EVERY_S
        whole = verifies or now >= self._next_full_scan
        with self._store.read() as session:
            waiting = job_queue.list_queued(session, after=0 if whole else self._newest)
        if whole:
            self._enqueued &= set(waiting)
        missing = [waits for waits in waiting if waits not in self._enqueued]
        known = self._queue.jobs_known(missing[:_LOOKED_UP])
        self._enqueued.update(waits for waits, runs in known.items() if runs)
        unknown = [waits for waits in missing[:_LOOKED_UP] if waits not in self._enqueued]
        if len(missing) <= _LOOKED_UP and len(unknown) <= CHUNK:
            self._newest = max((job_id for job_id, _ in waiting), default=self._newest)
            self._next_full_scan = now + HEARTBEAT_S if whole else self._next_full_scan
        return sum(self._enqueue(waits, was_known=waits in known) for waits in unknown[:CHUNK])

    def take_over(self) -> bool:
        """Give up silent workers and queue the work of workers that are gone. Also mark jobs whose commands died.

        A worker is lost if its heartbeat does not change for `LOST_AFTER_S` by this host's clock, since clocks of hosts
        may differ. A worker of this host is lost as soon as its process is gone.

        Returns:
            Whether workers are gone that were there on the last call.
        """
        if self._uninterrupted_s() > LOST_AFTER_S:  # else this worker itself may have been cut off
            mark_dead_jobs(self._store)
        busy = self._queue.busy_workers()  # read before the workers: a busy worker is registered by then
        with self._store.read() as session:
            seen = workers.list_workers(session, live=True)
            stranded = job_queue.list_orphaned(session)
        before = set(self._last_heartbeats)
        self._last_heartbeats = {worker.id: self._first_seen(worker) for worker in seen}
        lost = [worker for worker in seen if self._is_lost(worker)]
        for worker in lost:
            self._give_up(worker)
        if lost:
            with self._store.read() as session:
                stranded = job_queue.list_orphaned(session)
        for job_id, worker_id in stranded:
            with self._store.write() as session:
                back = job_queue.requeue_job(session, job_id, worker_id=worker_id)
                if back and _note_loss(session, job_id) > MAX_LOSSES:
                    job_queue.fail_queued(session, job_id, f"{MAX_LOSSES + 1} workers died of it or with it; resume it")
                    results.add_event(session, job_id, "ended", 0, {"reason": "error", "detail": "its workers died"})
                    batches.cancel_regions(session, job_id)
            if back:
                log.warning("job goes back into the queue", extra={"job": job_id, "worker": worker_id})
        for worker_id in busy - set(self._last_heartbeats):
            with self._store.write() as session:  # one reconciler at a time, or work would be enqueued twice
                taken = 0 if workers.lock_if_live(session, worker_id) else self._queue.take_over(worker_id)
            if taken:
                log.warning("work of a lost worker taken over", extra={"worker": worker_id, "pieces": taken})
        return bool(before - set(self._last_heartbeats))

    def _enqueue(self, waits: tuple[int, int], *, was_known: bool) -> int:
        """Enqueue one job; the number of jobs enqueued now. `was_known` says that the queue held it before."""
        job_id, attempt = waits
        if was_known:  # the attempt did no work: the worker lost the store, or the attempt was removed from the queue
            with self._store.write() as session:
                job_queue.increment_attempt(session, job_id, attempt)
            return 0
        with self._store.read() as session:
            job = jobs.get_job(session, job_id)
        try:
            self._queue.add_job(job)
        except (TypeError, ValueError) as error:  # a row that another program wrote; other jobs must not wait for it
            log.error("job cannot be queued: %s", error, extra={"job": job_id})
            with self._store.write() as session:
                job_queue.fail_queued(session, job_id, f"cannot be queued: {error}")
            return 0
        self._enqueued.add(waits)
        return 1

    def _give_up(self, worker: WorkerRecord) -> None:
        with self._store.write() as session:
            lost = workers.set_lost(session, worker.id)
        del self._last_heartbeats[worker.id]
        if lost:
            about = {"worker": worker.id, "host": worker.owner.host, "pid": worker.owner.pid}
            log.warning("worker lost", extra=about)

    def _first_seen(self, worker: WorkerRecord) -> tuple[object, float]:
        """The worker's last heartbeat, and when this process first saw it."""
        known = self._last_heartbeats.get(worker.id)
        if known is not None and known[0] == worker.heartbeat_at:
            return known
        return worker.heartbeat_at, time.monotonic()

    def _is_lost(self, worker: WorkerRecord) -> bool:
        silent_s = min(time.monotonic() - self._last_heartbeats[worker.id][1], self._uninterrupted_s())
        return died_on_this_host(worker.owner) or silent_s > LOST_AFTER_S


def _note_loss(session: Session, job_id: int) -> int:
    """Record that a job lost its worker; how often that happened since the job last ended."""
    results.add_event(session, job_id, WORKER_LOST, 0, {})
    losses = 0
    for event in results.list_events(session, job_id, kinds=("ended", WORKER_LOST)):
        losses = 0 if event.kind == "ended" else losses + (event.kind == WORKER_LOST)
    return losses
