"""The view of devices: the workers, the jobs that they run, and the jobs that wait for them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from db.jobs import job_queue, jobs, workers
from db.records import WorkerRecord, WorkerStatus
from db.store import Store
from db.types import utc_now
from evaluator.platforms import PLATFORM_NAMES
from service.jobs.liveness import LOST_AFTER_S

_STATES = ("alive", "stopping", "lost", "stopped")


@dataclass(frozen=True)
class WorkerLine:
    """A worker.

    Attributes:
        worker: the worker.
        state: alive, stopping, lost or stopped.
        silent_s: seconds since its last heartbeat.
        job_id: the job that it runs.
    """

    worker: WorkerRecord
    state: str
    silent_s: float
    job_id: int | None


@dataclass(frozen=True)
class PlatformLine:
    """A platform with the number of workers alive, and of jobs that wait for one."""

    name: str
    alive: int
    waiting: int


@dataclass(frozen=True)
class DevicesView:
    """All workers and all platforms."""

    platforms: tuple[PlatformLine, ...]
    workers: tuple[WorkerLine, ...]


@dataclass(frozen=True)
class DevicesState:
    """The part of the view that listeners are told of: the state and job of each worker, and the jobs that wait."""

    workers: tuple[tuple[str, str, int | None], ...]
    platforms: tuple[PlatformLine, ...]

    @property
    def ended(self) -> bool:
        """False, because another worker may start at any time."""
        return False


def devices_state(store: Store) -> DevicesState:
    """The present state of workers and platforms."""
    view = devices_view(store)
    return DevicesState(tuple((line.worker.id, line.state, line.job_id) for line in view.workers), view.platforms)


def devices_view(store: Store, *, now: datetime | None = None) -> DevicesView:
    """All workers and platforms at the time `now`."""
    moment = now or utc_now()
    with store.read() as session:
        found = workers.list_workers(session)
        running = jobs.running_by_worker(session)
        waiting = job_queue.count_queued(session)
    lines = tuple(_line(worker, moment, running.get(worker.id)) for worker in found)
    names = sorted({*PLATFORM_NAMES, *waiting, *(line.worker.platform for line in lines if line.state == "alive")})
    lines = tuple(sorted(lines, key=lambda line: _STATES.index(line.state)))
    platforms = tuple(
        PlatformLine(name, sum(_is_alive_on(line, name) for line in lines), waiting.get(name, 0)) for name in names
    )
    return DevicesView(platforms, lines)


def live_workers(store: Store, *, limit: int) -> list[WorkerRecord]:
    """The newest workers that have neither stopped nor been declared lost."""
    with store.read() as session:
        return workers.list_workers(session, live=True, limit=limit)


def _line(worker: WorkerRecord, now: datetime, job_id: int | None) -> WorkerLine:
    silent = max(now - worker.heartbeat_at, timedelta(0)).total_seconds()
    state = "alive"
    if worker.status is WorkerStatus.STOPPED:
        state = "stopped"
    elif worker.status is WorkerStatus.LOST or silent > LOST_AFTER_S:
        state = "lost"
    elif worker.status is WorkerStatus.STOPPING:
        state = "stopping"
    return WorkerLine(worker, state, silent, None if state == "stopped" else job_id)


def _is_alive_on(line: WorkerLine, platform: str) -> bool:
    return line.state == "alive" and line.worker.platform == platform
