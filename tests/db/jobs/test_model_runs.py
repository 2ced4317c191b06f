"""Runs over whole models in the store: stages, regions with their jobs, decisions, the proof."""

import pytest

from db.errors import NotInStore
from db.evaluations import tasks
from db.jobs import batches, job_queue, model_runs
from db.records import JobStatus, ModelRegionRecord
from db.store import Store


def add_task(store: Store, name: str) -> int:
    with store.write() as session:
        return tasks.add_task(session, suite="s", name=name, source_hash=name, source="x", category="c", dtype="f")


def new_run(store: Store) -> int:
    task = add_task(store, "net")
    with store.write() as session:
        return model_runs.add_run(session, task_id=task, platform="cpu", model="m", options={"out": None})


def region(name: str, position: int, task_id: int) -> ModelRegionRecord:
    return ModelRegionRecord(name, position, "reduction", 12, 3.5, 0.25, task_id, None)


def test_a_run_begins_with_its_plan_and_nothing_decided(store: Store) -> None:
    run_id = new_run(store)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    assert (run.status, run.stage, run.task.name, run.model) == (JobStatus.RUNNING, "plan", "net", "m")
    assert (run.plan, run.trials, run.kept, run.regions, run.evaluation_id) == ({}, (), None, (), None)


def test_a_run_that_is_not_there_is_named(store: Store) -> None:
    with store.read() as session, pytest.raises(NotInStore, match=r"model run 7 is not in the store.*models list"):
        model_runs.get_run(session, 7)


def test_regions_keep_their_order_and_find_their_jobs_by_their_tasks(store: Store) -> None:
    run_id = new_run(store)
    first, second = add_task(store, "net.r01"), add_task(store, "net.r02")
    with store.write() as session:
        model_runs.set_plan(
            session, run_id, {"eager_ms": 14.0}, [region("r01_softmax", 0, first), region("r02_gelu", 1, second)]
        )
    with store.write() as session:
        batch_id = batches.add_batch(session, name="", user="u", spec={}, budget_usd=None)
        job_id = job_queue.add_queued_job(
            session,
            task_id=first,
            kind="optimize",
            platform="cpu",
            model="m",
            strategy="s",
            options={},
            user="u",
            batch_id=batch_id,
        )
        model_runs.set_batch(session, run_id, batch_id)
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    assert run.plan == {"eager_ms": 14.0}
    assert (run.stage, run.batch_id) == ("optimize", batch_id)
    assert [(each.name, each.job_id) for each in run.regions] == [("r01_softmax", job_id), ("r02_gelu", None)]


def test_decisions_are_added_one_by_one_and_the_end_names_the_proof(store: Store) -> None:
    run_id = new_run(store)
    for name in ("a", "b"):
        with store.write() as session:
            model_runs.add_trial(session, run_id, {"name": name, "ratio": 0.9})
    with store.write() as session:
        model_runs.set_kept(session, run_id, ["a"])
        model_runs.finish_run(session, run_id, status=JobStatus.DONE, stage="done", evaluation_id="e1")
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    assert [trial["name"] for trial in run.trials] == ["a", "b"]
    assert (run.kept, run.status, run.stage, run.evaluation_id) == (("a",), JobStatus.DONE, "done", "e1")
    assert run.finished_at is not None


def test_a_run_that_goes_on_forgets_how_it_ended(store: Store) -> None:
    run_id = new_run(store)
    with store.write() as session:
        model_runs.finish_run(session, run_id, status=JobStatus.FAILED, error="no sandbox")
    with store.write() as session:
        model_runs.set_stage(session, run_id, "optimize")
    with store.read() as session:
        run = model_runs.get_run(session, run_id)
    assert (run.status, run.stage, run.error, run.finished_at) == (JobStatus.RUNNING, "optimize", None, None)


def test_runs_are_listed_newest_first(store: Store) -> None:
    ids = [new_run(store) for _ in range(3)]
    with store.read() as session:
        assert [run.id for run in model_runs.list_runs(session, limit=2)] == [ids[2], ids[1]]
        (oldest,) = model_runs.list_runs(session, before=ids[1])
    assert (oldest.id, oldest.task.ref, oldest.status) == (ids[0], "s/net", JobStatus.RUNNING)
    assert not hasattr(oldest.task, "source")
