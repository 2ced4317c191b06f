"""The queue, on DBOS: which workers may take a job or an evaluation, and in which order.

The store is authoritative: a job with status `queued` waits, whatever the queue holds, and workers enqueue it whenever
it is missing. The queue's database can be lost and needs no backup.

Jobs that have begun stay with the device class and the sandbox that they began in, because speedups in others are not
comparable. A job that requires a sandbox is never queued for a worker with another one.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from dbos import DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from db.errors import StoreError
from db.records import JobRecord
from db.store import Store
from service.jobs.spec import required_sandbox, started_device_class
from service.settings import Settings

RUN_JOB = "run_job"
RUN_EVALUATION = "run_evaluation"

APPLICATION = "kernelwright"
PROTOCOL = "6"
"""Workers with the same protocol share a queue. Raise it when the form of queued items changes."""

_CLASS = 700_000_000  # of DBOS's 2 ** 31 priorities: room for the tags of one priority
_MAY_END = ("ENQUEUED", "PENDING", "DELAYED")
_LISTED = 100
_ENDED = ["SUCCESS", "ERROR", "CANCELLED"]


def queue_url(settings: Settings) -> str:
    """The queue's database: a file beside an SQLite store, or else a schema of its own in the store's database."""
    url = make_url(settings.store_url)
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{str(url.database).removesuffix('.db')}-queue.db"
    return url.render_as_string(hide_password=False)


def jobs_queue(platform: str, sandbox: str | None = None, kind: str | None = None) -> str:
    """The name of a queue of jobs.

    New jobs wait for any worker of the platform, or for one with the sandbox that they require.
    Jobs that have begun wait for a worker with their sandbox and device class.
    """
    return "-".join(part for part in ("jobs", platform, sandbox, kind) if part is not None)


def models_queue(platform: str, sandbox: str | None = None, kind: str | None = None) -> str:
    """The name of a queue of jobs over whole models, as `jobs_queue`.

    They have queues of their own: such a job waits for those of its regions, which must find room at a worker.
    """
    return f"models-{jobs_queue(platform, sandbox, kind)}"


def evaluations_queue(platform: str, sandbox: str, kind: str) -> str:
    """The name of the queue of evaluations for a device class and a sandbox."""
    return f"evaluations-{platform}-{sandbox}-{kind}"


class WorkQueue:
    """The queue of jobs and evaluations. Safe to share between threads.

    Every method raises StoreError if the queue's database does not answer.

    Args:
        client: the queue's database.
        announce: called when there is something new to take.
    """

    def __init__(self, client: DBOSClient, announce: Callable[[], None]) -> None:
        self._client = client
        self._announce = announce

    def add_job(self, job: JobRecord) -> None:
        """Enqueue a job for its current attempt, unless it is in the queue."""
        kind, sandbox = started_device_class(job), required_sandbox(job)
        options: EnqueueOptions = {
            "workflow_name": RUN_JOB,
            "workflow_id": job_workflow(job.id, job.attempt),
            "queue_name": (models_queue if job.kind == "model" else jobs_queue)(job.platform, sandbox, kind),
            "priority": priority_of(job),
        }
        with _failures_named():
            self._client.enqueue(options, job.id, job.attempt)
        self._announce()

    def add_evaluation(
        self, evaluation_id: str, job: JobRecord, kind: str, arguments: dict[str, Any], *, sandbox: str
    ) -> None:
        """Enqueue an evaluation for a device class and a sandbox, unless it is or was in the queue."""
        options: EnqueueOptions = {
            "workflow_name": RUN_EVALUATION,
            "workflow_id": evaluation_workflow(evaluation_id, job.attempt),
            "queue_name": evaluations_queue(job.platform, sandbox, kind),
            "priority": priority_of(job),
        }
        with _failures_named():
            self._client.enqueue(options, evaluation_id, arguments)
        self._announce()

    def failure_of(self, evaluation_id: str, attempt: int) -> str | None:
        """Why an evaluation that is not in the store will have no result; None while it may still have one."""
        with _failures_named():
            status = self._client.retrieve_workflow(evaluation_workflow(evaluation_id, attempt)).get_status()
        if status.status in _MAY_END:
            return None
        return str(status.error) if status.error is not None else "it was taken out of the queue"

    def jobs_known(self, waiting: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], bool]:
        """Which of these jobs (id, attempt) were ever in the queue; True for those that may still run from it."""
        names = {job_workflow(*waits): waits for waits in waiting}
        if not names:
            return {}
        with _failures_named():
            found = self._client.list_workflows(workflow_ids=list(names), load_input=False, load_output=False)
        return {names[workflow.workflow_id]: workflow.status in _MAY_END for workflow in found}

    def withdraw_evaluation(self, evaluation_id: str, attempt: int) -> None:
        """Remove an evaluation from the queue that no job waits for."""
        with _failures_named():
            self._client.cancel_workflow(evaluation_workflow(evaluation_id, attempt))

    def holding(self, names: Sequence[str]) -> set[str]:
        """Which of these queues may hold something to take."""
        with _failures_named():
            found = self._client.list_workflows(
                status="ENQUEUED", queue_name=list(names), limit=_LISTED, load_input=False, load_output=False
            )
        return set(names) if len(found) == _LISTED else {str(workflow.queue_name) for workflow in found}

    def busy_workers(self) -> set[str]:
        """The ids of workers that have begun work and not finished it, alive or not."""
        with _failures_named():
            found = self._client.list_workflows(status="PENDING", load_input=False, load_output=False)
        return {str(workflow.executor_id) for workflow in found}

    def begun_by(self, worker_id: str) -> Counter[str]:
        """How many items of each queue this worker has taken and not finished."""
        with _failures_named():
            found = self._client.list_workflows(
                status="PENDING", executor_id=worker_id, load_input=False, load_output=False
            )
        return Counter(str(workflow.queue_name) for workflow in found)

    def take_over(self, worker_id: str) -> int:
        """Enqueue the unfinished work of a lost worker again; the number of items."""
        with _failures_named():
            found = self._client.list_workflows(
                status="PENDING", executor_id=worker_id, load_input=False, load_output=False
            )
            for workflow in found:
                self._client.resume_workflow(workflow.workflow_id, queue_name=workflow.queue_name)
        if found:
            self._announce()
        return len(found)

    def forget(self, before: datetime, *, at_most: int = 500) -> int:
        """Remove items that ended before a moment; the number of items."""
        with _failures_named():
            found = self._client.list_workflows(
                status=_ENDED,
                completed_before=before.isoformat(),
                limit=at_most,
                load_input=False,
                load_output=False,
            )
            self._client.delete_workflows([workflow.workflow_id for workflow in found])
        return len(found)

    def close(self) -> None:
        """Close all connections."""
        self._client.destroy()


def open_queue(settings: Settings, store: Store) -> WorkQueue:
    """The queue of workers with this program's protocol, beside its store."""
    return WorkQueue(
        DBOSClient(
            system_database_url=queue_url(settings),
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,  # it would wait for minutes, and everything else with it
        ),
        store.announce,
    )


def job_workflow(job_id: int, attempt: int) -> str:
    """The DBOS id of an attempt at a job."""
    return f"job-{job_id}-{attempt}"


def evaluation_workflow(evaluation_id: str, attempt: int) -> str:
    """The DBOS id of an evaluation that an attempt at a job requests."""
    return f"evaluation-{evaluation_id}-{attempt}"


def priority_of(job: JobRecord) -> int:
    """A job's priority in DBOS, which takes the lowest number first, from 1."""
    return (min(max(job.priority, -1), 1) + 1) * _CLASS + min(max(job.fair_tag, 1), _CLASS - 1)


@contextlib.contextmanager
def _failures_named() -> Iterator[None]:
    """Raise errors of the queue's database as StoreError."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(f"queue: {cause}; check that its database is there, writable and not full") from error
