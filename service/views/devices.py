"""The view of devices: the workers, the jobs that they run, and the jobs that wait for them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from db.evaluations import results
from db.jobs import job_queue, jobs, workers
from db.records import Noise, WorkerRecord, WorkerStatus
from db.store import Store
from db.types import utc_now
from evaluator.platforms import PLATFORM_NAMES
from service.jobs.liveness import LOST_AFTER_S
from tasks.outcomes import NOISY

_MOST_DEVICES = 20
_STATES = ("alive", "stopping", "lost", "stopped")


HISTORY = 60
"""The newest evaluations whose noise is shown for a device."""


@dataclass(frozen=True)
class NoiseHistory:
    """The load of other programs during the newest evaluations on a device, oldest first.

    Attributes:
        values: at least one.
        noisy: how many of them were too noisy to be ranked.
        last_at: when the newest was made.
    """

    platform: str
    device: str
    values: tuple[float, ...]
    noisy: int
    last_at: datetime

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class WorkerLine:
    """A worker.

    Attributes:
        worker: the worker.
        state: alive, stopping, lost or stopped.
        silent_s: seconds since its last heartbeat.
        job_ids: the jobs that it runs.
    """

    worker: WorkerRecord
    state: str
    silent_s: float
    job_ids: tuple[int, ...]


@dataclass(frozen=True)
class PlatformLine:
    """A platform with the number of workers alive, and of jobs that wait for one."""

    name: str
    alive: int
    waiting: int


@dataclass(frozen=True)
class DevicesView:
    """All workers, all platforms, and how quiet the devices of live workers were."""

    platforms: tuple[PlatformLine, ...]
    workers: tuple[WorkerLine, ...]
    noise: tuple[NoiseHistory, ...] = ()


@dataclass(frozen=True)
class DevicesState:
    """The part of the view that listeners are told of: the state and jobs of each worker, and the jobs that wait."""

    workers: tuple[tuple[str, str, tuple[int, ...]], ...]
    platforms: tuple[PlatformLine, ...]

    @property
    def ended(self) -> bool:
        """False, because another worker may start at any time."""
        return False


def devices_state(store: Store) -> DevicesState:
    """The present state of workers and platforms."""
    view = devices_view(store)
    return DevicesState(tuple((line.worker.id, line.state, line.job_ids) for line in view.workers), view.platforms)


def devices_view(store: Store, *, now: datetime | None = None) -> DevicesView:
    """All workers and platforms at the time `now`."""
    moment = now or utc_now()
    with store.read() as session:
        found = workers.list_workers(session)
        running = jobs.running_by_worker(session)
        waiting = job_queue.count_queued(session)
        devices = sorted({(each.platform, each.device) for each in found})[:_MOST_DEVICES]
        noise = [_history(*device, results.list_noise(session, *device, limit=HISTORY)) for device in devices]
    lines = tuple(_line(worker, moment, running.get(worker.id, ())) for worker in found)
    names = sorted({*PLATFORM_NAMES, *waiting, *(line.worker.platform for line in lines if line.state == "alive")})
    lines = tuple(sorted(lines, key=lambda line: _STATES.index(line.state)))
    platforms = tuple(
        PlatformLine(name, sum(_is_alive_on(line, name) for line in lines), waiting.get(name, 0)) for name in names
    )
    return DevicesView(platforms, lines, tuple(each for each in noise if each is not None))


def _history(platform: str, device: str, found: Sequence[Noise]) -> NoiseHistory | None:
    if not found:
        return None
    values = tuple(each.load for each in found)
    return NoiseHistory(platform, device, values, sum(NOISY in each.tags for each in found), found[-1].created_at)


def live_workers(store: Store, *, limit: int) -> list[WorkerRecord]:
    """The newest workers that have neither stopped nor been declared lost."""
    with store.read() as session:
        return workers.list_workers(session, live=True, limit=limit)


def _line(worker: WorkerRecord, now: datetime, job_ids: tuple[int, ...]) -> WorkerLine:
    silent = max(now - worker.heartbeat_at, timedelta(0)).total_seconds()
    state = "alive"
    if worker.status is WorkerStatus.STOPPED:
        state = "stopped"
    elif worker.status is WorkerStatus.LOST or silent > LOST_AFTER_S:
        state = "lost"
    elif worker.status is WorkerStatus.STOPPING:
        state = "stopping"
    return WorkerLine(worker, state, silent, () if state == "stopped" else job_ids)


def _is_alive_on(line: WorkerLine, platform: str) -> bool:
    return line.state == "alive" and line.worker.platform == platform
