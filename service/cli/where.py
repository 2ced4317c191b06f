"""Where jobs, leaderboard and audit log are looked up: in this machine's store, or at a server."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from db.audit import AuditRecord
from db.leaderboard import Entry, Filters, Sort, count_entries, leaderboard
from db.records import EvaluationRecord, JobRecord
from db.store import Store
from db.tables import LOCAL_USER
from service import jobs
from service.audit import list_audit, restore_evaluation, retract_evaluation
from service.jobs import JobDetails
from service.remote import open_remote
from service.settings import load_settings
from service.store import open_store


class Place(Protocol):
    """What `jobs`, `leaderboard` and `audit` ask for."""

    def list_jobs(self, *, everything: bool, limit: int) -> list[JobRecord]:
        """Jobs, newest first."""
        ...

    def show_job(self, job_id: int) -> JobDetails:
        """A job with its rounds."""
        ...

    def cancel(self, job_id: int) -> JobRecord:
        """Stop a job."""
        ...

    def retract(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Take an evaluation back."""
        ...

    def restore(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """Let an evaluation count again that was taken back."""
        ...

    def leaderboard(
        self, filters: Filters, *, sort: Sort, descending: bool | None, limit: int | None
    ) -> tuple[list[Entry], int]:
        """Entries, and how many there are with these filters."""
        ...

    def audit(self, *, limit: int) -> list[AuditRecord]:
        """The audit log, newest first."""
        ...


class Here:
    """This machine's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list_jobs(self, *, everything: bool, limit: int) -> list[JobRecord]:
        """As `Place`."""
        return jobs.list_jobs(self._store, everything=everything, limit=limit)

    def show_job(self, job_id: int) -> JobDetails:
        """As `Place`."""
        return jobs.show_job(self._store, job_id)

    def cancel(self, job_id: int) -> JobRecord:
        """As `Place`."""
        return jobs.cancel_job(self._store, job_id)

    def retract(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """As `Place`."""
        return retract_evaluation(self._store, evaluation_id, actor=LOCAL_USER, reason=reason)

    def restore(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """As `Place`."""
        return restore_evaluation(self._store, evaluation_id, actor=LOCAL_USER, reason=reason)

    def leaderboard(
        self, filters: Filters, *, sort: Sort, descending: bool | None, limit: int | None
    ) -> tuple[list[Entry], int]:
        """As `Place`."""
        with self._store.read() as session:
            found = leaderboard(session, filters, sort=sort, descending=descending, limit=limit)
            return found, count_entries(session, filters)

    def audit(self, *, limit: int) -> list[AuditRecord]:
        """As `Place`."""
        return list_audit(self._store, limit=limit)


@contextlib.contextmanager
def where(server: str | None) -> Iterator[Place]:
    """The server that `--server` or the settings name, else this machine's store.

    Raises:
        BadRequest: the server's address is none.
        StoreError: the store cannot be used.
    """
    settings = load_settings(server=server)
    if settings.server is not None:
        remote = open_remote(settings)
        try:
            yield remote
        finally:
            remote.close()
        return
    store = open_store(settings)
    try:
        yield Here(store)
    finally:
        store.close()
