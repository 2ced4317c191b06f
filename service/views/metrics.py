"""Counts over the whole store, for monitoring."""

from db.metrics import count_store
from db.records import StoreCounts
from db.store import Store


def store_counts(store: Store) -> StoreCounts:
    """Count jobs, evaluations and workers. This reads every row of evaluations, so call it seldom."""
    with store.read() as session:
        return count_store(session)
