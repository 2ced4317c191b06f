"""What keeps the queue true: every job that waits is in line, and what a lost worker had begun is begun again."""

import logging
import time
from datetime import timedelta

from db import jobs, queued, workers
from db.records import WorkerRecord
from db.store import Store
from db.types import utc_now
from service.owner import is_dead
from service.queue import WorkQueue

BEAT_S = 2.0
LOST_AFTER_S = 15.0

_SETTLED = timedelta(seconds=0.3)  # whoever wrote a job has committed it by now
_REMEMBERED = 10_000

log = logging.getLogger(__name__)


class Keeper:
    """One a worker. All of them do the same, so any one that lives is enough."""

    def __init__(self, store: Store, queue: WorkQueue) -> None:
        self._store = store
        self._queue = queue
        self._in_line: dict[tuple[int, int], None] = {}
        self._heard: dict[str, tuple[object, float]] = {}
        self._taken_over: set[str] = set()

    def fill(self) -> int:
        """Put jobs in line that wait and are not; how many."""
        with self._store.read() as session:
            waiting = queued.list_waiting(session, before=utc_now() - _SETTLED)
            missing = [waits for waits in waiting if waits not in self._in_line]
            found = [jobs.get_job(session, job_id) for job_id, _ in missing]
        for job in found:
            self._queue.add_job(job)
            self._in_line[job.id, job.attempt] = None
        for waits in list(self._in_line)[: max(0, len(self._in_line) - _REMEMBERED)]:
            del self._in_line[waits]
        return len(found)

    def take_over(self) -> int:
        """Give up workers that are not heard of any more, and put what they had begun back in line; how many they are.

        A worker whose beats stop changing for long by *our* clock is lost: clocks of hosts need not agree. One of this
        host is lost as soon as its process is gone.
        """
        with self._store.read() as session:
            seen = workers.list_workers(session, seen=True)
        self._heard = {worker.id: self._hearing(worker) for worker in seen}
        lost = [worker for worker in seen if self._is_lost(worker)]
        for worker in lost:
            with self._store.write() as session:
                if not workers.set_lost(session, worker.id):
                    continue
            log.warning("worker lost", extra={"worker": worker.id, "host": worker.owner.host, "pid": worker.owner.pid})
        with self._store.read() as session:
            given_up = workers.list_lost(session)
        for worker_id in given_up:
            if worker_id not in self._taken_over:
                self._take_over(worker_id)
        return len(lost)

    def _take_over(self, worker_id: str) -> None:
        """All that a lost worker had begun. Done again by whoever comes next, should we die in the middle of it."""
        with self._store.write() as session:
            for job_id in queued.list_run_by(session, worker_id):
                if queued.requeue_job(session, job_id, worker_id=worker_id):
                    log.warning("job goes back in line", extra={"job": job_id, "worker": worker_id})
        taken = self._queue.take_over(worker_id)
        if taken:
            log.warning("work of a lost worker taken over", extra={"worker": worker_id, "pieces": taken})
        self._taken_over.add(worker_id)

    def _hearing(self, worker: WorkerRecord) -> tuple[object, float]:
        """The last beat, and when we saw it first."""
        known = self._heard.get(worker.id)
        return (
            known if known is not None and known[0] == worker.heartbeat_at else (worker.heartbeat_at, time.monotonic())
        )

    def _is_lost(self, worker: WorkerRecord) -> bool:
        return is_dead(worker.owner) or time.monotonic() - self._heard[worker.id][1] > LOST_AFTER_S
