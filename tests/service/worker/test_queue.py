"""The queue without workers: whose turn it is, who may take what, and what puts right what went wrong."""

import contextlib
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from dbos import run_dbos_database_migrations
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import delete, text, update

from agents.protocols import FRESH_START, Event
from db.changes import Changes
from db.errors import StoreError
from db.evaluations import results
from db.jobs import batches, job_queue, jobs, workers
from db.records import JobRecord, JobStatus, Owner, TaskRecord
from db.store import Store
from db.tables import JobRow, WorkerRow
from db.types import utc_now
from evaluator.platforms import load_platform
from sandbox.process.sandbox import ProcessSandbox
from service.cancellation import CancelGroup, Cancelled, CancelToken, cancel_when
from service.database import open_store
from service.errors import BadRequest, JobLost
from service.jobs.journal import Journal
from service.jobs.liveness import LOST_AFTER_S, Heartbeat, died_on_this_host, this_process
from service.jobs.local import resume
from service.jobs.persistence import save_task
from service.jobs.query import cancel_job, get_job
from service.jobs.run import SANDBOX_UNAVAILABLE, JobRun
from service.jobs.spec import MeasurementTarget, spec_of
from service.settings import Settings, load_settings
from service.submissions.enqueue import PRIORITIES
from service.weights import WeightsReader
from service.worker.context import WorkerContext
from service.worker.main import GivenUp, _work
from service.worker.queue import WorkQueue, job_workflow, open_queue, priority_of, queue_url
from service.worker.queued_evaluator import EvaluationLost, QueuedEvaluator
from service.worker.reconcile import CHUNK, MAX_LOSSES, Reconciler
from service.worker.retry import retry_store
from tasks.task import Task
from tests.support.submit import submit
from tests.support.worker_processes import OP

TASK = Task(name="op", source=OP)
ME = this_process()
ELSEWHERE = Owner("elsewhere", 4711, "4711:1:other-boot:1")
DEAD_PID = 2**22 + 1  # beyond any that Linux gives
DEAD = replace(ME, pid=DEAD_PID, started=":".join([str(DEAD_PID), *ME.started.split(":")[1:]]))
MAX_PRIORITY = 2**31 - 1
JOB = JobRecord(
    id=1,
    task=TaskRecord(1, "local", "op", "0" * 64, "", "float32", source=OP),
    kind="optimize",
    platform="cpu",
    sandbox="",
    model="m",
    strategy="judge",
    options={},
    status=JobStatus.QUEUED,
    stop_reason=None,
    error=None,
    cancel_requested=False,
    owner=None,
    rounds_done=0,
    cost_usd=0.0,
    tokens=0,
    best_evaluation_id=None,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    started_at=None,
    finished_at=None,
    user="local",
    priority=0,
    fair_tag=1,
    attempt=1,
    worker_id=None,
    batch_id=None,
    sample=None,
    unsettled_usd=0.0,
)
QUICK = hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(data_dir=tmp_path / "data", lock_dir=tmp_path)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    opened = open_store(settings)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def queue_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty queue's database, as a worker makes it."""
    path = tmp_path_factory.mktemp("queue") / "empty.db"
    run_dbos_database_migrations(system_database_url=f"sqlite:///{path}")
    return path


@pytest.fixture
def queue(settings: Settings, store: Store, queue_file: Path) -> Iterator[WorkQueue]:
    shutil.copy(queue_file, queue_url(settings).removeprefix("sqlite:///"))
    opened = open_queue(settings, store)
    yield opened
    opened.close()


@pytest.fixture
def changes(store: Store) -> Iterator[Changes]:
    found = Changes(store.engine)
    yield found
    found.close()


@pytest.fixture
def reconciler(store: Store, queue: WorkQueue) -> Reconciler:
    return Reconciler(store, queue, uninterrupted_s=lambda: 1e9)


def add(store: Store, user: str = "local", priority: int = 0, kind: str = "optimize", platform: str = "cpu") -> int:
    with store.write() as session:
        return job_queue.add_queued_job(
            session,
            task_id=save_task(session, TASK),
            kind=kind,
            platform=platform,
            model="builtin/compiler",
            strategy="judge",
            options={},
            user=user,
            priority=priority,
        )


def change(store: Store, job_id: int, **values: object) -> None:
    with store.write() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(**values))


def take(store: Store, job_id: int, *, attempt: int = 1, worker: str = "w1", owner: Owner = ME) -> bool:
    with store.write() as session:
        return job_queue.take_job(session, job_id, attempt, owner, worker_id=worker, sandbox="docker")


def requeue(store: Store, job_id: int, worker: str | None = None) -> bool:
    with store.write() as session:
        return job_queue.requeue_job(session, job_id, worker_id=worker)


def look(store: Store, job_id: int) -> JobRecord:
    with store.read() as session:
        return jobs.get_job(session, job_id)


def register(store: Store, worker: str = "w1", owner: Owner = ME) -> None:
    with store.write() as session:
        workers.add_worker(
            session,
            worker,
            owner,
            platform="cpu",
            slot=0,
            device="a CPU",
            kind="abc",
            sandbox="docker",
            version="1",
        )


def status_of(store: Store, worker: str) -> str:
    with store.read() as session:
        return next(found.status.value for found in workers.list_workers(session) if found.id == worker)


def as_if_begun(queue: WorkQueue, worker: str) -> None:
    """Mark all queued work as begun by this worker, with nothing written to the store yet."""
    with queue._client._sys_db.engine.begin() as connection:
        connection.execute(text("UPDATE workflow_status SET status='PENDING', executor_id=:worker"), {"worker": worker})


def as_it_ended(queue: WorkQueue, status: str) -> None:
    with queue._client._sys_db.engine.begin() as connection:
        connection.execute(text("UPDATE workflow_status SET status=:status"), {"status": status})


def in_line(queue: WorkQueue) -> dict[str, str]:
    found = queue._client.list_workflows(load_input=False, load_output=False)
    return {workflow.workflow_id: workflow.status for workflow in found}


# whose turn it is


@QUICK
@given(steps=st.lists(st.one_of(st.sampled_from(["ann", "bob", "cem"]), st.none()), max_size=60))
def test_users_who_wait_take_turns_and_nobody_saves_any_up(store: Store, steps: list[str | None]) -> None:
    """`None` is a turn. While two users both have queued jobs, neither gets more than two turns more than the other:
    the bound of start-time fair queuing for jobs of one size."""
    with store.write() as session:
        session.execute(delete(JobRow))
    waiting: dict[str, list[JobRecord]] = {"ann": [], "bob": [], "cem": []}
    served: Counter[tuple[str, str]] = Counter()
    for user in steps:
        if user is not None:
            waiting[user].append(look(store, add(store, user)))
            continue
        line = sorted((job for own in waiting.values() for job in own), key=lambda job: (priority_of(job), job.id))
        if not line:
            continue
        assert take(store, line[0].id)
        lucky = line[0].user
        assert waiting[lucky].pop(0).id == line[0].id, "a user's own jobs come in their order"
        for user in waiting:
            for one, another in ((lucky, user), (user, lucky)):
                if user != lucky and waiting[user]:
                    served[one, another] += one == lucky
                else:
                    served[one, another] = 0
            if user != lucky:
                assert abs(served[lucky, user] - served[user, lucky]) <= 2
        if not waiting[lucky]:
            for pair in list(served):
                if lucky in pair:
                    served[pair] = 0


@given(
    one=st.tuples(st.integers(-(2**40), 2**40), st.integers(-5, 2**40)),
    another=st.tuples(st.integers(-(2**40), 2**40), st.integers(-5, 2**40)),
)
def test_priorities_come_before_turns_and_are_numbers_that_the_queue_takes(
    one: tuple[int, int], another: tuple[int, int]
) -> None:
    first, second = (priority_of(replace(JOB, priority=priority, fair_tag=tag)) for priority, tag in (one, another))
    assert 1 <= first <= MAX_PRIORITY
    low, high = min(PRIORITIES.values()), max(PRIORITIES.values())
    clamped = [min(max(priority, low), high) for priority, _ in (one, another)]
    if clamped[0] < clamped[1]:
        assert first < second


def test_jobs_that_were_cancelled_in_line_take_no_turn_from_those_who_come(store: Store) -> None:
    patient = [add(store, "ann") for _ in range(5)]
    hoarded = [add(store, "eve") for _ in range(50)]
    assert take(store, patient[0])
    for job_id in hoarded:
        cancel_job(store, job_id)
    assert look(store, add(store, "new")).fair_tag == 2
    assert look(store, add(store, "eve")).fair_tag == 2


def test_jobs_on_one_platform_take_no_turn_on_another(store: Store) -> None:
    for _ in range(20):
        add(store, "ann", platform="cuda")
    assert look(store, add(store, "bob")).fair_tag == 1
    assert look(store, add(store, "ann")).fair_tag == 1
    spec = {"task_id": look(store, 1).task.id, "model": "m", "strategy": "s", "options": {}, "sample": 1}
    with store.write() as session:
        batch = batches.add_batch(session, name="", user="ann", spec={}, budget_usd=None)
        new = [job_queue.NewJob(**spec, platform=name) for name in ("cpu", "cuda", "cpu", "cuda")]
        job_queue.add_queued_jobs(session, new, user="ann", priority=0, batch_id=batch)
        found = jobs.list_jobs(session, batch_id=batch)[::-1]
    assert [(job.platform, job.fair_tag) for job in found] == [("cpu", 2), ("cuda", 21), ("cpu", 3), ("cuda", 22)]


def line_of(store: Store, queue: WorkQueue, job_id: int) -> str:
    job = look(store, job_id)
    queue.add_job(job)
    found = queue._client.list_workflows(workflow_ids=[job_workflow(job.id, job.attempt)])
    return str(found[0].queue_name)


def test_a_job_waits_where_only_workers_that_may_take_it_look(store: Store, queue: WorkQueue) -> None:
    free, asking, begun, old = (add(store) for _ in range(4))
    change(store, asking, options={"sandbox": "docker"})
    change(store, begun, sandbox="process", options={"device": "a CPU", "device_kind": "abc"})
    change(store, old, options={"device": "a CPU", "device_kind": "abc"})
    lines = [line_of(store, queue, job) for job in (free, asking, begun, old)]
    assert lines == ["jobs-cpu", "jobs-cpu-docker", "jobs-cpu-process-abc", "jobs-cpu-abc"]


def test_where_a_job_is_measured_is_where_it_began_or_asks_for(store: Store) -> None:
    docker, process = (MeasurementTarget("cpu", "a CPU", sandbox) for sandbox in ("docker", "process"))
    other = MeasurementTarget("cpu", "another CPU", "docker")
    job_id = add(store)
    kept = {"device": "a CPU", "device_kind": docker.device_class}
    assert [target.options_for(look(store, job_id)) for target in (docker, process)] == [kept] * 2
    assert docker.options_for(look(store, job_id), any_sandbox=True) == kept
    change(store, job_id, options={"sandbox": "docker"})
    assert [target.options_for(look(store, job_id)) for target in (docker, process)] == [kept, None]
    change(
        store,
        job_id,
        options={"device": "a CPU, said otherwise", "device_kind": docker.device_class},
        sandbox="process",
    )
    assert [target.options_for(look(store, job_id)) for target in (docker, other)] == [None, None]
    assert other.options_for(look(store, job_id), any_sandbox=True) is None
    assert process.options_for(look(store, job_id)) == {**kept, "device": "a CPU, said otherwise"}
    assert docker.options_for(look(store, job_id), any_sandbox=True) == {**kept, "device": "a CPU, said otherwise"}
    change(store, job_id, options={"device": "a CPU"})
    assert process.options_for(look(store, job_id)) == kept


def test_a_job_that_goes_back_in_line_keeps_its_place(store: Store) -> None:
    job_id = add(store)
    for _ in range(3):
        add(store)
    take(store, job_id)
    assert requeue(store, job_id, "w1")
    with store.read() as session:
        assert job_queue.list_queued(session)[0] == (job_id, 2)


def test_lists_of_those_that_wait_begin_with_whose_turn_comes_first(store: Store) -> None:
    ann = [add(store, "ann") for _ in range(3)]
    bob, high, low = add(store, "bob"), add(store, "bob", -1), add(store, "cem", 1)
    with store.read() as session:
        assert [job_id for job_id, _ in job_queue.list_queued(session)] == [high, ann[0], bob, ann[1], ann[2], low]
        assert [job_id for job_id, _ in job_queue.list_queued(session, after=bob)] == [high, low]


# who may take what


def test_of_many_who_take_a_job_at_once_one_gets_it(store: Store) -> None:
    job_id = add(store)
    got: list[bool] = []
    threads = [threading.Thread(target=lambda n=n: got.append(take(store, job_id, worker=f"w{n}"))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]


def test_an_attempt_that_is_over_takes_nothing(store: Store) -> None:
    job_id = add(store)
    assert take(store, job_id)
    assert requeue(store, job_id, "w1")
    assert not take(store, job_id, attempt=1)
    assert take(store, job_id, attempt=2)


def test_of_two_who_give_a_job_back_one_does(store: Store) -> None:
    job_id = add(store)
    take(store, job_id)
    assert requeue(store, job_id, "w1")
    assert not requeue(store, job_id, "w1")
    assert take(store, job_id, attempt=2, worker="w2")
    assert not requeue(store, job_id, "w1")
    assert look(store, job_id).worker_id == "w2"


def test_a_job_that_was_to_be_cancelled_is_when_its_worker_is_lost(store: Store) -> None:
    job_id = add(store)
    take(store, job_id)
    cancel_job(store, job_id)
    assert requeue(store, job_id, "w1")
    job = look(store, job_id)
    assert (job.status, job.stop_reason, job.worker_id) == (JobStatus.CANCELLED, "cancelled", None)
    assert requeue(store, job_id)
    assert not look(store, job_id).cancel_requested


def test_a_job_that_is_done_is_not_put_in_line(store: Store) -> None:
    job_id = add(store)
    take(store, job_id)
    with store.write() as session:
        jobs.finish_job(session, job_id, ME, status=JobStatus.DONE)
    assert not requeue(store, job_id)
    assert not requeue(store, job_id, "w1")


def test_a_job_whose_worker_died_waits_again_whoever_looks_first(store: Store) -> None:
    local, of_worker = add(store), add(store)
    take(store, local, owner=DEAD)
    change(store, local, worker_id=None)
    take(store, of_worker, owner=DEAD)
    assert get_job(store, local).status is JobStatus.INTERRUPTED
    job = get_job(store, of_worker)
    assert (job.status, job.attempt, job.worker_id) == (JobStatus.QUEUED, 2, None)


def test_a_job_in_line_is_not_resumed_by_hand_and_one_that_runs_is_not_either(store: Store, settings: Settings) -> None:
    waits, runs = add(store), add(store)
    change(store, runs, options={"device": "a CPU", "rounds": 1, "plateau_rounds": 4, "roofline_target": 0.9})
    take(store, runs)
    with pytest.raises(BadRequest, match=f"job {waits} waits for a worker"):
        resume(waits, settings=settings, store=store, observe=lambda event: None, cancel=CancelToken())
    with store.write() as session:
        assert not jobs.restart_job(session, waits, ME, sandbox="docker")
        assert not jobs.restart_job(session, runs, ME, sandbox="docker")


def test_a_job_that_is_resumed_by_hand_is_its_workers_no_more(store: Store, reconciler: Reconciler) -> None:
    job_id = add(store)
    register(store)
    take(store, job_id)
    with store.write() as session:
        jobs.finish_job(session, job_id, ME, status=JobStatus.FAILED)
        assert jobs.restart_job(session, job_id, ME, sandbox="docker")
        workers.set_lost(session, "w1")
    reconciler.take_over()
    job = look(store, job_id)
    assert (job.status, job.owner, job.worker_id) == (JobStatus.RUNNING, ME, None)


class Answered:
    """An LLM that is never asked: the job is taken away, or cut off, before."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("nothing is asked")


def job_run(
    store: Store, job_id: int, journal: Journal, cancel: CancelToken, *, worker_id: str | None = "w1"
) -> JobRun:
    return JobRun(
        store,
        job_id,
        ME,
        spec=spec_of(TASK, load_settings(), device="a CPU"),
        journal=journal,
        evaluator=contextlib.ExitStack(),  # type: ignore[arg-type]  # nothing is evaluated; it can be closed
        platform=load_platform("cpu"),
        llm=Answered(),  # type: ignore[arg-type]
        cancel=cancel,
        worker_id=worker_id,
    )


@pytest.mark.parametrize(
    ("reason", "worker_id", "status", "attempt"),
    [
        ("interrupted", "w1", JobStatus.QUEUED, 2),
        (SANDBOX_UNAVAILABLE, "w1", JobStatus.QUEUED, 2),
        ("cancelled", "w1", JobStatus.CANCELLED, 1),
        ("interrupted", None, JobStatus.INTERRUPTED, 1),
        (SANDBOX_UNAVAILABLE, None, JobStatus.FAILED, 1),
    ],
)
def test_what_ends_for_reasons_of_a_worker_goes_back_in_line_in_one_step(
    store: Store, reason: str, worker_id: str | None, status: JobStatus, attempt: int
) -> None:
    job_id = add(store)
    take(store, job_id)
    run = job_run(
        store, job_id, Journal(store, job_id, lambda event: None, owner=ME), CancelToken(), worker_id=worker_id
    )
    run._work = lambda resume_state: (reason, "why")  # type: ignore[method-assign]
    run.run(FRESH_START)
    job = look(store, job_id)
    assert (job.status, job.attempt) == (status, attempt)


def test_who_has_lost_a_job_writes_nothing_more_to_it(store: Store) -> None:
    job_id = add(store)
    take(store, job_id)
    journal = Journal(store, job_id, lambda event: None, owner=ME)
    assert requeue(store, job_id, "w1")
    assert take(store, job_id, attempt=2, worker="w2", owner=ELSEWHERE)
    before = look(store, job_id)
    with pytest.raises(JobLost):
        journal(Event("round_started", 1, {}))
    run = job_run(store, job_id, journal, CancelToken())
    run._work = lambda resume_state: ("rounds", "")  # type: ignore[method-assign]
    with pytest.raises(JobLost):
        run.run(FRESH_START)
    with store.read() as session:
        assert results.list_events(session, job_id) == []
    assert look(store, job_id) == before


def test_a_job_whose_store_is_gone_is_not_said_to_have_failed(store: Store) -> None:
    job_id = add(store)
    take(store, job_id)
    run = job_run(store, job_id, Journal(store, job_id, lambda event: None, owner=ME), CancelToken())

    def gone(resume_state: object) -> NoReturn:
        raise StoreError("gone")

    run._work = gone  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        run.run(FRESH_START)
    assert look(store, job_id).status is JobStatus.RUNNING


def test_an_event_that_the_store_refused_is_kept_when_it_answers(store: Store) -> None:
    """What a model was paid for is not lost to a store that is locked for a moment."""
    job_id = add(store)
    take(store, job_id)
    refusals = iter([StoreError("locked"), StoreError("locked")])

    def keep(action: Callable[[], None]) -> None:
        for refusal in refusals:
            with pytest.raises(StoreError):
                raise refusal
        action()

    journal = Journal(store, job_id, lambda event: None, owner=ME, write=keep)
    journal(Event("round_started", 1, {}))
    with store.read() as session:
        assert [event.kind for event in results.list_events(session, job_id)] == ["round_started"]


# what reconcilers put right


def test_what_waits_is_put_in_line_once_however_many_reconcilers_there_are(store: Store, queue: WorkQueue) -> None:
    found = [add(store) for _ in range(3)]
    reconcilers = [Reconciler(store, queue, uninterrupted_s=lambda: 1e9) for _ in range(2)]
    assert [reconciler.enqueue_waiting() for reconciler in reconcilers] == [3, 0]
    assert in_line(queue) == {job_workflow(job_id, 1): "ENQUEUED" for job_id in found}
    late = add(store)
    assert reconcilers[1].enqueue_waiting() == 1
    assert job_workflow(late, 1) in in_line(queue)


def test_a_clock_that_is_ahead_keeps_no_job_out_of_line(store: Store, reconciler: Reconciler) -> None:
    change(store, add(store), created_at=utc_now() + timedelta(hours=3))
    assert reconciler.enqueue_waiting() == 1


def test_those_whose_turn_comes_first_are_in_line_first(store: Store, reconciler: Reconciler, queue: WorkQueue) -> None:
    for number in range(CHUNK + 5):
        add(store, f"user{number % 7}", 1)
    high = add(store, priority=-1)
    assert reconciler.enqueue_waiting() == CHUNK
    assert job_workflow(high, 1) in in_line(queue)
    assert reconciler.enqueue_waiting() == 6
    assert reconciler.enqueue_waiting() == 0


def test_a_queue_that_was_emptied_is_filled_again(store: Store, reconciler: Reconciler, queue: WorkQueue) -> None:
    add(store)
    reconciler.enqueue_waiting()
    with queue._client._sys_db.engine.begin() as connection:
        connection.execute(text("DELETE FROM workflow_status"))
    reconciler._next_queue_check = 0.0
    assert reconciler.enqueue_waiting() == 1


@pytest.mark.parametrize("ended", ["ERROR", "CANCELLED", "SUCCESS", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"])
def test_a_job_whose_turn_came_to_nothing_gets_another(
    ended: str, store: Store, reconciler: Reconciler, queue: WorkQueue
) -> None:
    job_id = add(store)
    reconciler.enqueue_waiting()
    as_it_ended(queue, ended)
    reconciler._next_queue_check = 0.0
    assert reconciler.enqueue_waiting() == 0
    reconciler._next_full_scan = 0.0
    assert reconciler.enqueue_waiting() == 1
    assert in_line(queue)[job_workflow(job_id, 2)] == "ENQUEUED"


def test_a_worker_that_dies_before_it_has_taken_what_it_was_given_leaves_it_in_line(
    store: Store, reconciler: Reconciler, queue: WorkQueue
) -> None:
    job_id = add(store)
    reconciler.enqueue_waiting()
    register(store, "gone", DEAD)
    as_if_begun(queue, "gone")
    reconciler.take_over()
    assert status_of(store, "gone") == "lost"
    assert in_line(queue) == {job_workflow(job_id, 1): "ENQUEUED"}
    assert take(store, job_id)


@pytest.mark.parametrize("how", [workers.set_lost, workers.set_stopped])
def test_a_worker_that_dies_while_it_ends_leaves_nothing_behind(
    how: Callable[..., bool], store: Store, reconciler: Reconciler, queue: WorkQueue
) -> None:
    """Its row says that it has ended, and what it had begun was not yet given back."""
    runs, begun = add(store), add(store)
    reconciler.enqueue_waiting()
    register(store)
    take(store, runs)
    as_if_begun(queue, "w1")
    with store.write() as session:
        assert how(session, "w1")
    reconciler.take_over()
    assert [look(store, job_id).status for job_id in (runs, begun)] == [JobStatus.QUEUED] * 2
    assert set(in_line(queue).values()) == {"ENQUEUED"}


def test_what_a_lost_worker_begins_after_it_was_given_up_is_taken_from_it(store: Store, reconciler: Reconciler) -> None:
    register(store)
    with store.write() as session:
        workers.set_lost(session, "w1")
    reconciler.take_over()
    job_id = add(store)
    take(store, job_id)
    reconciler.take_over()
    assert look(store, job_id).status is JobStatus.QUEUED


def test_two_reconcilers_at_once_give_work_out_once(store: Store, queue: WorkQueue) -> None:
    for _ in range(4):
        add(store)
    reconcilers = [Reconciler(store, queue, uninterrupted_s=lambda: 1e9) for _ in range(2)]
    reconcilers[0].enqueue_waiting()
    register(store, "gone", DEAD)
    as_if_begun(queue, "gone")
    taken: list[int] = []
    real = queue.take_over

    def counted(worker_id: str) -> int:
        taken.append(real(worker_id))
        return taken[-1]

    queue.take_over = counted  # type: ignore[method-assign]
    threads = [threading.Thread(target=reconciler.take_over) for reconciler in reconcilers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 4


def test_a_row_that_something_else_wrote_stops_no_reconciler(
    store: Store, reconciler: Reconciler, queue: WorkQueue
) -> None:
    for options in (["not", "a", "dict"], "text", 7, {"device_kind": ["x"]}, {"device_kind": "x" * 100_000}):
        change(store, add(store), options=options)
    change(store, add(store), priority=2**31, fair_tag=-7)
    good = add(store)
    reconciler.enqueue_waiting()
    assert in_line(queue)[job_workflow(good, 1)] == "ENQUEUED"


# who is alive


def test_heartbeats_are_judged_by_the_reconcilers_clock(
    store: Store, queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reconciler = Reconciler(store, queue, uninterrupted_s=lambda: 1e9)
    register(store, "behind", ELSEWHERE)
    register(store, "silent", ELSEWHERE)
    for number in range(10):
        with store.write() as session:
            skewed = utc_now() - timedelta(hours=5) + timedelta(seconds=number)
            session.execute(update(WorkerRow).where(WorkerRow.id == "behind").values(heartbeat_at=skewed))
        reconciler.take_over()
        now += 2.0
    assert (status_of(store, "behind"), status_of(store, "silent")) == ("alive", "lost")


def test_a_worker_that_cannot_write_gives_nobody_up(
    store: Store, queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes no heartbeats for a while must not make all workers give up one another."""
    now, uninterrupted_s = 1000.0, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reconciler = Reconciler(store, queue, uninterrupted_s=lambda: uninterrupted_s)
    register(store, "other", ELSEWHERE)
    for uninterrupted_s in (0.0, 0.0, 5.0, LOST_AFTER_S - 1):  # noqa: B007  # the reconciler asks for it
        reconciler.take_over()
        now += 60.0
    assert status_of(store, "other") == "alive"
    uninterrupted_s = LOST_AFTER_S + 1
    reconciler.take_over()
    assert status_of(store, "other") == "lost"


def test_of_workers_that_are_there_none_is_left_out(store: Store) -> None:
    for number in range(203):
        register(store, f"w{number}")
    with store.read() as session:
        assert len(workers.list_workers(session, live=True)) == 203
        assert len(workers.list_workers(session, live=True, limit=3)) == 3
        assert len(workers.list_workers(session)) == 200


def test_a_namesake_of_this_host_is_not_taken_for_dead() -> None:
    rebooted = replace(DEAD, started=f"{DEAD.pid}:1:0000-other-boot:1")
    assert died_on_this_host(DEAD)
    assert not died_on_this_host(rebooted)
    assert not died_on_this_host(replace(DEAD, host="elsewhere"))
    assert not died_on_this_host(ME)
    assert not died_on_this_host(replace(DEAD, started="garbage"))


def test_a_heartbeat_is_written_and_learns_that_its_owner_was_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.jobs.liveness.HEARTBEAT_S", 0.05)
    register(store)
    heartbeat = Heartbeat(store, lambda session: workers.record_heartbeat(session, "w1"))
    with store.read() as session:
        first = workers.list_workers(session)[0].heartbeat_at
    heartbeat.start()
    time.sleep(0.3)
    with store.write() as session:
        assert workers.list_workers(session)[0].heartbeat_at > first
        assert not heartbeat.lost.is_set() and heartbeat.uninterrupted_s() > 0
        workers.set_lost(session, "w1")
    assert heartbeat.lost.wait(5)
    heartbeat.stop()


def test_a_heartbeat_goes_on_after_any_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.jobs.liveness.HEARTBEAT_S", 0.05)
    register(store)
    with store.write() as session:
        session.execute(
            text("CREATE TRIGGER no_heartbeat BEFORE UPDATE ON workers BEGIN SELECT RAISE(ABORT, 'no'); END")
        )
    heartbeat = Heartbeat(store, lambda session: workers.record_heartbeat(session, "w1"))
    heartbeat.start()
    time.sleep(0.3)
    assert heartbeat.is_running() and not heartbeat.lost.is_set()
    assert "a heartbeat failed" in caplog.text
    with store.write() as session:
        session.execute(text("DROP TRIGGER no_heartbeat"))
        workers.set_lost(session, "w1")
    assert heartbeat.lost.wait(5)
    heartbeat.stop()


@pytest.mark.parametrize("cancelled", [True, False])
def test_an_evaluation_that_was_called_off_for_a_cancel_does_not_fail_its_job(
    store: Store, queue: WorkQueue, changes: Changes, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    monkeypatch.setattr("service.worker.queued_evaluator._LOOK_AT_QUEUE_S", 0.1)
    job_id = add(store)
    assert take(store, job_id)
    cancel = CancelToken()
    evaluator = QueuedEvaluator(store, queue, look(store, job_id), "abc", cancel, changes)
    evaluation_id = evaluator._ask("source", {"candidate": "digest", "round": 1, "trial": True})
    as_it_ended(queue, "SUCCESS")
    if cancelled:
        with store.write() as session:
            jobs.request_cancel(session, job_id)
    with pytest.raises(Cancelled if cancelled else EvaluationLost):
        evaluator._wait(evaluation_id)
    assert cancel.reason == ("cancelled" if cancelled else None)


def test_one_candidate_is_evaluated_on_two_classes_of_devices(store: Store, queue: WorkQueue, changes: Changes) -> None:
    job_id = add(store, platform="cuda")
    assert take(store, job_id)
    arguments = {"candidate": "digest", "round": 1, "trial": True}
    for kind, sandbox, name in (("abc", None, ""), ("abc", "docker", "screening"), ("hhh", "process", "timing")):
        evaluator = QueuedEvaluator(
            store, queue, look(store, job_id), kind, CancelToken(), changes, sandbox=sandbox, name=name
        )
        assert evaluator._ask("source", arguments) == evaluator._ask("source", arguments)
    found = queue._client.list_workflows(load_input=False, load_output=False)
    assert sorted(str(workflow.queue_name) for workflow in found) == [
        "evaluations-cuda-docker-abc",
        "evaluations-cuda-docker-abc",
        "evaluations-cuda-process-hhh",
    ]


def test_a_worker_whose_work_was_told_to_stop_without_a_fault_of_its_own_ends(
    settings: Settings, store: Store, queue: WorkQueue, changes: Changes, process_sandbox: ProcessSandbox
) -> None:
    platform = load_platform("cpu")
    running = CancelGroup()
    worker = WorkerContext(
        "w1",
        ME,
        platform,
        platform.device(),
        process_sandbox,
        settings,
        store,
        queue,
        running,
        changes,
        WeightsReader(store),
    )
    register(store)
    heartbeat = Heartbeat(store, lambda session: workers.record_heartbeat(session, "w1"))
    with pytest.raises(GivenUp):
        _work(worker, heartbeat, CancelToken(), [], lambda: None)
    heartbeat.start()
    running.request("interrupted")
    with pytest.raises(GivenUp):
        _work(worker, heartbeat, CancelToken(), [], lambda: None)
    heartbeat.stop()


# being told to stop


def test_all_of_a_group_are_told_and_those_who_come_later(store: Store) -> None:
    group = CancelGroup()
    with group.new_token() as first, group.new_token() as second:
        assert group.count() == 2
        first.request("cancelled")
        assert not group.requested()
        group.request("interrupted")
        group.request("again")
        assert (first.reason, second.reason) == ("cancelled", "interrupted")
    with group.new_token() as late:
        assert (late.requested(), late.reason) == (True, "interrupted")
    assert group.count() == 0


def test_a_group_is_left_also_by_who_fails() -> None:
    group = CancelGroup()
    with pytest.raises(ValueError, match="x"), group.new_token():
        raise ValueError("x")
    assert group.count() == 0


def test_a_watch_asks_until_it_is_told() -> None:
    cancel, answers = CancelToken(), iter([False, False, True])
    with cancel_when(lambda: next(answers), cancel, "cancelled", poll_s=0.01):
        assert cancel.event.wait(5)
    assert cancel.reason == "cancelled"


def test_what_the_store_refuses_is_tried_until_it_answers_or_all_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.worker.retry.PAUSE_S", 0.01)
    failures = iter([StoreError("locked"), StoreError("gone"), None, StoreError("gone")])

    def action() -> str:
        failure = next(failures)
        if failure is not None:
            raise failure
        return "kept"

    cancel = CancelToken()
    assert retry_store(action, cancel) == "kept"
    cancel.request("interrupted")
    with pytest.raises(StoreError, match="gone"):
        retry_store(action, cancel)


# what is queued


def test_a_submission_that_makes_no_sense_is_refused_and_nothing_is_queued(store: Store, settings: Settings) -> None:
    for wrong, named in (
        ({"model": "manual/x"}, "manual/x"),
        ({"platform": "tpu"}, "tpu"),
        ({"strategy": "luck"}, "luck"),
    ):
        with pytest.raises(BadRequest, match=named):
            submit(TASK, settings=settings.model_copy(update=wrong), store=store)
    with pytest.raises(BadRequest, match="urgent"):
        submit(TASK, settings=settings, store=store, priority="urgent")
    with store.read() as session:
        assert jobs.list_jobs(session) == []


def test_the_queue_forgets_what_ended_long_ago_and_nothing_that_waits(store, queue, reconciler):
    ended, waits = add(store), add(store)
    assert reconciler.enqueue_waiting() == 2
    queue._client.cancel_workflow(job_workflow(ended, 1))
    assert queue.forget(utc_now() - timedelta(minutes=5)) == 0
    assert queue.forget(utc_now() + timedelta(seconds=1)) == 1
    assert queue.jobs_known([(ended, 1), (waits, 1)]) == {(waits, 1): True}


def test_a_job_whose_workers_die_again_and_again_ends_until_someone_asks_for_it(store, queue, reconciler):
    job_id = add(store)

    def lose_a_worker():
        change(store, job_id, status="running", worker_id="gone")
        reconciler.take_over()
        return get_job(store, job_id).status

    assert [lose_a_worker() for _ in range(MAX_LOSSES)] == [JobStatus.QUEUED] * MAX_LOSSES
    assert lose_a_worker() is JobStatus.FAILED
    assert "resume it" in (get_job(store, job_id).error or "")
    with store.write() as session:
        assert job_queue.requeue_job(session, job_id)
    assert lose_a_worker() is JobStatus.QUEUED
