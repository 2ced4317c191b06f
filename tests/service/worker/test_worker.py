"""Workers, as processes that are killed, stopped, paused and cut off: what they were to do is done, and done once."""

import contextlib
import itertools
import json
import os
import signal
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.replay import resume_state_from_events
from db.evaluations import results
from db.jobs import job_queue, jobs, model_runs
from evaluator.referee.protocol.input_families import GIVEN_WEIGHTS
from service.device_lock import hold_device, lock_paths
from service.jobs.export import export_job
from service.jobs.persistence import save_task
from service.jobs.query import cancel_job, read_full_events
from service.mock_llm import Entry, Script, When, start_llm_server
from service.mock_llm.server import LlmServer
from service.settings import override
from service.submissions.access import Principal, Role
from service.submissions.enqueue import queue_model
from service.submissions.evaluations import evaluate_for
from service.submissions.models import submit_model_for
from service.views.devices import devices_view
from service.weights import keep_weights, source_of
from service.worker.queue import queue_url
from tasks.load import task_from_source
from tasks.outcomes import candidate_hash
from tasks.task import Task
from tasks.weights_file import read_weights
from tests.fakes import fenced
from tests.support.forked_commands import CommandServer
from tests.support.model_runs import MODEL
from tests.support.weights import state_file
from tests.support.worker_processes import OP, SECRET, Fleet, WorkerProcess, containers, fleet, moment, until

pytestmark = pytest.mark.docker

WRONG = """import time

import torch

time.sleep({sleep_s})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
"""
SLOW = WRONG.format(sleep_s=5)
SCALED = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.tanh(x) * self.scale


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
SCALED_NEW = SCALED.replace("Model(", "ModelNew(").replace("torch.tanh(x) * self.scale", "self.scale * x.tanh()")
QUICK = WRONG.format(sleep_s=0)


def script(source: str = SLOW, *, delay_s: float = 0.0) -> Script:
    return Script(match=(Entry(text=fenced(source), when=When(role="coder"), delay_s=delay_s, repeat=True),))


@pytest.fixture
def model() -> Iterator[LlmServer]:
    """A model whose kernels are wrong, and are half a dozen seconds in the making."""
    with start_llm_server(script()) as server:
        yield server


@pytest.fixture
def there(tmp_path: Path, command_server: CommandServer) -> Iterator[Fleet]:
    with fleet(tmp_path, command_server) as found:
        yield found
        check_logs(found)


def check_logs(there: Fleet) -> None:
    for worker in there.started:
        text = worker.log.read_text()
        assert SECRET not in text
        for line in text.splitlines():
            said = json.loads(line)
            assert {"time", "level", "message"} <= set(said)
            if said["logger"] in ("service.worker.optimize_task", "service.worker.evaluate_task"):
                assert "job" in said, line


def ask(there: Fleet, model: LlmServer, **options: object) -> int:
    """Queue a job whose kernels this model writes."""
    return there.submit(model="openai/scripted", api_base=model.url, price="1.5,6", **options)


def pair(there: Fleet) -> tuple[WorkerProcess, WorkerProcess]:
    """Two workers on two devices."""
    first, second = there.worker(0, ready=False), there.worker(1, ready=False)
    first.wait_for("worker ready")
    second.wait_for("worker ready")
    return first, second


def who(workers: tuple[WorkerProcess, ...], start: str, **about: object) -> WorkerProcess:
    """The worker that says so first."""
    return until(lambda: next((worker for worker in workers if worker.said(start, **about)), None), start, 60)


def other(workers: tuple[WorkerProcess, WorkerProcess], worker: WorkerProcess) -> WorkerProcess:
    return workers[1] if worker is workers[0] else workers[0]


def check_once(there: Fleet, job_id: int, model: LlmServer) -> None:
    """One row a candidate, one call of each place in the ledger, and the model was asked as often as was paid for."""
    evaluated, calls = there.evaluated(job_id), there.calls(job_id)
    assert len(evaluated) == 1
    assert len(calls) == len(set(calls)) == model.stats()["replies"] == 1
    job, stats = there.job(job_id), model.stats()
    assert job.cost_usd == pytest.approx(stats["prompt_tokens"] * 1.5e-6 + stats["completion_tokens"] * 6e-6)
    assert job.unsettled_usd == 0.0


def test_a_job_in_line_is_done(there: Fleet) -> None:
    job_id = there.submit()
    assert there.job(job_id).status.value == "queued"
    there.worker()
    job = there.wait_for(job_id)
    assert (job.status.value, job.stop_reason) == ("done", "rounds")
    assert there.kinds_of_evaluations(job_id) == ["trial", "proof"]
    with there.store.read() as session:
        phases = [event.data["phase"] for event in results.list_events(session, job_id, kinds=["phase"])]
    assert [phase for phase in phases if phase in ("starting", "checking", "timing")] == [
        *("starting", "checking", "timing"),
        *("starting", "checking", "timing"),
    ]
    assert job.best_evaluation_id == there.evaluated(job_id)[-1][1]
    assert job.options["device_kind"]
    exported = export_job(there.store, job, there.settings, out=there.folder / "best.py")
    assert "class ModelNew" in exported.kernel.read_text()


def test_a_worker_that_is_to_end_gives_its_work_back_within_seconds(there: Fleet, model: LlmServer) -> None:
    job_id = ask(there, model)
    worker = there.worker()
    worker.wait_for("evaluation: building", job=job_id)
    began = worker.send(signal.SIGTERM)
    assert worker.wait(10) == 0
    took_s = time.monotonic() - began
    job = there.job(job_id)
    assert (job.status.value, job.attempt, job.worker_id) == ("queued", 2, None)
    assert not containers(worker.pid)
    assert there.seen() == []
    there.worker()
    job = there.wait_for(job_id)
    assert job.status.value == "done"
    check_once(there, job_id, model)
    print(f"\nended {took_s:.1f} s after SIGTERM")


def test_a_call_that_a_kill_cut_off_is_counted_once_at_its_worst(there: Fleet) -> None:
    """Two signals end a worker at once, as a kill does."""
    with start_llm_server(script(QUICK, delay_s=3)) as model:
        job_id = ask(there, model)
        worker = there.worker()
        worker.wait_for("llm_started", job=job_id)
        until(lambda: model.stats()["requests"], "the request", 30)
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        worker.wait()
        there.worker()
        job = there.wait_for(job_id)
        stats = model.stats()
    assert (job.status.value, len(there.calls(job_id)), len(there.evaluated(job_id))) == ("done", 1, 1)
    billed_usd = stats["prompt_tokens"] * 1.5e-6 + stats["completion_tokens"] * 6e-6
    resume_state = resume_state_from_events(read_full_events(there.store, job_id))
    assert job.cost_usd == pytest.approx(resume_state.spent.cost_usd)
    assert job.unsettled_usd == pytest.approx(resume_state.spent.unsettled_usd)
    assert job.cost_usd <= billed_usd + 1e-9
    assert billed_usd <= job.cost_usd + job.unsettled_usd + 1e-9


@pytest.mark.parametrize("killed", ["job begins", "evaluation begins"])
def test_what_a_killed_worker_had_begun_is_picked_up_within_seconds(
    killed: str, there: Fleet, model: LlmServer
) -> None:
    both = pair(there)
    job_id = ask(there, model)
    who(both, "evaluation: building", job=job_id)
    victim = who(both, killed, job=job_id)
    survivor = other(both, victim)
    at = len(survivor.lines())
    began, by_the_clock = victim.send(signal.SIGKILL), time.time()
    victim.process.wait()
    line = until(
        lambda: next((line for line in survivor.lines()[at:] if line["message"].startswith(killed)), None),
        f"{killed!r} after the kill:\n{survivor.log.read_text()}",
        30,
    )
    until(lambda: not containers(victim.pid), "the containers to be swept", 30)
    swept_s = time.monotonic() - began
    assert there.wait_for(job_id).status.value == "done"
    assert there.lost(victim.pid)
    check_once(there, job_id, model)
    print(f"\n{killed}: picked up {moment(line) - by_the_clock:.1f} s after the kill, swept after {swept_s:.1f} s")


def test_a_worker_that_was_paused_for_long_ends_and_writes_nothing(there: Fleet, model: LlmServer) -> None:
    both = pair(there)
    job_id = ask(there, model)
    who(both, "evaluation: building", job=job_id)
    paused = who(both, "job begins", job=job_id)
    began = paused.send(signal.SIGSTOP)
    job = there.wait_for(job_id)
    took_s = time.monotonic() - began
    assert job.status.value == "done"
    assert there.lost(paused.pid)
    time.sleep(max(0.0, 25 - (time.monotonic() - began)))
    with there.store.read() as session:
        before = [event.id for event in results.list_events(session, job_id)]
    paused.send(signal.SIGCONT)
    assert paused.wait(15) == 3
    assert "given up" in paused.lines()[-1]["message"]
    with there.store.read() as session:
        assert [event.id for event in results.list_events(session, job_id)] == before
    assert there.job(job_id) == job
    check_once(there, job_id, model)
    print(f"\ndone {took_s:.1f} s after the pause began")


def test_a_worker_runs_four_jobs_at_once_whichever_queues_they_are_in(there: Fleet) -> None:
    with start_llm_server(script(QUICK, delay_s=600)) as silent:
        before = there.worker()
        begun = [ask(there, silent) for _ in range(3)]  # these wait in a queue of their own once they have begun
        for job_id in begun:
            before.wait_for("llm_started", job=job_id)
        before.send(signal.SIGTERM)
        assert before.wait() == 0
        new = [ask(there, silent) for _ in range(4)]
        after = there.worker()
        most = 0
        for _ in range(80):
            running_now = [job_id for job_id in begun + new if there.job(job_id).status.value == "running"]
            most = max(most, len(running_now))
            time.sleep(0.1)
        assert most == len(running_now) == 4
        assert set(begun) < set(running_now), "those that have begun come first"
        (line,) = [line for line in devices_view(there.store).workers if line.state == "alive"]
        assert line.job_ids == tuple(running_now), "the page shows all that it runs"
        cancel_job(there.store, begun[0])
        there.wait_for(begun[0], within_s=20)
        until(lambda: sum(there.job(job_id).status.value == "running" for job_id in new) == 2, "the next", 20)
        after.send(signal.SIGKILL)


def test_a_job_is_cancelled_wherever_it_is(there: Fleet, model: LlmServer) -> None:
    took_s = {}
    waits = ask(there, model)
    began = time.monotonic()
    assert cancel_job(there.store, waits).status.value == "cancelled"
    took_s["in the queue"] = time.monotonic() - began
    worker = there.worker()
    evaluated = ask(there, model)
    worker.wait_for("evaluation: building", job=evaluated)
    took_s["evaluating"] = cancel(there, evaluated, worker)
    with start_llm_server(script(delay_s=60)) as hangs:
        asked = ask(there, hangs)
        worker.wait_for("llm_started", job=asked)
        time.sleep(0.5)
        took_s["asking a model"] = cancel(there, asked, worker)
    assert there.evaluated(waits) == there.evaluated(evaluated) == there.evaluated(asked) == []
    assert worker.said("job begins", job=waits) is None
    assert there.job(asked).unsettled_usd > 0, "the model may have been paid"
    print({stage: round(seconds, 1) for stage, seconds in took_s.items()})


def cancel(there: Fleet, job_id: int, worker: WorkerProcess) -> float:
    """How long it takes until nothing of the job runs any more, in seconds."""
    began = time.monotonic()
    cancel_job(there.store, job_id)
    job = there.wait_for(job_id, within_s=5)
    assert (job.status.value, job.stop_reason) == ("cancelled", "cancelled")
    until(lambda: not running(worker), "its evaluation to be called off", 10)  # Docker takes its time on a busy host
    return time.monotonic() - began


def running(worker: WorkerProcess) -> bool:
    """Whether an evaluation is under way; a referee that waits for one is not."""
    begun = worker.said("evaluation begins")
    if begun is None:
        return False
    about = {"evaluation": begun["evaluation"]}
    return not (worker.said("evaluation called off", **about) or worker.said("evaluation ends", **about))


def test_a_job_and_its_evaluations_stay_in_the_sandbox_that_it_asks_for_or_began_in(
    there: Fleet, model: LlmServer
) -> None:
    with start_llm_server(script(QUICK)) as quick:
        unsafe = there.worker(0, KERNELWRIGHT_SANDBOX="process")
        asking = ask(there, quick, sandbox="docker")
        assert there.wait_for(ask(there, quick)).sandbox == "process"
        assert there.job(asking).status.value == "queued"
        unsafe.send(signal.SIGTERM)
        assert unsafe.wait() == 0
        safe = there.worker(1)
        assert there.wait_for(asking).sandbox == "docker"
        begun = ask(there, model)  # its evaluation takes longer than the signal
        safe.wait_for("evaluation begins", job=begun)
        safe.send(signal.SIGTERM)
        assert safe.wait() == 0
        unsafe = there.worker(0, KERNELWRIGHT_SANDBOX="process")
        time.sleep(3)
        assert there.job(begun).status.value == "queued"
        assert unsafe.said("job begins", job=begun) is None and unsafe.said("evaluation begins", job=begun) is None
        there.worker(1)
        assert there.wait_for(begun).sandbox == "docker"
        with there.store.read() as session:
            found = [each.sandbox for job in (asking, begun) for each in results.list_evaluations(session, job)]
        assert found == ["docker", "docker"]


def test_a_run_over_a_model_survives_its_worker_and_waits_for_its_regions_jobs(there: Fleet) -> None:
    with start_llm_server(script(QUICK)) as model:
        settings = override(there.settings, model="openai/one", api_base=model.url, rounds=1)
        with there.store.write() as session:
            run_id = queue_model(
                session,
                task_from_source(MODEL.replace("torch.randn(64, 32)", "torch.randn(16384, 32)"), name="net"),
                settings=settings,
                user="ann",
                priority="normal",
            )
        first = there.worker()
        first.wait_for("job begins", job=run_id)
        first.send(signal.SIGKILL)
        first.process.wait()
        second = there.worker()
        second.wait_for("job begins", job=run_id)
        job = there.wait_for(run_id, within_s=240)
        assert (job.status.value, job.stop_reason) == ("done", "nothing_faster")
        with there.store.read() as session:
            run = model_runs.get_run(session, run_id)
            regions = jobs.list_jobs(session, batch_id=run.batch_id)
        assert (run.stage, run.kept) == ("done", ())
        assert len(regions) == len(run.regions) > 1
        assert all(each.status.value == "done" and each.user == "ann" for each in regions)
        assert model.stats()["replies"] == len(regions)


def test_a_worker_holds_candidates_and_models_to_the_weights_that_a_job_names(there: Fleet) -> None:
    given = read_weights(state_file({"scale": ("F32", [1], struct.pack("<f", 1.0))}))
    other = read_weights(state_file({"other": ("F32", [1], b"????")}))
    for weights in (given, other):
        keep_weights(there.store, "ann", source_of(weights))
    scaled = task_from_source(SCALED, name="scaled")
    ann = Principal("ann", Role.SUBMITTER)
    judged, _ = evaluate_for(ann, scaled, SCALED_NEW, weights=given.digest, settings=there.settings, store=there.store)
    refused, _ = submit_model_for(
        ann, scaled, options={}, plan_only=True, weights=other.digest, settings=there.settings, store=there.store
    )
    planned, _ = submit_model_for(
        ann, scaled, options={}, plan_only=True, weights=given.digest, settings=there.settings, store=there.store
    )
    there.worker()
    assert there.wait_for(judged, within_s=240).status.value == "done"
    with there.store.read() as session:
        (evaluation,) = results.list_evaluations(session, judged)
    assert GIVEN_WEIGHTS in [check["inputs"] for check in evaluation.result["correctness"]["checks"]]
    job = there.wait_for(refused, within_s=120)
    assert job.status.value == "failed" and "scale" in str(job.error), "they are another model's"
    assert there.wait_for(planned, within_s=120).stop_reason == "planned"


def test_workers_of_one_device_take_turns(there: Fleet, model: LlmServer) -> None:
    with start_llm_server(script(QUICK)) as quick:
        there.worker(0, ready=False)
        there.worker(0, ready=False)
        for worker in there.started:
            worker.wait_for("worker ready")
        found = [ask(there, quick, user=f"user{number}") for number in range(4)]
        for job_id in found:
            there.wait_for(job_id)
    spans = []
    for worker in there.started:
        began: dict[str, float] = {}
        for line in worker.lines():
            if line["message"] == "evaluation: running the reference":
                began[line["evaluation"]] = moment(line)
            elif line["message"].startswith("evaluation ends"):
                spans.append((began[line["evaluation"]], moment(line)))
    spans.sort()
    assert len(spans) == len(found)
    assert all(earlier[1] <= later[0] + 0.002 for earlier, later in itertools.pairwise(spans)), spans
    with hold_device(
        lock_paths(there.folder, ["host-cores-0"]), on_wait=lambda: pytest.fail("the device is still held")
    ):
        pass


def test_nothing_is_lost_with_the_queues_own_database(there: Fleet, model: LlmServer) -> None:
    begun, waits = ask(there, model), ask(there, model, user="other")
    worker = there.worker()
    worker.wait_for("evaluation: building", job=begun)
    worker.send(signal.SIGKILL)
    worker.process.wait()
    queue = Path(queue_url(there.settings).removeprefix("sqlite:///"))
    for name in ("", "-wal", "-shm"):
        Path(f"{queue}{name}").unlink(missing_ok=True)
    there.worker()
    for job_id in (begun, waits):
        assert there.wait_for(job_id).status.value == "done"
        assert len(there.evaluated(job_id)) == 1
    assert model.stats()["replies"] == 2


def test_one_job_that_cannot_be_run_keeps_no_other_from_its_turn(there: Fleet) -> None:
    with start_llm_server(script(QUICK)) as model:
        elsewhere = ask(there, model)
        invalid = ask(there, model, source=OP.replace("torch.relu(x) * 2", "x @ torch.zeros(3)"))
        no_key = ask(there, model, api_key_file=there.folder / "missing")
        garbage, strange = ask(there, model), ask(there, model)
        best_first = ask(there, model, priority="high")
        with there.store.write() as session:
            jobs.update_options(session, elsewhere, device="a GPU", device_kind="0123abcd")
            jobs.update_options(session, garbage, rounds="many", price=["x"])
            jobs.update_options(session, strange, device_kind="../" * 100_000, device=7)
            again = job_queue.add_queued_job(
                session,
                task_id=save_task(session, Task(name="op", source=OP)),
                kind="evaluate",
                platform="cpu",
                model=None,
                strategy=None,
                options={},
                user="local",
            )
            results.add_candidate(session, again, round_number=0, candidate_hash=candidate_hash(QUICK), source=QUICK)
        worker = there.worker()
        assert there.wait_for(best_first).status.value == "done"
        assert there.wait_for(again).status.value == "done"
        assert [digest for digest, _ in there.evaluated(again)] == [candidate_hash(QUICK)]
        assert there.wait_for(invalid).status.value == "failed"
        assert there.job(invalid).stop_reason == "task_invalid"
        job = there.wait_for(no_key)
        assert (job.status.value, job.error) == ("failed", "the model's key cannot be read on this worker")
        assert there.wait_for(garbage).status.value == "failed"
        assert there.job(elsewhere).status.value == "queued"
        assert there.job(strange).status.value in ("queued", "failed")
        assert worker.process.poll() is None
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_worker_whose_docker_goes_away_gives_its_work_back_and_ends(there: Fleet, model: LlmServer) -> None:
    with docker_by_way_of(there.folder / "docker.sock") as cut:
        worker = there.worker(DOCKER_HOST=f"unix://{there.folder}/docker.sock")
        job_id = ask(there, model)
        worker.wait_for("evaluation: building", job=job_id)
        cut()
        assert worker.wait(60) == 3
    job = there.job(job_id)
    assert (job.status.value, job.worker_id) == ("queued", None)
    assert there.evaluated(job_id) == []


@contextlib.contextmanager
def docker_by_way_of(path: Path) -> Iterator[Callable[[], None]]:
    """Docker's socket at another path, until it is cut."""
    real = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    open_now: list[socket.socket] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(real)
                open_now.extend((near, far))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=ends, daemon=True).start()

    def cut() -> None:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        for end in open_now:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield cut
    finally:
        cut()
        server.join(5)
        listener.close()
        for end in open_now:
            end.close()


def test_a_store_that_is_locked_for_long_costs_no_job_and_no_worker(there: Fleet, model: LlmServer) -> None:
    both = pair(there)
    job_id = ask(there, model)
    who(both, "evaluation begins", job=job_id)
    path = str(there.store.engine.url.database)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as locked:
        locked.execute("BEGIN IMMEDIATE")
        time.sleep(20)
        locked.execute("ROLLBACK")
    assert there.wait_for(job_id).status.value == "done"
    assert sorted(there.seen()) == sorted(worker.pid for worker in both)
    check_once(there, job_id, model)


@pytest.mark.postgres
def test_on_postgresql_jobs_are_done_and_picked_up_as_well(
    tmp_path: Path, postgres_url: str, model: LlmServer, command_server: CommandServer
) -> None:
    with fleet(tmp_path, command_server, KERNELWRIGHT_DATABASE_URL=postgres_url) as there:
        both = pair(there)
        job_id = ask(there, model)
        who(both, "evaluation: building", job=job_id)
        victim = who(both, "evaluation begins", job=job_id)
        survivor = other(both, victim)
        began = victim.send(signal.SIGKILL)
        victim.process.wait()
        survivor.wait_for("evaluation begins", within_s=30, job=job_id)
        took_s = time.monotonic() - began
        assert there.wait_for(job_id).status.value == "done"
        check_once(there, job_id, model)
        survivor.send(signal.SIGTERM)
        assert survivor.wait() == 0
        check_logs(there)
    print(f"\npicked up {took_s:.1f} s after the kill")


IDLE_SHARE = 0.01
"""Of a core, that a worker without work may take. It took 0.4 to 0.6 % on a quiet host of two cores."""


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_an_idle_worker_is_quiet_and_begins_a_job_at_once(
    tmp_path: Path, model: LlmServer, command_server: CommandServer, request: pytest.FixtureRequest, kind: str
) -> None:
    url = {} if kind == "sqlite" else {"KERNELWRIGHT_DATABASE_URL": request.getfixturevalue("postgres_url")}
    with fleet(tmp_path, command_server, **url) as there:
        worker = there.worker()
        time.sleep(3)  # what it does at its start
        before_s, began = processor_s(worker.pid), time.monotonic()
        time.sleep(20)
        share = (processor_s(worker.pid) - before_s) / (time.monotonic() - began)
        assert share < IDLE_SHARE
        begun_s, cancelled_s = [], []
        for _ in range(2):
            queued = time.time()
            job_id = ask(there, model)
            begun_s.append(moment(worker.wait_for("job begins", job=job_id)) - queued)
            worker.wait_for("evaluation: building", job=job_id)
            cancelled = time.monotonic()
            cancel_job(there.store, job_id)
            assert there.wait_for(job_id).status.value == "cancelled"
            cancelled_s.append(time.monotonic() - cancelled)
        assert max(begun_s) < 2.0 and max(cancelled_s) < 5.0
    print(f"\nidle: {share:.2%} of a core; begun after {max(begun_s):.2f} s, cancelled after {max(cancelled_s):.2f} s")


def processor_s(pid: int) -> float:
    """The processor time of all threads of a process."""
    folder = Path(f"/proc/{pid}/task")
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in folder.iterdir()) / 1e9
