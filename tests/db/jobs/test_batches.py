"""Batches in the store while others write."""

import threading
from collections.abc import Callable

from sqlalchemy import event, update
from sqlalchemy.orm import Session

from db.evaluations import results, tasks
from db.jobs import batches, job_queue, jobs
from db.records import BatchState, JobStatus, Measurements, Owner
from db.store import Store
from db.tables import JobRow
from service.batches.manage import queue_batch
from service.batches.plan import BatchPlan, PlannedJob
from service.batches.spec import make_spec
from service.jobs.persistence import save_task
from service.settings import load_settings
from service.submissions.enqueue import queue_job
from tasks.task import Task
from tests.support.worker_processes import OP

OWNER = Owner("h", 1, "x")


def running_job(store: Store) -> tuple[int, int]:
    """A batch and its one job, which a worker runs."""
    with store.write() as session:
        task = tasks.add_task(session, suite="s", name="n", source_hash="h", source="", category="c", dtype="f")
        batch = batches.add_batch(session, name="", user="u", spec={}, budget_usd=None)
        job = job_queue.add_queued_job(
            session,
            task_id=task,
            kind="optimize",
            platform="cpu",
            model="m",
            strategy="s",
            options={},
            user="u",
            batch_id=batch,
        )
        assert job_queue.take_job(session, job, 1, OWNER, worker_id="w1", sandbox="docker")
    return batch, job


def test_a_job_that_goes_back_in_line_while_its_batch_is_cancelled_is_cancelled_too(store: Store) -> None:
    batch, job = running_job(store)
    back: list[bool] = []

    def go_back() -> None:
        with store.write() as session:
            back.append(job_queue.requeue_job(session, job, worker_id="w1"))

    worker = threading.Thread(target=go_back)

    def amid(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if worker.ident is None and statement.startswith("UPDATE jobs"):
            worker.start()
            worker.join(0.5)

    event.listen(store.engine, "after_cursor_execute", amid)
    with store.write() as session:
        assert batches.cancel_jobs(session, batch) == 1
        batches.set_cancelled(session, batch, True)
    worker.join(10)
    assert back == [True]
    with store.read() as session:
        assert jobs.get_job(session, job).status is JobStatus.CANCELLED


def test_a_batch_and_a_submission_that_bring_the_same_new_task_both_get_in_line(store: Store) -> None:
    task = Task(name="op", source=OP)
    settings = load_settings(model="builtin/compiler")
    spec = make_spec({"tasks": ["op"], "models": ["builtin/compiler"]})
    plan = BatchPlan((PlannedJob(task, settings, 1),), ())
    batch = threading.Thread(target=lambda: _write(store, lambda session: queue_batch(session, spec, plan, user="u")))
    with store.write() as session:
        save_task(session, task)
        batch.start()
        batch.join(0.5)  # it has come to where it waits for us
        queue_job(session, task, settings=settings, user="u", priority="normal")
    batch.join(10)
    with store.read() as session:
        assert [job.fair_tag for job in jobs.list_jobs(session)] == [2, 1]


def test_many_jobs_are_put_in_line_by_as_many_statements_as_few(store: Store) -> None:
    settings = load_settings(model="builtin/compiler")
    spec = make_spec({"tasks": ["op"], "models": ["builtin/compiler"]})
    statements: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    counts = []
    for samples in (3, 300):
        plan = BatchPlan(tuple(PlannedJob(Task(name="op", source=OP), settings, n + 1) for n in range(samples)), ())
        statements.clear()
        with store.write() as session:
            batch = queue_batch(session, spec, plan, user="u")
        counts.append(len([each for each in statements if " jobs" in each]))
        with store.write() as session:
            session.execute(update(JobRow).values(status="cancelled", stop_reason="cancelled"))
        statements.clear()
        with store.write() as session:
            assert batches.requeue_jobs(session, batch, final=("task_invalid",)) == samples
        counts.append(len([each for each in statements if " jobs" in each]))
    assert counts[:2] == counts[2:]
    with store.read() as session:
        found = jobs.list_jobs(session, batch_id=batch)[::-1]
    assert [job.sample for job in found] == list(range(1, 301))
    assert [job.fair_tag for job in found] == list(range(4, 304))
    assert {(job.status, job.attempt, job.options["ref"]) for job in found} == {(JobStatus.QUEUED, 2, "local/op")}


def _write(store: Store, action: Callable[[Session], object]) -> None:
    with store.write() as session:
        action(session)


def test_the_state_of_a_batch_sums_over_its_jobs_and_ends_with_the_last_of_them(store: Store) -> None:
    batch, job = running_job(store)
    with store.write() as session:
        empty = batches.add_batch(session, name="", user="u", spec={}, budget_usd=None)
        jobs.set_spent(session, job, cost_usd=0.5, tokens=1)
        jobs.add_finished_round(session, job)
        jobs.request_cancel(session, job)
    with store.read() as session:
        found = batches.states(session, [batch, empty, 77])
    assert found == {
        batch: BatchState(False, {JobStatus.RUNNING: 1}, cost_usd=0.5, rounds_done=1, solved=0),
        empty: BatchState(),
    }
    assert (found[batch].ended, found[empty].ended) == (False, True)
    with store.write() as session:
        assert jobs.finish_job(session, job, OWNER, status=JobStatus.CANCELLED, stop_reason="cancelled")
        batches.set_cancelled(session, batch, True)
    with store.read() as session:
        state = batches.states(session, [batch])[batch]
    assert (state.ended, state.cancel_requested, state.counts) == (True, True, {JobStatus.CANCELLED: 1})


def test_the_best_evaluation_of_a_batchs_job_comes_with_what_it_was_judged_by(store: Store) -> None:
    batch, job = running_job(store)
    told = {"harness": "6b61e2", "versions": {"torch": "2.13.0"}, "seed": "a"}
    with store.write() as session:
        for number, result in enumerate(({"provenance": told}, {"verdict": "passed"})):
            candidate = results.add_candidate(
                session, job, round_number=number, candidate_hash=f"{number}" * 64, source=""
            )
            results.add_evaluation(
                session,
                f"e{number}",
                candidate_id=candidate,
                round_number=number,
                platform="cpu",
                device="d",
                sandbox="docker",
                verdict="passed",
                code=None,
                message="",
                tags=(),
                measurements=Measurements(speedup=2.0),
                result=result,
            )
    found = []
    for number in (0, 1):
        with store.write() as session:
            jobs.set_best(session, job, f"e{number}")
            found.append(batches.best_evaluations(session, batch)[job].provenance)
    assert found == [told, {}]
