"""Runs over whole models in the store: stages, regions with their jobs, decisions, the proof, what is delivered."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from db import locks
from db.errors import NotInStore
from db.evaluations import tasks
from db.jobs import batches, job_queue, jobs, model_runs, spending
from db.records import JobStatus, ModelRegionRecord, Owner
from db.store import Store
from db.tables import JobRow
from db.types import utc_now
from service.batches.manage import cancel_batch
from service.settings import load_settings
from service.submissions.access import Principal, Role
from service.submissions.jobs import resume_for

OWNER = Owner("host", 1, "one")


def add_task(store: Store, name: str) -> int:
    with store.write() as session:
        return tasks.add_task(session, suite="s", name=name, source_hash=name, source="x", category="c", dtype="f")


def new_run(store: Store) -> int:
    task = add_task(store, "net")
    with store.write() as session:
        run_id = jobs.add_job(
            session, task_id=task, kind="model", platform="cpu", sandbox="docker", owner=OWNER, model="m"
        )
        model_runs.add_run(session, run_id)
        return run_id


def region(name: str, position: int, task_id: int) -> ModelRegionRecord:
    return ModelRegionRecord(name, position, "reduction", 12, 3.5, 0.25, task_id, None)


def with_region_job(store: Store, run_id: int, *, user: str = "u", **options: object) -> int:
    """Let a run have one region with a queued job; the job's id."""
    first, second = add_task(store, "net.r01"), add_task(store, "net.r02")
    with store.write() as session:
        model_runs.set_plan(
            session, run_id, {"eager_ms": 14.0}, [region("r01_softmax", 0, first), region("r02_gelu", 1, second)]
        )
    with store.write() as session:
        batch_id = batches.add_batch(session, name="", user=user, spec={}, budget_usd=None)
        new = [job_queue.NewJob(first, "cpu", "m", "judge", options, 1)]
        job_queue.add_queued_jobs(session, new, user=user, priority=0, batch_id=batch_id)
        model_runs.set_batch(session, run_id, batch_id)
        (job,) = jobs.list_jobs(session, batch_id=batch_id)
    return job.id


def test_a_run_begins_with_nothing_planned_and_nothing_decided(store: Store) -> None:
    run_id = new_run(store)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
        assert model_runs.get_capture(session, run_id) is None
        assert model_runs.get_files(session, run_id) == {}
    assert (run.status, run.stage, run.task.name, run.model) == (JobStatus.RUNNING, "plan", "net", "m")
    assert (run.plan, run.trials, run.kept, run.regions, run.evaluation_id) == ({}, (), None, (), None)


def test_a_run_that_is_not_there_is_named(store: Store) -> None:
    with store.read() as session, pytest.raises(NotInStore, match=r"model run 7 is not in the store.*models list"):
        model_runs.get_run(session, 7)


def test_a_job_of_another_kind_is_no_run(store: Store) -> None:
    run_id = new_run(store)
    job_id = with_region_job(store, run_id)
    with store.read() as session, pytest.raises(NotInStore):
        model_runs.get_run(session, job_id)


def test_regions_keep_their_order_and_find_their_jobs_by_their_tasks(store: Store) -> None:
    run_id = new_run(store)
    job_id = with_region_job(store, run_id)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
        assert model_runs.batch_of(session, run_id) == run.batch_id
        assert model_runs.batch_of(session, job_id) is None
    assert run.plan == {"eager_ms": 14.0}
    assert run.stage == "optimize" and run.batch_id is not None
    assert [(each.name, each.job_id) for each in run.regions] == [("r01_softmax", job_id), ("r02_gelu", None)]


def test_what_was_captured_and_delivered_comes_back_as_it_was(store: Store) -> None:
    run_id = new_run(store)
    capture = b'{"graphs": []}' * 1000 + bytes(range(256))
    with store.write() as session:
        model_runs.set_capture(session, run_id, capture)
        model_runs.set_files(session, run_id, {"model.py": "x = 'ä'\n", "kernels/r01.py": ""})
    with store.read() as session:
        assert model_runs.get_capture(session, run_id) == capture
        assert model_runs.get_files(session, run_id) == {"model.py": "x = 'ä'\n", "kernels/r01.py": ""}


def test_decisions_are_added_one_by_one_and_the_run_ends_as_its_job_does(store: Store) -> None:
    run_id = new_run(store)
    for name in ("a", "b"):
        with store.write() as session:
            model_runs.add_trial(session, run_id, {"name": name, "ratio": 0.9})
    with store.write() as session:
        model_runs.set_kept(session, run_id, ["a"])
        model_runs.set_stage(session, run_id, "done")
        model_runs.set_proof(session, run_id, "e1")
        assert jobs.finish_job(session, run_id, OWNER, status=JobStatus.DONE, stop_reason="proven")
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    assert [trial["name"] for trial in run.trials] == ["a", "b"]
    assert (run.kept, run.status, run.stage, run.evaluation_id) == (("a",), JobStatus.DONE, "done", "e1")
    assert run.finished_at is not None


def test_runs_are_listed_newest_first_and_other_jobs_are_not(store: Store) -> None:
    ids = [new_run(store) for _ in range(3)]
    with_region_job(store, ids[2])
    with store.read() as session:
        assert [run.id for run in model_runs.list_runs(session, limit=2)] == [ids[2], ids[1]]
        (oldest,) = model_runs.list_runs(session, before=ids[1])
    assert (oldest.id, oldest.task.ref, oldest.status) == (ids[0], "s/net", JobStatus.RUNNING)
    assert not hasattr(oldest.task, "source")


def test_whoever_cancels_a_run_cancels_the_jobs_of_its_regions(store: Store) -> None:
    run_id = new_run(store)
    job_id = with_region_job(store, run_id)
    with store.write() as session:
        assert jobs.request_cancel(session, run_id) is JobStatus.RUNNING
    with store.read() as session:
        assert jobs.get_job(session, run_id).cancel_requested
        assert jobs.get_job(session, job_id).status is JobStatus.CANCELLED


def cancel_run(store: Store, run_id: int) -> None:
    with store.write() as session:
        jobs.request_cancel(session, run_id)


def cancel_its_batch(store: Store, run_id: int) -> None:
    cancel_batch(store, 1)


def resume_run(store: Store, run_id: int) -> None:
    resume_for(Principal("u", Role.OPERATOR), run_id, settings=load_settings(), store=store)


@pytest.mark.parametrize("change", [cancel_run, cancel_its_batch, resume_run])
def test_whoever_changes_a_run_and_its_regions_locks_the_run_first(
    store: Store, change: Callable[[Store, int], None]
) -> None:
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time, and no order of locks")
    run_id = new_run(store)
    with store.write() as session:
        batch_id = batches.add_batch(session, name="", user="u", spec={}, budget_usd=None)
        assert batch_id == 1
        session.execute(update(JobRow).where(JobRow.id == run_id).values(batch_id=batch_id))
    region_job = with_region_job(store, run_id)
    if change is resume_run:
        with store.write() as session:
            assert jobs.finish_job(session, run_id, OWNER, status=JobStatus.CANCELLED)
    with ThreadPoolExecutor(1) as pool:
        with store.write() as session:
            locks.lock_job(session, run_id)
            changing = pool.submit(change, store, run_id)
            with pytest.raises(TimeoutError):
                changing.result(0.5)  # it waits for the run
            free = select(JobRow.id).where(JobRow.id == region_job).with_for_update(nowait=True)
            assert session.scalar(free) == region_job, "and holds no job of a region meanwhile"
        changing.result(10)


def test_jobs_of_regions_count_as_open_ones_where_their_run_has_ended(store: Store) -> None:
    run_id = new_run(store)
    with_region_job(store, run_id)
    with store.write() as session:
        assert job_queue.count_open(session, "u") == 0
        assert jobs.finish_job(session, run_id, OWNER, status=JobStatus.CANCELLED)
    with store.read() as session:
        assert job_queue.count_open(session, "u") == 1


def test_a_run_counts_as_one_open_job_and_costs_what_its_regions_do(store: Store) -> None:
    run_id = new_run(store)
    with store.read() as session:
        user = jobs.get_job(session, run_id).user
    with store.write() as session:
        jobs.update_options(session, run_id, budget_usd=5.0)

    def most_usd() -> float:
        with store.read() as session:
            return spending.max_spending_usd(
                session, user, utc_now(), free_models=lambda model, judge: False, max_paid_usd=lambda session, job: 0.0
            )

    assert most_usd() == 5.0
    region_job = with_region_job(store, run_id, user=user)
    assert most_usd() == 5.0, "its regions' jobs share its budget"
    with store.read() as session:
        assert job_queue.count_open(session, user) == 1
    with store.write() as session:
        job_queue.take_job(session, region_job, 1, OWNER, worker_id=None, sandbox="docker")
        jobs.set_spent(session, region_job, cost_usd=1.5, tokens=10)
        jobs.set_spent(session, run_id, cost_usd=1.5, tokens=10)
        for each in (region_job, run_id):
            jobs.finish_job(session, each, OWNER, status=JobStatus.DONE)
    with store.read() as session:
        spent = spending.max_spending_usd(
            session,
            user,
            utc_now() - timedelta(days=1),
            free_models=lambda model, judge: False,
            max_paid_usd=lambda session, job: 0.0,
        )
    assert spent == 1.5, "what they have cost counts once"
