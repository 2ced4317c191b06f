"""PostgreSQL as the store: what goes wrong with a server is said in one line, and what only one at a time did on SQLite
stays right with many writers.
"""

import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, InternalError

from db import backup as backup_module
from db.backup import backup
from db.engine import open_store, schema_differences
from db.errors import StoreError
from db.evaluations.results import add_event, list_events
from db.evaluations.tasks import add_task
from db.jobs.job_queue import add_queued_job, take_job
from db.jobs.jobs import get_job, request_cancel
from db.locks import lock_job
from db.records import JobStatus, Owner
from tests.support.boards import Board
from tests.support.postgres import WITH_PASSWORD, NoPostgres, find_programs, opened, started

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).parents[2]
SECRET = "s3cret-w0rd"


@pytest.fixture
def store(postgres, postgres_template):
    with postgres.database(postgres_template) as url:
        opened_store = open_store(url)
        yield opened_store
        opened_store.close()


@pytest.fixture
def guarded_url(postgres, postgres_url):
    """A database whose owner needs a password."""
    if "host" not in postgres.url.query:
        pytest.skip("a server that was given keeps its own rules")
    role, database = sql.Identifier(WITH_PASSWORD), sql.Identifier(make_url(postgres_url).database)
    postgres.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(SECRET)))
    postgres.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(database, role))
    yield make_url(postgres_url).set(username=WITH_PASSWORD, password=SECRET).render_as_string(hide_password=False)
    postgres.drop(make_url(postgres_url).database)
    postgres.execute(sql.SQL("DROP ROLE {}").format(role))


def url_of(store):
    return store.engine.url.render_as_string(hide_password=False)


def refusal(url):
    with pytest.raises(StoreError) as caught:
        open_store(url)
    line = str(caught.value)
    assert "\n" not in line
    assert "KERNELWRIGHT_DATABASE_URL" in line
    return line


# What goes wrong with a server


def test_a_server_that_does_not_answer_is_named_with_what_to_do():
    with socket.socket() as taken:  # bound and not listening: nobody else takes the port
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql+psycopg://me:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/kernels"
        line = refusal(url)
    assert "127.0.0.1" in line
    assert "refused" in line
    assert SECRET not in line


def test_a_server_that_keeps_silent_is_given_up_after_a_while():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        line = refusal(f"postgresql+psycopg://me@127.0.0.1:{silent.getsockname()[1]}/kernels?connect_timeout=2")
    assert "timeout" in line
    assert time.monotonic() - begun < 8


def test_a_wrong_password_is_refused_and_no_password_is_shown(guarded_url):
    wrong = make_url(guarded_url).set(password="wrong-w0rd").render_as_string(hide_password=False)
    line = refusal(wrong)
    assert "password authentication failed" in line
    assert "wrong-w0rd" not in line
    assert WITH_PASSWORD in line
    open_store(guarded_url).close()


def test_a_password_among_the_parameters_is_not_shown_either(guarded_url):
    url = make_url(guarded_url).set(password=None).update_query_dict({"password": "wrong-w0rd"})
    line = refusal(url.render_as_string())
    assert "password authentication failed" in line
    assert "wrong-w0rd" not in line


def test_a_database_that_is_not_there_is_named(postgres):
    assert '"no_such_base" does not exist' in refusal(postgres.url_of("no_such_base"))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://me:{SECRET}@host:port/x",
        f"postgresql+nosuch://me:{SECRET}@host/x",
        f"postgres://me:{SECRET}@host/x",
        f"postgresql+psycopg://me:{SECRET}@host/x?no_such_parameter=1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url):
    with pytest.raises(StoreError) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_ends_amid_work_is_named_and_the_store_works_again_after_it(store):
    with pytest.raises(StoreError, match="terminating"), store.write() as session:
        session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    with store.read() as session:
        assert session.scalar(text("SELECT 1")) == 1


def test_a_server_that_became_read_only_is_named_and_the_store_works_again_after_it(store):
    with pytest.raises(StoreError, match="in a read-only transaction"), store.write() as session:
        session.execute(text("SET TRANSACTION READ ONLY"))
        session.execute(text("DELETE FROM standings"))
    with store.write() as session:
        session.execute(text("DELETE FROM standings"))


# Nothing is read or written but what is meant to be


def test_a_reader_sees_one_moment_and_writes_nothing(store):
    board = Board(store)
    board.add("a", 2.0)
    with store.read() as session:
        before = session.scalar(text("SELECT count(*) FROM standings"))
        board.add("b", 2.0)
        assert session.scalar(text("SELECT count(*) FROM standings")) == before
        with pytest.raises(InternalError, match="read-only"):
            session.execute(text("DELETE FROM standings"))


def test_tables_of_the_queue_in_their_own_schema_are_not_taken_for_differences(store):
    with store.engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA dbos"))
        connection.execute(text("CREATE TABLE dbos.workflow_status (id TEXT PRIMARY KEY)"))
        connection.execute(text("CREATE TABLE dbos.jobs (id TEXT PRIMARY KEY)"))
    assert schema_differences(store.engine) == []
    open_store(url_of(store)).close()


def test_foreign_keys_hold_and_ids_go_on_after_an_error(store):
    with pytest.raises(IntegrityError), store.write() as session:
        add_event(session, 999, "step", 0, {})
    with store.write() as session:
        job_id = queue(session, "ada")
        add_event(session, job_id, "step", 0, {})
    with store.read() as session:
        assert len(list_events(session, job_id)) == 1


# Many writers


def queue(session, user, priority=0):
    task_id = add_task(session, suite="local", name="op", source_hash="a", source="", category="other", dtype="float32")
    return add_queued_job(
        session,
        task_id=task_id,
        kind="optimize",
        platform="cpu",
        model="m",
        strategy="judge",
        options={},
        user=user,
        priority=priority,
    )


def all_at_once(count, work):
    """Run it in so many threads; whatever one of them raises is raised here."""
    failures = []
    gate = threading.Barrier(count)

    def run(number):
        try:
            gate.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_jobs_of_one_user_that_are_queued_at_once_have_places_of_their_own(store):
    with store.write() as session:
        queue(session, "ada")

    def submit(number):
        for _ in range(5):
            with store.write() as session:
                queue(session, "ada")

    all_at_once(6, submit)
    with store.read() as session:
        tags = list(session.scalars(text("SELECT fair_tag FROM jobs ORDER BY fair_tag")))
    assert tags == list(range(1, 32))


def test_only_one_worker_takes_a_job(store):
    with store.write() as session:
        job_id = queue(session, "ada")
    taken = []

    def take(number):
        with store.write() as session:
            owner = Owner("here", number, "then")
            if take_job(session, job_id, 1, owner, worker_id=f"w{number}", sandbox="docker"):
                time.sleep(0.05)
                taken.append(number)

    all_at_once(6, take)
    assert len(taken) == 1


def test_a_cancel_that_meets_a_worker_is_never_lost(store):
    for number in range(10):
        with store.write() as session:
            job_id = queue(session, "ada")

        def meet(which, job_id=job_id):
            with store.write() as session:
                if which == 0:
                    request_cancel(session, job_id)
                else:
                    take_job(session, job_id, 1, Owner("here", 1, "then"), worker_id="w", sandbox="docker")

        all_at_once(2, meet)
        with store.read() as session:
            job = get_job(session, job_id)
        assert job.status is JobStatus.CANCELLED or job.cancel_requested, number


def test_who_has_read_a_jobs_events_up_to_one_misses_none(store):
    """Ids are drawn before they are kept: a slow writer's could appear after a quick one's that are higher."""
    with store.write() as session:
        job_id = queue(session, "ada")
    inside, go_on = threading.Event(), threading.Event()

    def write(number):
        if number == 0:
            with store.write() as session:
                add_event(session, job_id, "slow", 0, {})
                session.flush()
                inside.set()
                go_on.wait(10)
        elif number == 1:
            inside.wait(10)
            with store.write() as session:
                add_event(session, job_id, "quick", 0, {})
        else:
            inside.wait(10)
            time.sleep(0.3)
            with store.read() as session:
                assert list_events(session, job_id) == []  # the quick one waits for the slow one
            go_on.set()

    all_at_once(3, write)
    with store.read() as session:
        assert [event.kind for event in list_events(session, job_id)] == ["slow", "quick"]


def test_a_lock_on_a_job_ends_with_its_transaction_and_does_not_keep_others_from_referring_to_it(store):
    with store.write() as session:
        job_id = queue(session, "ada")
    with store.write() as session:
        lock_job(session, job_id)
        with store.write() as other:
            other.execute(text("SET LOCAL lock_timeout = '2s'"))
            other.execute(
                text("INSERT INTO rounds (job_id, number, started_at) VALUES (:job, 1, now())"), {"job": job_id}
            )
        with pytest.raises(StoreError, match="lock timeout"), store.write() as other:
            other.execute(text("SET LOCAL lock_timeout = '100ms'"))
            lock_job(other, job_id)
    with store.write() as session:
        lock_job(session, job_id)


def test_a_writer_waits_for_another_no_longer_than_on_sqlite(store):
    with store.read() as session:
        assert session.scalar(text("SHOW lock_timeout")) == "30s"
        assert session.scalar(text("SHOW idle_in_transaction_session_timeout")) == "2min"


# Copies


def test_a_dump_is_whole_private_and_never_overwrites(store, postgres, tmp_path):
    Board(store).add("m", 2.0)
    with store.write() as session:
        session.execute(text("CREATE SCHEMA dbos"))  # the queue's, which is filled anew from the jobs that wait
    target = tmp_path / "copy.dump"
    backup(store.engine, target)
    assert target.read_bytes()[:5] == b"PGDMP"
    assert target.stat().st_mode & 0o077 == 0
    with postgres.database() as url:
        parts = make_url(url)
        address = [f"--host={parts.query.get('host', parts.host)}", f"--username={parts.username}"]
        restore = [find_programs() / "pg_restore", "--no-password", f"--dbname={parts.database}", *address, target]
        subprocess.run(restore, check=True)
        copy = open_store(url)
        with copy.read() as session:
            assert session.scalar(text("SELECT count(*) FROM pg_namespace WHERE nspname = 'dbos'")) == 0
        assert [entry.model for entry in Board(copy).entries()] == ["m"]
        assert schema_differences(copy.engine) == []
        Board(copy).add("n", 2.0, evaluation_id="new", source="s2")  # its ids go on where those of the original ended
        copy.close()
    with pytest.raises(StoreError, match="exists"):
        backup(store.engine, target)
    assert list(tmp_path.glob("*.partial")) == []


def test_the_password_of_a_dump_is_on_no_command_line(guarded_url, tmp_path, monkeypatch):
    seen = tmp_path / "seen"
    program = tmp_path / "pg_dump"
    real = find_programs() / "pg_dump"
    program.write_text(f'#!/bin/sh\ntr "\\0" " " < /proc/$$/cmdline > {seen}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(backup_module, "find_pg_dump", lambda: str(program))
    store = open_store(guarded_url)
    backup(store.engine, tmp_path / "copy.dump")
    store.close()
    assert "--dbname=" in seen.read_text()
    assert SECRET not in seen.read_text()
    assert (tmp_path / "copy.dump").read_bytes()[:5] == b"PGDMP"


def test_a_dump_that_fails_says_why_and_leaves_nothing(store, tmp_path, monkeypatch):
    program = tmp_path / "pg_dump"
    program.write_text("#!/bin/sh\necho 'pg_dump: error: server version mismatch' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(backup_module, "find_pg_dump", lambda: str(program))
    with pytest.raises(StoreError, match="server version mismatch"):
        backup(store.engine, tmp_path / "copy.dump")
    monkeypatch.setattr(backup_module, "find_pg_dump", lambda: None)
    with pytest.raises(StoreError, match="pg_dump is not installed"):
        backup(store.engine, tmp_path / "copy.dump")
    assert [path.name for path in tmp_path.iterdir()] == ["pg_dump"]


# The tests' own server


def test_a_private_server_ends_with_the_process_that_started_it(tmp_path):
    code = """
from tests.support.postgres import started
with started() as server:
    print(server.url.query["host"], flush=True)
    input()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    folder = Path(child.stdout.readline().strip())
    psycopg.connect(host=str(folder), user="postgres").close()
    child.kill()
    child.communicate()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            psycopg.connect(host=str(folder), user="postgres").close()
        except psycopg.OperationalError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the server outlived its parent")
    shutil.rmtree(folder, ignore_errors=True)  # what its last process removes at the same time


def test_a_server_that_was_named_is_used_and_its_databases_are_removed(postgres):
    with opened(postgres.url.render_as_string(hide_password=False)) as server:
        with server.database() as url:
            name = make_url(url).database
            open_store(url).close()
        with pytest.raises(StoreError, match="does not exist"):
            open_store(server.url_of(name))


def test_without_its_programs_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("tests.support.postgres.find_programs", lambda: None)
    with pytest.raises(NoPostgres, match="apt-get install postgresql"), started():
        pass
