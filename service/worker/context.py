"""What one worker process works with: its device, its sandbox, the store and the queue."""

from dataclasses import dataclass

from db.changes import Changes
from db.records import Owner
from db.store import Store
from evaluator.platforms import Device, Platform
from sandbox.base import Sandbox
from service.cancellation import CancelGroup
from service.jobs.spec import MeasurementTarget
from service.settings import Settings
from service.weights import WeightsReader
from service.worker.queue import WorkQueue, evaluations_queue, jobs_queue, models_queue

JOBS_AT_ONCE = 4
"""Jobs that a worker runs at the same time, of all its queues. Mostly they wait for models and for the device."""

MODELS_AT_ONCE = 2
"""Jobs over whole models that a worker runs at the same time. Most of the time they wait for their regions' jobs."""


@dataclass(frozen=True)
class QueueGroup:
    """Queues of which a worker runs `at_once` items at the same time. It takes from the first of them first.

    Of jobs, those that have begun come first: they wait for few workers, new ones for any.
    """

    names: tuple[str, ...]
    at_once: int


@dataclass(frozen=True)
class WorkerContext:
    """The parts of one worker.

    `running` cancels its jobs and evaluations, `changes` are those of store and queue, and `weights` reads the weights
    that jobs name.
    """

    worker_id: str
    owner: Owner
    platform: Platform
    device: Device
    sandbox: Sandbox
    settings: Settings
    store: Store
    queue: WorkQueue
    running: CancelGroup
    changes: Changes
    weights: WeightsReader

    @property
    def target(self) -> MeasurementTarget:
        """Where this worker measures."""
        return MeasurementTarget(self.platform.name, self.device.describe(), self.sandbox.name)

    @property
    def device_class(self) -> str:
        """The class of this worker's device."""
        return self.target.device_class

    @property
    def queues(self) -> tuple[QueueGroup, ...]:
        """The queues that this worker takes from."""
        name, sandbox = self.platform.name, self.sandbox.name
        kind = self.device_class
        places: tuple[tuple[str | None, str | None], ...] = (
            (sandbox, kind),
            (None, kind),
            (sandbox, None),
            (None, None),
        )
        return (
            QueueGroup(tuple(jobs_queue(name, *place) for place in places), JOBS_AT_ONCE),
            QueueGroup(tuple(models_queue(name, *place) for place in places), MODELS_AT_ONCE),
            QueueGroup((evaluations_queue(name, sandbox, kind),), 1),
        )
