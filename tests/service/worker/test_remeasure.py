"""A noisy result is measured again by a worker that has nothing else to do, when its device is quiet."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from db.changes import Changes
from db.evaluations import results
from db.jobs import job_queue, jobs, workers
from db.records import JobRecord, JobStatus, Measurements
from db.store import Store
from evaluator.evaluation import Evaluation
from evaluator.platforms import load_platform
from evaluator.platforms.simulated.platform import SimulatedPlatform
from sandbox.base import Sandbox
from service.cancellation import CancelGroup, Cancelled, CancelToken
from service.database import open_store
from service.jobs.export import kernel_text
from service.jobs.liveness import this_process
from service.jobs.persistence import save_task
from service.jobs.query import REMEASURED, get_job, show_job, worked_s
from service.settings import load_settings
from service.weights import WeightsReader, keep_weights, source_of
from service.worker import remeasure
from service.worker.context import WorkerContext
from service.worker.queue import open_queue
from service.worker.remeasure import MOST_TRIES, Remeasurer
from tasks.build import task_from_source
from tasks.outcomes import NOISY, candidate_hash
from tasks.weights_file import read_weights
from tests.platforms.kits import OP, SIMULATED
from tests.support.weights import state_file

pytestmark = pytest.mark.docker
ME = this_process()


@dataclass(frozen=True)
class Device(SimulatedPlatform):
    """The array machine on a host whose load is given."""

    busy: float = 0.0

    def load(self, wait: Callable[[], object]) -> float | None:
        wait()
        return self.busy


@pytest.fixture
def worker(shared_docker_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerContext]:
    monkeypatch.setattr(remeasure, "SAMPLE_S", 0.01)
    settings = load_settings(data_dir=tmp_path, lock_dir=tmp_path, platform="simulated")
    with contextlib.closing(open_store(settings)) as store:
        queue, changes, platform = open_queue(settings, store), Changes(store.engine), Device()
        with store.write() as session:
            workers.add_worker(
                session,
                "w1",
                ME,
                platform=platform.name,
                slot=0,
                device=platform.device().name,
                kind="k",
                sandbox=shared_docker_sandbox.name,
                version="1",
            )
        yield WorkerContext(
            "w1",
            ME,
            platform,
            platform.device(),
            shared_docker_sandbox,
            settings,
            store,
            queue,
            CancelGroup(),
            changes,
            WeightsReader(store),
        )
        changes.close()
        queue.close()


def done_job(
    worker: WorkerContext, *, tags: tuple[str, ...] = ("custom_kernel", NOISY), tries: int = 0, **options: object
) -> JobRecord:
    """A job that the worker has done, with one candidate, and the evaluation that is its best."""
    store: Store = worker.store
    with store.write() as session:
        job_id = job_queue.add_queued_job(
            session,
            task_id=save_task(session, task_from_source(OP, name="op")),
            kind="optimize",
            platform="simulated",
            model="openai/m",
            strategy="judge",
            options={"rounds": 1, **options},  # type: ignore[dict-item]
            user="ada",
        )
        job_queue.take_job(session, job_id, 1, ME, worker_id="w1", sandbox=worker.sandbox.name)
        digest = candidate_hash(SIMULATED.right)
        candidate = results.add_candidate(
            session, job_id, round_number=1, candidate_hash=digest, source=SIMULATED.right
        )
        results.add_event(session, job_id, "job_started", 0, {"rounds": 1})
        results.add_event(session, job_id, "candidate", 1, {"hash": digest, "change": "first"})
        results.add_evaluation(
            session,
            f"noisy-{job_id}",
            candidate_id=candidate,
            round_number=1,
            platform="simulated",
            device=worker.device.name,
            sandbox=worker.sandbox.name,
            verdict="passed",
            code=None,
            message="",
            tags=tags,
            measurements=Measurements(speedup=99.0, speedup_low=9.0, speedup_high=999.0),
            result={"verdict": "passed", "tags": list(tags), "latency_ms": {}},
            noise=1.5,
        )
        jobs.set_best(session, job_id, f"noisy-{job_id}")
        results.add_event(session, job_id, "job_stopped", 1, {})
        jobs.finish_job(session, job_id, ME, status=JobStatus.DONE, stop_reason="rounds")
        for _ in range(tries):
            results.add_event(session, job_id, REMEASURED, 1, {})
    return get_job(store, job_id)


def events(worker: WorkerContext, job: JobRecord, kind: str) -> list[dict[str, object]]:
    with worker.store.read() as session:
        return [dict(event.data) for event in results.list_events(session, job.id, kinds=[kind])]


def test_what_counts_now_is_the_jobs_and_every_place_names_its_figures(worker: WorkerContext) -> None:
    job = done_job(worker)
    seconds = worked_s(worker.store, job.id)
    assert Remeasurer(worker).measure_one(CancelToken())
    after = show_job(worker.store, job.id)
    assert after.best is not None
    assert after.best.id == get_job(worker.store, job.id).best_evaluation_id != f"noisy-{job.id}"
    found = Evaluation.from_json(after.best.result)
    assert found.passed and NOISY not in found.tags and found.speedup is not None
    assert [each["counts"] for each in events(worker, job, REMEASURED)] == [True]
    assert [each["evaluation_id"] for each in events(worker, job, "proved")] == [after.best.id]
    [line] = after.rounds
    assert (line.speedup, line.best) == (found.speedup["eager"].value, True)
    assert f"{found.speedup['eager'].value:.3f}" in kernel_text(after, after.best)
    assert worked_s(worker.store, job.id) == seconds, "the job did not work longer for that"
    assert not Remeasurer(worker).measure_one(CancelToken()), "nothing is noisy any more"


@pytest.mark.parametrize(
    "given",
    [
        {"tags": ("custom_kernel",)},
        {"tags": ("custom_kernel", "uneven")},
        {"tags": ("custom_kernel", NOISY, "other_inputs")},
        {"tries": MOST_TRIES},
    ],
    ids=["not noisy", "no rank for another reason", "no rank even if quiet", "tried often"],
)
def test_other_results_are_left_alone(worker: WorkerContext, given: dict[str, object]) -> None:
    job = done_job(worker, **given)  # type: ignore[arg-type]
    assert not Remeasurer(worker).measure_one(CancelToken())
    assert get_job(worker.store, job.id).best_evaluation_id == f"noisy-{job.id}"


def test_nothing_is_measured_while_the_device_is_busy_or_its_load_is_unknown(worker: WorkerContext) -> None:
    done_job(worker)
    for busy in (0.5, None):
        other = replace(worker, platform=Device(busy=busy))  # type: ignore[arg-type]
        assert not Remeasurer(other).measure_one(CancelToken())


def test_a_result_that_does_not_count_either_replaces_nothing_and_is_one_of_the_tries(worker: WorkerContext) -> None:
    job = done_job(worker, cold=True)  # which gets no rank in any case
    for _ in range(MOST_TRIES):
        assert Remeasurer(worker).measure_one(CancelToken())
    assert not Remeasurer(worker).measure_one(CancelToken())
    assert get_job(worker.store, job.id).best_evaluation_id == f"noisy-{job.id}"
    assert [each["counts"] for each in events(worker, job, REMEASURED)] == [False] * MOST_TRIES


def test_a_result_is_held_to_the_weights_of_its_job_or_left_alone_without_them(worker: WorkerContext) -> None:
    weights = read_weights(state_file({"other": ("F32", [1], b"????")}))  # which the op does not have
    job = done_job(worker, weights=weights.digest)
    assert not Remeasurer(worker).measure_one(CancelToken()), "they are not kept"
    keep_weights(worker.store, job.user, source_of(weights))
    assert Remeasurer(worker).measure_one(CancelToken())
    (found,) = events(worker, job, REMEASURED)
    assert found["verdict"] != "passed" and not found["counts"]


def test_real_work_and_a_worker_that_was_given_up_keep_nothing(worker: WorkerContext) -> None:
    job = done_job(worker)
    cancel = CancelToken()
    cancel.request("real work came")
    with pytest.raises(Cancelled):
        Remeasurer(worker).measure_one(cancel)
    with worker.store.write() as session:
        workers.set_lost(session, "w1")
    with pytest.raises(Cancelled):
        Remeasurer(worker).measure_one(CancelToken())
    assert get_job(worker.store, job.id).best_evaluation_id == f"noisy-{job.id}"
    assert events(worker, job, REMEASURED) == []


def test_it_begins_when_the_worker_has_been_idle_and_stops_when_work_comes(
    worker: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remeasure, "SAMPLE_S", 30.0)  # it waits for that long unless it is cancelled
    done_job(worker)
    remeasurer = Remeasurer(worker)
    remeasurer.tick()
    assert worker.running.count() == 0, "not idle for long"
    monkeypatch.setattr(remeasure, "IDLE_S", 0.0)
    remeasurer.tick()
    until_count(worker, 1)
    remeasurer.tick()
    assert worker.running.count() == 1, "it is no work that stops itself"
    with worker.running.new_token():
        remeasurer.tick()
        until_count(worker, 1)  # the work's own


def until_count(worker: WorkerContext, count: int) -> None:
    deadline = time.monotonic() + 20
    while worker.running.count() != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_load_of_this_host_is_seen() -> None:
    def burn() -> None:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass

    busy = load_platform("cpu").load(burn)
    assert busy is not None
    assert busy > 0.3
    assert load_platform("simulated").load(burn) == 0.0
