"""The store: what goes in comes out, once, whole, whatever else happens at the time."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from db.engine import integrity_problems, make_engine, open_store, revision_of, schema_differences
from db.errors import NotInStore, StoreError
from db.evaluations.results import (
    add_candidate,
    add_evaluation,
    add_event,
    add_llm_call,
    add_round,
    count_llm_calls,
    find_evaluation,
    get_evaluation,
    get_llm_calls,
    list_events,
    list_llm_call_heads,
    list_llm_calls,
    llm_usage,
    set_advice,
)
from db.evaluations.tasks import add_task, find_source
from db.jobs.jobs import (
    add_job,
    cancel_requested,
    finish_job,
    get_job,
    list_jobs,
    mark_interrupted,
    request_cancel,
    restart_job,
)
from db.migrations import HEAD
from db.records import JobStatus, LlmCall, Measurements, Owner
from db.tables import EvaluationRow, TaskRow
from db.types import clean_json
from tasks.text import clean_text

ROOT = Path(__file__).parents[2]
ME = Owner("here", 1, "then")
OTHER = Owner("here", 1, "later")


def new_task(session, name="op", source="x = 1", source_hash="a" * 64):
    return add_task(
        session, suite="local", name=name, source_hash=source_hash, source=source, category="other", dtype="float32"
    )


def new_job(session, task_id=None, owner=ME):
    task_id = new_task(session) if task_id is None else task_id
    return add_job(
        session,
        task_id=task_id,
        kind="optimize",
        platform="cpu",
        sandbox="docker",
        owner=owner,
        model="builtin/compiler",
    )


def new_evaluation(session, job_id, evaluation_id="e1", source="y", **values):
    candidate_id = add_candidate(session, job_id, round_number=1, candidate_hash=source * 64, source=source)
    given = {
        "platform": "cpu",
        "device": "some CPU",
        "sandbox": "docker",
        "verdict": "passed",
        "code": None,
        "message": "",
        "tags": ["custom_kernel"],
        "measurements": Measurements(speedup=2.0, speedup_low=1.9, speedup_high=2.1, candidate_ms=1.0, eager_ms=2.0),
        "result": {"schema": "s"},
        **values,
    }
    add_evaluation(session, evaluation_id, candidate_id=candidate_id, round_number=1, **given)
    return candidate_id


def url_of(store):
    return store.engine.url.render_as_string(hide_password=False)


def run_python(code, *args, **options):
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# Opening and upgrading


def test_an_empty_database_is_brought_to_the_newest_revision(store):
    assert revision_of(store.engine) == HEAD
    assert schema_differences(store.engine) == []
    assert integrity_problems(store.engine) == []


def test_head_names_the_newest_migration():
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(ROOT / "db/migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_a_difference_between_tables_and_database_is_found(store):
    with store.engine.begin() as connection:
        connection.execute(text("ALTER TABLE tasks ADD COLUMN surprise TEXT"))
    assert "surprise" in "".join(schema_differences(store.engine))


def test_migrations_can_be_undone_and_done_again(store):
    from alembic import command

    from db.engine import alembic_config, migration_transaction

    for step in (command.downgrade, command.upgrade):
        with migration_transaction(store.engine) as connection:
            step(alembic_config(connection), "base" if step is command.downgrade else "head")
    assert schema_differences(store.engine) == []


def test_sqlite_is_set_up_for_several_processes(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    with store.read() as session:
        assert session.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert session.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert session.execute(text("PRAGMA busy_timeout")).scalar() >= 10_000


def test_the_folder_of_an_sqlite_file_is_made(tmp_path):
    open_store(f"sqlite:///{tmp_path}/deep/store.db").close()
    assert (tmp_path / "deep/store.db").is_file()


def test_processes_that_open_a_new_store_at_once_do_not_collide(empty_url):
    code = "import sys; from db.engine import open_store; open_store(sys.argv[1]); print('opened')"
    children = [run_python(code, empty_url) for _ in range(4)]
    answers = [child.communicate(timeout=60) for child in children]
    assert [out.strip() for out, _ in answers] == ["opened"] * 4, answers


def test_a_store_of_a_newer_version_is_refused_with_what_to_do(store):
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"newer Kernelwright.*upgrade"):
        open_store(url_of(store))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense", "sqlite:////path"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("nosuchdb://host/x", "sqlite:////path"),
        ("sqlite:////proc/nowhere/store.db", "KERNELWRIGHT_DATA_DIR"),
    ],
)
def test_a_url_that_cannot_work_is_refused_in_one_line(url, why):
    with pytest.raises(StoreError, match=why) as caught:
        open_store(url)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused_in_one_line(tmp_path):
    (tmp_path / "store.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="not a database") as caught:
        open_store(f"sqlite:///{tmp_path}/store.db")
    assert "\n" not in str(caught.value)


def test_errors_show_no_password():
    with pytest.raises(StoreError) as caught:
        make_engine("nosuchdb://user:secret@host/x")
    assert "secret" not in str(caught.value)


# Values


def test_naive_datetimes_are_refused_and_zones_survive(store):
    from sqlalchemy.exc import StatementError

    early = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    row = {"suite": "s", "source_hash": "h", "source": "", "category": "", "dtype": ""}
    with store.write() as session:
        session.add(TaskRow(name="aware", created_at=early, **row))
    with store.read() as session:
        kept = session.query(TaskRow).one().created_at
    assert kept == early
    assert kept.tzinfo is UTC
    with pytest.raises(StatementError, match="naive"), store.write() as session:
        session.add(TaskRow(name="naive", created_at=datetime(2026, 1, 1), **row))


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_cleaned_text_is_what_any_database_takes(text):
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert clean_text(cleaned) == cleaned


def test_cleaned_json_is_strict():
    assert clean_json({"a": float("nan"), "b": (1, [float("inf"), "x\x00"]), 3: None}) == {
        "a": None,
        "b": [1, [None, "x\ufffd"]],
        "3": None,
    }
    with pytest.raises(TypeError, match="object"):
        clean_json({"a": object()})


def test_hostile_text_is_stored(store):
    with store.write() as session:
        job_id = new_job(session)
        new_evaluation(
            session,
            job_id,
            verdict="crashed",
            message="\x00\udc80 end",
            result={"out": "\x00\ud800", "t": float("nan")},
        )
    with store.read() as session:
        kept = get_evaluation(session, "e1")
    assert kept.message.endswith("end")
    assert kept.result["t"] is None


# Natural keys


def test_the_same_task_is_stored_once_and_another_source_is_another_task(store):
    with store.write() as session:
        first = new_task(session)
        assert new_task(session) == first
        assert new_task(session, source="x = 2", source_hash="b" * 64) != first
    with store.read() as session:
        found = find_source(session, "local", "op", "a" * 64)
        assert found is not None and (found.id, found.source) == (first, "x = 1")
        assert find_source(session, "local", "op", "c" * 64) is None


def test_candidates_and_evaluations_are_stored_once(store):
    with store.write() as session:
        job_id = new_job(session)
        assert new_evaluation(session, job_id) == new_evaluation(session, job_id)
    with store.read() as session:
        assert session.query(EvaluationRow).count() == 1
        found = find_evaluation(session, job_id, "y" * 64)
        assert found is not None
        assert found.measurements.speedup == 2.0
        assert find_evaluation(session, job_id, "z" * 64) is None


def test_foreign_keys_hold(store):
    with pytest.raises(IntegrityError), store.write() as session:
        new_job(session, task_id=12345)


# A job's life


def test_only_one_process_can_claim_a_job(store):
    with store.write() as session:
        job_id = new_job(session)
        assert not restart_job(session, job_id, OTHER, sandbox="docker")  # it runs
        assert mark_interrupted(session, job_id, ME)
        assert restart_job(session, job_id, OTHER, sandbox="docker")
        assert not restart_job(session, job_id, ME, sandbox="docker")
        assert get_job(session, job_id).owner == OTHER


def test_who_lost_a_job_cannot_end_it(store):
    with store.write() as session:
        job_id = new_job(session, owner=ME)
        mark_interrupted(session, job_id, ME)
        restart_job(session, job_id, OTHER, sandbox="docker")
        assert not finish_job(session, job_id, ME, status=JobStatus.DONE)
        assert not mark_interrupted(session, job_id, ME)
        assert get_job(session, job_id).status is JobStatus.RUNNING


def test_a_running_job_is_asked_to_stop_and_a_waiting_one_is_cancelled_at_once(store):
    with store.write() as session:
        running, waiting = new_job(session), new_job(session)
        mark_interrupted(session, waiting, ME)
        assert request_cancel(session, running) is JobStatus.RUNNING
        assert cancel_requested(session, running)
        assert request_cancel(session, waiting) is JobStatus.CANCELLED
        finish_job(session, running, ME, status=JobStatus.DONE, stop_reason="rounds")
        assert request_cancel(session, running) is JobStatus.DONE
        with pytest.raises(NotInStore, match="job 99"):
            request_cancel(session, 99)
        assert not restart_job(session, running, OTHER, sandbox="docker")  # done is done
        assert restart_job(session, waiting, OTHER, sandbox="docker")
        assert not cancel_requested(session, waiting)


def test_jobs_are_listed_newest_first(store):
    with store.write() as session:
        first, second = new_job(session), new_job(session)
        mark_interrupted(session, first, ME)
        assert [job.id for job in list_jobs(session)] == [second, first]
        assert [job.id for job in list_jobs(session, status=JobStatus.INTERRUPTED)] == [first]
        assert [job.id for job in list_jobs(session, limit=1)] == [second]
        assert list_jobs(session, kind="evaluate") == []


def test_rounds_events_and_calls_are_kept_in_order(store):
    call = LlmCall(1, "m", "coder", "write", [{"role": "user", "content": "hi"}], "answer", 10, 5, 0.25, 1.5)
    with store.write() as session:
        job_id = new_job(session)
        add_round(session, job_id, 1)
        add_round(session, job_id, 1)
        set_advice(session, job_id, 1, {"change": "tile"})
        for number in range(3):
            add_event(session, job_id, "step", number, {"n": number})
        add_llm_call(session, job_id, call)
        add_llm_call(session, job_id, LlmCall(2, "m", "judge", "judge", [], "", 1, 1, None, 0.0))
    with store.read() as session:
        events = list_events(session, job_id)
        assert [event.data["n"] for event in events] == [0, 1, 2]
        assert list_events(session, job_id, after=events[1].id) == events[2:]
        assert list_llm_calls(session, job_id)[0] == call
        assert len(list_llm_calls(session, job_id, from_round=2)) == 1
        heads = list_llm_call_heads(session, job_id)
        assert next(iter(heads.values())) == replace(call, messages=[], reply="")
        assert get_llm_calls(session, [*heads][:1]) == {next(iter(heads)): call}
        assert get_llm_calls(session, [*heads, 999]).keys() == heads.keys()
        assert (count_llm_calls(session, job_id), count_llm_calls(session, 99)) == (2, 0)
        assert llm_usage(session, job_id) == (0.25, 11, 6)
        assert llm_usage(session, 99) == (0.0, 0, 0)


# Crashes and crowds


def test_writers_of_several_processes_all_get_through(store):
    with store.write() as session:
        job_id = new_job(session)
    code = """
import sys
from db.engine import open_store
from db.locks import lock_job
from db.evaluations.results import add_event, list_events
store = open_store(sys.argv[1])
for number in range(50):
    with store.write() as session:
        lock_job(session, int(sys.argv[2]))
        seen = len(list_events(session, int(sys.argv[2])))  # a reader that turns writer
        add_event(session, int(sys.argv[2]), "step", number, {"who": sys.argv[3], "seen": seen})
"""
    children = [run_python(code, url_of(store), str(job_id), str(who)) for who in range(4)]
    for child in children:
        _, err = child.communicate(timeout=100)
        assert child.returncode == 0, err
    with store.read() as session:
        events = list_events(session, job_id)
    assert [event.data["seen"] for event in events] == list(range(200))  # no write was lost or saw half of another


def test_kill_9_in_a_transaction_leaves_the_store_whole(store):
    with store.write() as session:
        job_id = new_job(session)
    code = """
import sys, time
from db.engine import open_store
from db.evaluations.results import add_event
store = open_store(sys.argv[1])
with store.write() as session:
    add_event(session, int(sys.argv[2]), "kept", 0, {})
with store.write() as session:
    add_event(session, int(sys.argv[2]), "lost", 0, {})
    session.flush()
    print("inside", flush=True)
    time.sleep(60)
"""
    child = run_python(code, url_of(store), str(job_id))
    assert child.stdout.readline().strip() == "inside"
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    begun = time.monotonic()
    with store.write() as session:
        add_event(session, job_id, "after", 0, {})
    assert time.monotonic() - begun < 5  # the dead writer's lock died with it
    with store.read() as session:
        assert [event.kind for event in list_events(session, job_id)] == ["kept", "after"]
    assert integrity_problems(store.engine) == []


def test_an_exception_undoes_the_transaction(store):
    with pytest.raises(RuntimeError), store.write() as session:
        job_id = new_job(session)
        raise RuntimeError
    with store.read() as session, pytest.raises(NotInStore):
        get_job(session, job_id)
