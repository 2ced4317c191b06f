"""Jobs that commands run on hosts that vanish: others hear that they are silent, and go on with them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from db.evaluations import results
from db.evaluations.tasks import add_task
from db.jobs import job_queue, jobs
from db.records import JobStatus, Owner
from db.store import Store
from db.tables import JobRow
from db.types import utc_now
from service.database import open_store
from service.jobs import local
from service.jobs import run as job_run
from service.jobs.liveness import LOST_AFTER_S, runs_on_this_host, this_process
from service.jobs.query import get_job, list_jobs, mark_dead_jobs
from service.mock_llm import Script, start_llm_server
from service.settings import load_settings
from tests.support.fast_batches import coder, write_ops
from tests.support.killable_jobs import opened_quickly, run
from tests.support.worker_processes import until

ROOT = Path(__file__).parents[3]
ME = this_process()
ELSEWHERE = replace(ME, host="elsewhere")


def start(store: Store, owner: Owner) -> int:
    with store.write() as session:
        task = add_task(session, suite="s", name="n", source_hash="h", source="", category="c", dtype="f")
        return jobs.add_job(session, task_id=task, kind="optimize", platform="cpu", sandbox="docker", owner=owner)


def silent_for(store: Store, job_id: int, seconds: float) -> None:
    with store.write() as session:
        past = utc_now() - timedelta(seconds=seconds)
        session.execute(update(JobRow).where(JobRow.id == job_id).values(heartbeat_at=past))


def status(store: Store, job_id: int) -> JobStatus:
    with store.read() as session:
        return jobs.get_job(session, job_id).status


@pytest.fixture
def old(store: Store) -> Store:
    """A store whose server has been up for long enough that silence says something."""

    def up_for_long() -> bool:
        if store.engine.dialect.name != "postgresql":
            return True
        with store.read() as session:
            up = session.execute(text("SELECT clock_timestamp() - pg_postmaster_start_time()")).scalar_one()
        return bool(up.total_seconds() > LOST_AFTER_S + 1)

    until(up_for_long, "the server to be up", 30)
    return store


def test_silence_for_as_long_as_of_a_lost_worker_ends_a_command_of_another_host(old: Store) -> None:
    near, far, quiet = (start(old, ELSEWHERE) for _ in range(3))
    silent_for(old, far, LOST_AFTER_S + 1)
    silent_for(old, quiet, LOST_AFTER_S - 5)
    mark_dead_jobs(old)
    assert [status(old, job) for job in (near, far, quiet)] == [
        JobStatus.RUNNING,
        JobStatus.INTERRUPTED,
        JobStatus.RUNNING,
    ]


def test_a_command_of_this_host_is_there_however_long_it_is_silent(old: Store) -> None:
    assert runs_on_this_host(ME) and not runs_on_this_host(ELSEWHERE)
    job = start(old, ME)
    silent_for(old, job, 3600)
    mark_dead_jobs(old)
    assert status(old, job) is JobStatus.RUNNING


def test_a_command_of_another_container_on_this_host_is_judged_by_its_heartbeats(old: Store) -> None:
    pid, ticks, boot, _ = ME.started.split(":")
    job = start(old, replace(ME, started=f"{pid}:{ticks}:{boot}:4711"))
    mark_dead_jobs(old)
    assert status(old, job) is JobStatus.RUNNING
    silent_for(old, job, LOST_AFTER_S + 1)
    mark_dead_jobs(old)
    assert status(old, job) is JobStatus.INTERRUPTED


def test_who_is_heard_at_the_last_moment_keeps_his_job(store: Store) -> None:
    job = start(store, ELSEWHERE)
    with store.read() as session:
        heard = jobs.get_job(session, job).heartbeat_at
    with store.write() as session:
        assert jobs.record_heartbeat(session, job, ELSEWHERE)
    with store.write() as session:
        assert not jobs.mark_interrupted(session, job, ELSEWHERE, heard)
    assert status(store, job) is JobStatus.RUNNING


def test_heartbeats_end_with_a_job_that_others_have_and_not_with_one_that_ended(store: Store) -> None:
    ended, taken, moved = (start(store, ELSEWHERE) for _ in range(3))
    with store.write() as session:
        jobs.finish_job(session, ended, ELSEWHERE, status=JobStatus.DONE)
        jobs.mark_interrupted(session, taken, ELSEWHERE)
        jobs.mark_interrupted(session, moved, ELSEWHERE)
        assert jobs.restart_job(session, moved, ME, sandbox="docker")
        answers = [jobs.record_heartbeat(session, job, ELSEWHERE) for job in (ended, taken, moved)]
    assert answers == [True, False, False]


def test_workers_jobs_have_no_heartbeats_of_their_own(store: Store) -> None:
    job = start(store, ELSEWHERE)
    with store.write() as session:
        jobs.mark_interrupted(session, job, ELSEWHERE)
        job_queue.requeue_job(session, job)
        assert job_queue.take_job(session, job, 1, ELSEWHERE, worker_id="w", sandbox="docker")
        assert jobs.get_job(session, job).heartbeat_at is None
    mark_dead_jobs(store)
    assert status(store, job) is JobStatus.RUNNING


@contextmanager
def elsewhere(command: dict[str, Any]) -> Iterator["subprocess.Popen[str]"]:
    """A job that a process runs on what it takes for another host."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.other_host", json.dumps(command)],
        cwd=ROOT,
        env={**os.environ, "OPENAI_API_KEY": "none"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def written(store: Store) -> tuple[int, int, int]:
    with store.read() as session:
        events, calls = results.list_events(session, 1), results.list_llm_calls(session, 1)
        return len(events), len(calls), len(results.list_evaluations(session, 1))


def test_a_job_of_a_host_that_vanished_is_resumed_here_and_lost_there(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("service.jobs.query.LOST_AFTER_S", 6.0)
    monkeypatch.setattr(local, "open_evaluation_context", opened_quickly)  # `run` sets both, and does not put them back
    monkeypatch.setattr(job_run, "open_models", job_run.open_models)
    (tmp_path / "data").mkdir()
    script = Script(match=(*coder([2.0], delay_s=15.0).match[:1], *coder([2.0]).match))
    with start_llm_server(script) as server:
        settings = {
            "data_dir": str(tmp_path / "data"),
            "database_url": empty_url,
            "api_base": server.url,
            "model": "openai/scripted",
            "strategy": "sample",
            "rounds": 1,
            "price": "1,1",
        }
        command = {"action": "start", "op": write_ops(tmp_path, 1)[0], "settings": settings}
        store = open_store(load_settings(**settings))
        with elsewhere(command) as process:
            until(lambda: [job for job in list_jobs(store, kind="optimize") if written(store)[0] > 2], "a call", 60)
            time.sleep(7)  # heard of all the while
            assert get_job(store, 1).status is JobStatus.RUNNING
            process.send_signal(signal.SIGSTOP)
            until(lambda: get_job(store, 1).status is JobStatus.INTERRUPTED, "the silence to be heard", 20)
            assert run({**command, "action": "resume"}) == 0
            job, kept = get_job(store, 1), written(store)
            assert job.status is JobStatus.DONE and job.owner is not None and job.owner.host != "elsewhere"
            process.send_signal(signal.SIGCONT)
            assert process.wait(30) == 3
            assert process.stdout is not None
            assert "others have it now" in process.stdout.read()
            assert (get_job(store, 1), written(store)) == (job, kept)
        store.close()
