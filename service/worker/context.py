"""What a worker works with: its device, its sandbox, the store and the queue."""

from dataclasses import dataclass

from db.records import Owner
from db.store import Store
from evaluator.platforms import Device, Platform
from sandbox.base import Sandbox
from service.cancellation import CancelGroup
from service.jobs.device_class import MeasurementTarget
from service.settings import Settings
from service.worker.queue import WorkQueue, evaluations_queue, jobs_queue

JOBS_AT_ONCE = 4
"""Jobs that a worker runs side by side: they wait for models and for their turn on the device most of the time."""


@dataclass(frozen=True)
class WorkerContext:
    """One worker's own. `running` are its jobs and evaluations."""

    worker_id: str
    owner: Owner
    platform: Platform
    device: Device
    sandbox: Sandbox
    settings: Settings
    store: Store
    queue: WorkQueue
    running: CancelGroup

    @property
    def target(self) -> MeasurementTarget:
        """Where this worker measures."""
        return MeasurementTarget(self.platform.name, self.device.describe(), self.sandbox.name)

    @property
    def kind(self) -> str:
        """Which devices give comparable figures, in a few letters."""
        return self.target.kind

    @property
    def queues(self) -> dict[str, int]:
        """The queues that this worker takes from, with how much of each at once."""
        name, sandbox = self.platform.name, self.sandbox.name
        return {
            jobs_queue(name): JOBS_AT_ONCE,
            jobs_queue(name, sandbox): JOBS_AT_ONCE,
            jobs_queue(name, sandbox, self.kind): JOBS_AT_ONCE,
            jobs_queue(name, None, self.kind): JOBS_AT_ONCE,
            evaluations_queue(name, sandbox, self.kind): 1,
        }
