"""The queue, on DBOS: which workers may take a job or an evaluation, and in which order.

The store is the truth: a job with status `queued` waits, whatever the queue holds, and workers put it in line (again)
whenever it is missing there. So the queue's database can be lost, and needs no backup.

Jobs that have begun stay with the kind of device and the sandbox that they began in, for speedups in others are other
numbers. A job that asks for a sandbox is never in line for a worker with another one.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from dbos import DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from db.errors import StoreError
from db.records import JobRecord
from service.jobs.spec import required_sandbox, started_device_class
from service.settings import Settings

RUN_JOB = "run_job"
RUN_EVALUATION = "run_evaluation"

APPLICATION = "kernelwright"
PROTOCOL = "2"
"""Workers of one protocol share a queue, whatever their version; to be raised when what is put in line changes."""

_CLASS = 700_000_000  # of DBOS's 2 ** 31 priorities: room for the tags of one priority
_MAY_END = ("ENQUEUED", "PENDING", "DELAYED")
_ENDED = ["SUCCESS", "ERROR", "CANCELLED"]


def queue_url(settings: Settings) -> str:
    """Where DBOS keeps the queue: a file beside an SQLite store, else a schema of its own in the same database."""
    url = make_url(settings.store_url)
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{str(url.database).removesuffix('.db')}-queue.db"
    return url.render_as_string(hide_password=False)


def jobs_queue(platform: str, sandbox: str | None = None, kind: str | None = None) -> str:
    """Where jobs wait: new ones for any worker of the platform, or for one with the sandbox that they ask for; those
    that have begun for one with their sandbox and kind of device."""
    return "-".join(part for part in ("jobs", platform, sandbox, kind) if part is not None)


def evaluations_queue(platform: str, sandbox: str, kind: str) -> str:
    """Where evaluations wait for a device of a kind, and a sandbox."""
    return f"evaluations-{platform}-{sandbox}-{kind}"


class WorkQueue:
    """Puts work in line and says what became of it. Safe to share between threads.

    Every method raises StoreError where the queue's database does not answer.
    """

    def __init__(self, client: DBOSClient) -> None:
        self._client = client

    def add_job(self, job: JobRecord) -> None:
        """Put a job in line for this attempt; does nothing if it is."""
        kind, sandbox = started_device_class(job), required_sandbox(job)
        options: EnqueueOptions = {
            "workflow_name": RUN_JOB,
            "workflow_id": job_workflow(job.id, job.attempt),
            "queue_name": jobs_queue(job.platform, sandbox, kind),
            "priority": priority_of(job),
        }
        with _failures_named():
            self._client.enqueue(options, job.id, job.attempt)

    def add_evaluation(self, evaluation_id: str, job: JobRecord, kind: str, arguments: dict[str, Any]) -> None:
        """Put an evaluation in line for a device of this kind and the job's sandbox; does nothing if it is, or was."""
        options: EnqueueOptions = {
            "workflow_name": RUN_EVALUATION,
            "workflow_id": evaluation_workflow(evaluation_id, job.attempt),
            "queue_name": evaluations_queue(job.platform, job.sandbox, kind),
            "priority": priority_of(job),
        }
        with _failures_named():
            self._client.enqueue(options, evaluation_id, arguments)

    def failure_of(self, evaluation_id: str, attempt: int) -> str | None:
        """Why no result will come of an evaluation any more, if it is not in the store; None while one may."""
        with _failures_named():
            status = self._client.retrieve_workflow(evaluation_workflow(evaluation_id, attempt)).get_status()
        if status.status in _MAY_END:
            return None
        return str(status.error) if status.error is not None else "it was taken out of the queue"

    def jobs_known(self, waiting: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], bool]:
        """Of these jobs (id, attempt) those that were ever in line: True while they may yet be run from it."""
        names = {job_workflow(*waits): waits for waits in waiting}
        if not names:
            return {}
        with _failures_named():
            found = self._client.list_workflows(workflow_ids=list(names), load_input=False, load_output=False)
        return {names[workflow.workflow_id]: workflow.status in _MAY_END for workflow in found}

    def withdraw_evaluation(self, evaluation_id: str, attempt: int) -> None:
        """Take an evaluation out of line that nobody waits for any more."""
        with _failures_named():
            self._client.cancel_workflow(evaluation_workflow(evaluation_id, attempt))

    def busy_workers(self) -> set[str]:
        """The ids of the workers that have begun something and not ended it, living or not."""
        with _failures_named():
            found = self._client.list_workflows(status="PENDING", load_input=False, load_output=False)
        return {str(workflow.executor_id) for workflow in found}

    def take_over(self, worker_id: str) -> int:
        """Put what a lost worker had begun back in line; how much it was. Whoever comes to it finds what is done."""
        with _failures_named():
            found = self._client.list_workflows(
                status="PENDING", executor_id=worker_id, load_input=False, load_output=False
            )
            for workflow in found:
                self._client.resume_workflow(workflow.workflow_id, queue_name=workflow.queue_name)
        return len(found)

    def forget(self, before: datetime, *, at_most: int = 500) -> int:
        """Remove what ended before this moment, which nobody asks for any more; how much it was."""
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
        """Give back all connections."""
        self._client.destroy()


def open_queue(settings: Settings) -> WorkQueue:
    """The queue that a worker of this protocol has made."""
    return WorkQueue(
        DBOSClient(
            system_database_url=queue_url(settings),
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,  # it would wait for minutes, and everything else with it
        )
    )


def job_workflow(job_id: int, attempt: int) -> str:
    """DBOS's name for an attempt at a job."""
    return f"job-{job_id}-{attempt}"


def evaluation_workflow(evaluation_id: str, attempt: int) -> str:
    """DBOS's name for an evaluation that an attempt at a job asks for."""
    return f"evaluation-{evaluation_id}-{attempt}"


def priority_of(job: JobRecord) -> int:
    """A job's place among those that wait, as DBOS counts: the lowest number first, from 1."""
    return (min(max(job.priority, -1), 1) + 1) * _CLASS + min(max(job.fair_tag, 1), _CLASS - 1)


@contextlib.contextmanager
def _failures_named() -> Iterator[None]:
    """Turn errors of the queue's database into the store's."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(f"queue: {cause}; check that its database is there, writable and not full") from error
