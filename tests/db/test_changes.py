"""Changes of a database are reported to those who wait, whichever process made them, and heartbeats are not."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from db import changes as module
from db.changes import Changes
from db.engine import open_store
from db.store import Store

ROOT = Path(__file__).parents[2]
ELSEWHERE = """
import sys
from db.engine import open_store
store = open_store(sys.argv[1])
with store.write() as session:
    session.connection()
store.close()
"""
SOON_S, NEVER_S = 5.0, 0.5


@pytest.fixture
def changes(store: Store) -> Iterator[Changes]:
    found = Changes(store.engine)
    yield found
    found.close()


def settle(changed: threading.Event) -> None:
    """Wait until what happened before is reported."""
    while changed.is_set():
        changed.clear()
        changed.wait(NEVER_S)


def test_a_commit_is_reported_and_a_heartbeat_is_not(store: Store, changes: Changes) -> None:
    with changes.subscribe() as first, changes.subscribe() as second:
        assert first.is_set(), "what happened before is not known"
        settle(first)
        settle(second)
        with store.write(announce=False) as session:
            session.connection()
        with store.read() as session:
            session.execute(text("SELECT 1"))
        assert not first.wait(NEVER_S)
        with store.write() as session:
            session.connection()
        assert first.wait(SOON_S) and second.wait(SOON_S)
        settle(first)
        with pytest.raises(RuntimeError), store.write() as session:
            session.connection()
            raise RuntimeError
        assert not first.wait(NEVER_S), "it was rolled back"
        store.announce()
        assert first.wait(SOON_S)
    settle(first)
    store.announce()
    assert not first.wait(NEVER_S), "it is subscribed no more"


def test_a_commit_of_another_process_is_reported(store: Store, changes: Changes) -> None:
    with changes.subscribe() as changed:
        settle(changed)
        url = store.engine.url.render_as_string(hide_password=False)
        subprocess.run([sys.executable, "-c", ELSEWHERE, url], cwd=ROOT, check=True)
        assert changed.wait(SOON_S)


def test_the_last_of_many_commits_is_never_missed(store: Store, changes: Changes) -> None:
    with changes.subscribe() as changed:
        for number in range(200):
            changed.clear()
            store.announce()
            assert changed.wait(SOON_S), number


@pytest.mark.postgres
def test_reports_go_on_after_the_connection_was_lost(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.1)
    store = open_store(postgres_url)
    changes = Changes(store.engine)
    listeners = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    try:
        with changes.subscribe() as changed:
            settle(changed)
            with store.read() as session:
                assert session.execute(text(f"{listeners} AND datname = current_database()")).all()
            assert changed.wait(SOON_S), "what happened meanwhile is not known"
            settle(changed)
            with store.write() as session:
                session.connection()
            assert changed.wait(SOON_S)
    finally:
        changes.close()
        store.close()
