"""Where batches are looked up and stopped: in this machine's store, or at a server."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from db.store import Store
from service.batch_results import Baseline
from service.batches import BatchDetails, BatchLine, cancel_batch, list_batches, show_batch
from service.remote import Remote, open_remote
from service.remote_batches import cancel_batch_there, list_batches_there, show_batch_there
from service.settings import Settings, load_settings
from service.store import open_store


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
