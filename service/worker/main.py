"""The worker process: runs jobs and evaluations of the queue, and queues again what is unfinished when it stops."""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from dbos._queue import queue_worker_thread

from db.changes import Changes
from db.errors import StoreError
from db.jobs import job_queue, workers
from db.store import Store
from db.types import utc_now
from sandbox.base import SandboxUnavailable
from service.cancellation import CancelGroup, Cancelled, CancelToken
from service.errors import Unavailable
from service.evaluation_context import open_platform, open_sandbox
from service.jobs.liveness import HEARTBEAT_S, Heartbeat, this_process
from service.jobs.run import INTERRUPTED
from service.settings import Settings
from service.version import program_version
from service.weights import WeightsReader
from service.worker.context import WorkerContext
from service.worker.evaluate_task import run_evaluation
from service.worker.optimize_task import run_job
from service.worker.queue import APPLICATION, PROTOCOL, RUN_EVALUATION, RUN_JOB, open_queue, queue_url
from service.worker.reconcile import Reconciler
from service.worker.remeasure import Remeasurer

TICK_S = 0.5
"""How soon a worker notices that it is to stop. Store and queue are asked only when they have changed."""

END_S = 6.0
"""How long a stopping worker waits for its jobs and evaluations to stop."""

_FREED_S = (0.2, 2.0)  # after the end of a function, when DBOS may count its item as ended
_LOOK_S = 4.0  # at the latest; after a change of the store sooner
_LOOK_AGAIN_S = 2.0
_PASS_S = 20.0  # between passes over the queue that nothing asked for
_SWEEP_S = 60.0
_KEPT_IN_QUEUE = timedelta(days=2)

log = logging.getLogger(__name__)


class GivenUp(Unavailable):
    """Other workers took this one for dead and have taken over its work. This process must end."""


def run_worker(
    settings: Settings, store: Store, cancel: CancelToken, *, on_ready: Callable[[WorkerContext], None]
) -> None:
    """Work for the device that the settings name until cancellation is requested.

    Args:
        settings: the platform, device and sandbox to work with.
        store: the store.
        cancel: stops the worker.
        on_ready: called once the worker takes work.

    Raises:
        BadRequest: the platform is unknown.
        SandboxUnavailable: there is no sandbox to work in, or it has failed; work that was begun is queued again.
        GivenUp: this process was paused or cut off for so long that other workers have taken over.
    """
    platform = open_platform(settings.platform, settings.device)
    with open_sandbox(settings, own_code_only=False) as sandbox:
        queue = open_queue(settings, store)
        changes = Changes(store.engine)
        worker = WorkerContext(
            worker_id=str(uuid.uuid4()),
            owner=this_process(),
            platform=platform,
            device=platform.device(settings.device),
            sandbox=sandbox,
            settings=settings,
            store=store,
            queue=queue,
            running=CancelGroup(),
            changes=changes,
            weights=WeightsReader(store),
        )
        faults: list[BaseException] = []
        heartbeat = Heartbeat(store, lambda session: workers.record_heartbeat(session, worker.worker_id))
        _register(worker)
        try:
            heartbeat.start()
            dequeue = _launch(worker, faults)
            on_ready(worker)
            _work(worker, heartbeat, cancel, faults, dequeue)
        finally:
            _end(worker)
            heartbeat.stop()
            changes.close()
        if faults:
            raise faults[0]


def _launch(worker: WorkerContext, faults: list[BaseException]) -> Callable[[], None]:
    """Start DBOS. Its threads that poll the queues are ended at once.

    Returns:
        A function that takes what can be taken from the queues, once. DBOS runs it in threads of its own.
    """
    config: DBOSConfig = {
        "name": APPLICATION,
        "system_database_url": queue_url(worker.settings),
        "executor_id": worker.worker_id,
        "application_version": PROTOCOL,
        "serializer": DBOSPortableJSONSerializer(),
        "log_level": "WARNING",
        "db_engine_kwargs": {"hide_parameters": True},  # its errors are logged, too
        "use_listen_notify": False,
    }
    dbos = DBOS(config=config)

    def job(job_id: int, attempt: int) -> None:
        with _held(worker, faults):
            run_job(worker, job_id, attempt)

    def evaluation(evaluation_id: str, arguments: dict[str, Any]) -> None:
        with _held(worker, faults):
            run_evaluation(worker, evaluation_id, arguments)

    DBOS.workflow(name=RUN_JOB)(job)
    DBOS.workflow(name=RUN_EVALUATION)(evaluation)
    DBOS.listen_queues([])
    DBOS.launch()
    for event in (*dbos.background_thread_stop_events, dbos._background_jobs_stop_event):
        event.set()  # the latter looks for delays and deadlines, which no item here has
    queues = {
        name: DBOS.register_queue(name, worker_concurrency=group.at_once, on_conflict="always_update")
        for group in worker.queues
        for name in group.names
    }
    for queue in queues.values():
        queue.database_backed_queue = False  # it would read its limit, which is for one queue alone, before each pass

    def dequeue() -> None:
        holding = worker.queue.holding(list(queues))
        for group in worker.queues:
            for name in (name for name in group.names if name in holding):
                begun = worker.queue.begun_by(worker.worker_id)
                room = group.at_once - sum(begun[each] for each in group.names)
                if room <= 0:
                    break
                # DBOS takes what this limit leaves beside the items of this queue that it knows to run.
                queues[name]._worker_concurrency = dbos._active_workflows_set.count_for_queue(name) + room
                queue_worker_thread(_OnePass(), dbos, queues[name])

    return dequeue


class _OnePass(threading.Event):
    """Makes DBOS's loop over a queue take what there is and end: the loop waits on it before each pass."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = False

    def wait(self, timeout: float | None = None) -> bool:  # the loop's own interval
        """Let the first pass begin at once, and end the loop before the second."""
        begun, self._begun = self._begun, True
        return begun


@contextlib.contextmanager
def _held(worker: WorkerContext, faults: list[BaseException]) -> Iterator[None]:
    """Block DBOS's thread after a failure until this process ends, so that DBOS does not record the work as done."""
    try:
        yield
    except (Cancelled, SandboxUnavailable, StoreError) as error:
        if not isinstance(error, Cancelled):
            faults.append(error)
        worker.running.request(INTERRUPTED)
        threading.Event().wait()
    finally:
        for after_s in _FREED_S:  # there is room for another item
            timer = threading.Timer(after_s, worker.changes.report)
            timer.daemon = True
            timer.start()


def _register(worker: WorkerContext) -> None:
    with worker.store.write() as session:
        workers.add_worker(
            session,
            worker.worker_id,
            worker.owner,
            platform=worker.platform.name,
            slot=worker.settings.device,
            device=worker.device.name,
            kind=worker.device_class,
            sandbox=worker.sandbox.name,
            version=program_version(),
        )


def _work(
    worker: WorkerContext,
    heartbeat: Heartbeat,
    cancel: CancelToken,
    faults: list[BaseException],
    dequeue: Callable[[], None],
) -> None:
    """Reconcile the queue with the store, and take work from it, until the worker stops.

    Both are asked when they have changed, and from time to time. Wait for a store that does not answer.
    """
    reconciler = Reconciler(worker.store, worker.queue, heartbeat.uninterrupted_s)
    remeasurer = Remeasurer(worker)
    next_look = next_sweep = next_pass = 0.0
    with worker.changes.subscribe() as changed:
        while not cancel.requested() and not faults:
            if heartbeat.lost.is_set() or not heartbeat.is_running() or (worker.running.requested() and not faults):
                raise GivenUp(f"worker {worker.worker_id} was not heard of and given up; start it again")
            remeasurer.tick()
            told, now = changed.wait(TICK_S), time.monotonic()
            if not told and now < next_look:
                continue
            changed.clear()
            try:
                if now >= next_look - (_LOOK_S - _LOOK_AGAIN_S if told else 0.0):
                    next_look = now + _LOOK_S
                    if reconciler.take_over():
                        next_sweep = now  # a lost worker of this host may have left a container
                if now >= next_sweep:
                    _sweep(worker)
                    next_sweep = now + _SWEEP_S
                    worker.queue.forget(utc_now() - _KEPT_IN_QUEUE)
                if told or now >= next_pass:
                    next_pass = now + _PASS_S
                    reconciler.enqueue_waiting()
                    dequeue()
            except StoreError as error:
                log.error("store: %s", error)
                cancel.event.wait(HEARTBEAT_S)
                changed.set()


def _sweep(worker: WorkerContext) -> None:
    """Remove containers of workers of this host that have died."""
    if worker.sandbox.name != "docker":
        return
    from sandbox.docker.sandbox import sweep_orphans

    try:
        removed = sweep_orphans()
    except SandboxUnavailable as error:
        log.error("sweep: %s", error)
        return
    if removed:
        log.warning("containers of dead processes removed", extra={"containers": removed})


def _end(worker: WorkerContext) -> None:
    """Stop all work and queue it again. The process must exit after this: DBOS's threads may still be blocked."""
    worker.running.request(INTERRUPTED)
    _tell(worker, stopped=False)
    deadline = time.monotonic() + END_S
    while worker.running.count() and time.monotonic() < deadline:
        time.sleep(0.05)
    DBOS.destroy()  # takes nothing more from the queue
    _tell(worker, stopped=True)
    try:
        worker.queue.take_over(worker.worker_id)
    except StoreError as error:
        log.error("store: %s; others will take over what is left", error)
    worker.queue.close()


def _tell(worker: WorkerContext, *, stopped: bool) -> None:
    """Say in the store that this worker is about to end, or has; what it could not end in time is another's then."""
    try:
        with worker.store.write() as session:
            if not stopped:
                workers.set_stopping(session, worker.worker_id)
                return
            for job_id in job_queue.list_jobs_of_worker(session, worker.worker_id):
                job_queue.requeue_job(session, job_id, worker_id=worker.worker_id)
            workers.set_stopped(session, worker.worker_id)
    except StoreError as error:
        log.error("store: %s; others will find out by the missing heartbeats", error)
