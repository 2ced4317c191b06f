"""Where jobs, leaderboard and audit log are looked up: in this machine's store, or at a server."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from db.records import (
    AuditRecord,
    EvaluationRecord,
    JobRecord,
    LeaderboardEntry,
    LeaderboardFilters,
    LeaderboardSort,
)
from db.store import Store
from db.tables import LOCAL_USER
from service.audit import list_audit, restore_evaluation, retract_evaluation
from service.batches.manage import BatchDetails, BatchLine, cancel_batch, list_batches, show_batch
from service.batches.results import Baseline
from service.client.batches import cancel_batch_there, list_batches_there, show_batch_there
from service.client.server import Remote, open_remote
from service.database import open_store
from service.jobs import query
from service.jobs.query import JobDetails
from service.settings import Settings, load_settings
from service.views.leaderboard import leaderboard_page


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
        self, filters: LeaderboardFilters, *, sort: LeaderboardSort, descending: bool | None, limit: int | None
    ) -> tuple[list[LeaderboardEntry], int]:
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
        return query.list_jobs(self._store, kind=None if everything else "optimize", limit=limit)

    def show_job(self, job_id: int) -> JobDetails:
        """As `Place`."""
        return query.show_job(self._store, job_id)

    def cancel(self, job_id: int) -> JobRecord:
        """As `Place`."""
        return query.cancel_job(self._store, job_id)

    def retract(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """As `Place`."""
        return retract_evaluation(self._store, evaluation_id, actor=LOCAL_USER, reason=reason)

    def restore(self, evaluation_id: str, reason: str) -> EvaluationRecord:
        """As `Place`."""
        return restore_evaluation(self._store, evaluation_id, actor=LOCAL_USER, reason=reason)

    def leaderboard(
        self, filters: LeaderboardFilters, *, sort: LeaderboardSort, descending: bool | None, limit: int | None
    ) -> tuple[list[LeaderboardEntry], int]:
        """As `Place`."""
        return leaderboard_page(self._store, filters, sort=sort, descending=descending, limit=limit)

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


class Batches(Protocol):
    """What `batch show|list|cancel|compare` ask for."""

    def show(self, batch_id: int, over: Baseline) -> BatchDetails:
        """A batch with its figures over a baseline."""
        ...

    def newest(self, limit: int) -> list[BatchLine]:
        """Batches, newest first."""
        ...

    def cancel(self, batch_id: int) -> int:
        """Stop a batch; how many jobs that concerns."""
        ...


class BatchesHere:
    """This machine's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def show(self, batch_id: int, over: Baseline) -> BatchDetails:
        """As `Batches`."""
        return show_batch(self._store, batch_id, over=over)

    def newest(self, limit: int) -> list[BatchLine]:
        """As `Batches`."""
        return list_batches(self._store, limit=limit)

    def cancel(self, batch_id: int) -> int:
        """As `Batches`."""
        return cancel_batch(self._store, batch_id)


class BatchesThere:
    """A server."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def show(self, batch_id: int, over: Baseline) -> BatchDetails:
        """As `Batches`."""
        return show_batch_there(self._remote, batch_id, over=over)

    def newest(self, limit: int) -> list[BatchLine]:
        """As `Batches`."""
        return list_batches_there(self._remote, limit=limit)

    def cancel(self, batch_id: int) -> int:
        """As `Batches`."""
        return cancel_batch_there(self._remote, batch_id)


@contextlib.contextmanager
def batches_at(server: str | None) -> Iterator[Batches]:
    """The server that `--server` or the settings name, else this machine's store.

    Raises:
        BadRequest: the server's address is none.
        StoreError: the store cannot be used.
    """
    settings = load_settings(server=server)
    if settings.server is None:
        with opened_store(settings) as store:
            yield BatchesHere(store)
        return
    remote = open_remote(settings)
    try:
        yield BatchesThere(remote)
    finally:
        remote.close()


@contextlib.contextmanager
def opened_store(settings: Settings) -> Iterator[Store]:
    """This machine's store.

    Raises:
        StoreError: it cannot be used.
    """
    store = open_store(settings)
    try:
        yield store
    finally:
        store.close()
