"""Changes of jobs, batches and devices, read once for many listeners."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from db.evaluations import results
from db.jobs import batches, jobs
from db.records import BatchState, EventRecord, JobState
from db.store import Store

_EVENTS_A_PAGE = 500


@dataclass(frozen=True)
class Changes:
    """The states of jobs and batches by id, and new events of jobs with the ids of their jobs."""

    jobs: Mapping[int, JobState]
    batches: Mapping[int, BatchState]
    events: tuple[tuple[int, EventRecord], ...]


def read_changes(store: Store, *, last_event_ids: Mapping[int, int], batch_ids: Collection[int]) -> Changes:
    """Read the states of jobs and batches and the new events of the jobs.

    Args:
        store: The store.
        last_event_ids: For each job the id of the last known event.
        batch_ids: The batches.

    Returns:
        The states and the new events. There may be more new events than are returned.
    """
    with store.read() as session:
        return Changes(
            jobs.states(session, list(last_event_ids)),
            batches.states(session, list(batch_ids)),
            tuple(results.list_new_events(session, last_event_ids)),
        )


def last_event_id(store: Store, job_id: int) -> int:
    """The id of the last event of a job; 0 if it has none."""
    with store.read() as session:
        return results.last_event_id(session, job_id)


def list_past_events(store: Store, job_id: int, *, after: int, up_to: int) -> list[EventRecord]:
    """The first events of a job with `after < id <= up_to`, in order. The list is empty if there are no more."""
    with store.read() as session:
        return results.list_events(session, job_id, after=after, up_to=up_to, limit=_EVENTS_A_PAGE)


def check_job(store: Store, job_id: int) -> None:
    """Check that a job exists.

    Raises:
        NotInStore: There is no such job.
    """
    with store.read() as session:
        jobs.get_job(session, job_id)


def check_batch(store: Store, batch_id: int) -> None:
    """Check that a batch exists.

    Raises:
        NotInStore: There is no such batch.
    """
    with store.read() as session:
        batches.get_batch(session, batch_id)
