"""Noisy results of a batch are measured again at its end, and when it is resumed, as long as the machine is quiet."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from db.evaluations import results
from db.store import Store
from db.tables import EvaluationRow, JobRow
from evaluator.evaluation import Evaluation
from evaluator.platforms.cpu.platform import CpuPlatform
from evaluator.platforms.simulated.platform import SimulatedPlatform
from sandbox.base import SandboxUnavailable
from service.audit import retract_evaluation
from service.batches.manage import show_batch, start_batch
from service.batches.spec import make_spec
from service.cancellation import Cancelled, CancelToken
from service.cli.app import run
from service.evaluation_context import EvaluationContext
from service.jobs import remeasure
from service.jobs.query import REMEASURED
from service.jobs.remeasure import MOST_TRIES, Remeasured, remeasure_batch
from service.settings import Settings
from tasks.outcomes import NOISY, Verdict
from tests.support.fast_batches import coder, quick, run_all, write_ops
from tests.support.killable_jobs import QuickContext, opened_quickly


@dataclass(frozen=True)
class NoisyContext(QuickContext):
    """Measures on a machine that is busy all the time."""

    def evaluate(self, source: str, **given: Any) -> Evaluation:
        found = super().evaluate(source, **given)
        return replace(found, tags=(*found.tags, NOISY))


@contextlib.contextmanager
def opened_noisily(task: Any, settings: Settings, **given: Any) -> Iterator[EvaluationContext]:
    with opened_quickly(task, settings, **given) as context:
        yield NoisyContext(**vars(context))


@dataclass(frozen=True)
class WrongContext(QuickContext):
    """Finds every candidate wrong."""

    def evaluate(self, source: str, **given: Any) -> Evaluation:
        found = super().evaluate(source, **given)
        return replace(found, verdict=Verdict.WRONG_OUTPUT, code="values", speedup=None, tags=())


@contextlib.contextmanager
def opened_wrongly(task: Any, settings: Settings, **given: Any) -> Iterator[EvaluationContext]:
    with opened_quickly(task, settings, **given) as context:
        yield WrongContext(**vars(context))


@contextlib.contextmanager
def not_opened(task: Any, settings: Settings, **given: Any) -> Iterator[EvaluationContext]:
    raise SandboxUnavailable("Docker does not answer", "start it")
    yield


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, Settings, Store]]:
    """A batch of three jobs that are done: the first two are noisy, one of them for another reason as well."""
    monkeypatch.setattr(remeasure, "open_evaluation_context", opened_quickly)
    load(monkeypatch, 0.0)
    with quick(monkeypatch, tmp_path, coder([4.0, 2.0, 3.0])) as (settings, store):
        monkeypatch.setenv("KERNELWRIGHT_DATA_DIR", str(settings.data_dir))
        spec = make_spec({"tasks": write_ops(tmp_path, 3), "models": ["openai/scripted"]})
        batch_id = start_batch(spec, settings=settings, store=store)
        run_all(batch_id, settings, store)
        first, second, _ = (job.evaluation for job in show_batch(store, batch_id).jobs)
        with store.write() as session:
            session.get_one(EvaluationRow, first).tags = ["custom_kernel", NOISY]
            session.get_one(EvaluationRow, second).tags = ["custom_kernel", NOISY, "uneven"]
        yield batch_id, settings, store


def load(monkeypatch: pytest.MonkeyPatch, busy: float | None) -> None:
    """Let others keep so much of the machine busy; no time passes while it is looked at."""

    def looked_at(self: CpuPlatform, wait: Callable[[], object]) -> float | None:
        return busy

    monkeypatch.setattr(CpuPlatform, "load", looked_at)


def tries(store: Store, batch_id: int) -> list[list[bool]]:
    """By job, whether each measurement counted."""
    with store.read() as session:
        return [
            [bool(event.data["counts"]) for event in results.list_events(session, job.job, kinds=[REMEASURED])]
            for job in show_batch(store, batch_id).jobs
        ]


def test_what_is_noisy_is_measured_again_and_counts_in_every_figure(batch: tuple[int, Settings, Store]) -> None:
    batch_id, settings, store = batch
    before = show_batch(store, batch_id)
    assert [job.counted_speedup("eager") for job in before.jobs] == [None, None, 3.0]
    assert before.groups[0].figures.fast_p[0.5] == 1.0 and before.groups[0].figures.fast_p[1.0] == pytest.approx(1 / 3)
    told: list[int] = []
    found = remeasure_batch(
        batch_id, settings=settings, store=store, cancel=CancelToken(), on_job=lambda job: told.append(job.id)
    )
    after = show_batch(store, batch_id)
    assert found == Remeasured(counts=1, left=0) and told == [after.jobs[0].job]
    assert [job.counted_speedup("eager") for job in after.jobs] == [4.0, None, 3.0]
    assert after.groups[0].figures.fast_p[1.0] == pytest.approx(2 / 3)
    assert tries(store, batch_id) == [[True], [], []]
    assert "4.0" in (settings.job_dir(told[0]) / "best.py").read_text(), "the kernel is exported with what counts"


def test_a_busy_machine_measures_nothing_and_says_how_many_are_left(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, settings, store = batch
    for busy in (0.5, None):
        load(monkeypatch, busy)
        found = remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken())
        assert found == Remeasured(counts=0, left=1)
    assert tries(store, batch_id) == [[], [], []]


def test_a_result_that_stays_noisy_is_tried_so_often_and_then_left(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, settings, store = batch
    monkeypatch.setattr(remeasure, "open_evaluation_context", opened_noisily)
    for _ in range(2):
        found = remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken())
        assert found == Remeasured(counts=0, left=0)
    assert tries(store, batch_id) == [[False] * MOST_TRIES, [], []]
    assert show_batch(store, batch_id).jobs[0].reason == NOISY


def test_a_stop_ends_it_at_once(batch: tuple[int, Settings, Store]) -> None:
    batch_id, settings, store = batch
    cancel = CancelToken()
    cancel.request("interrupted")
    with pytest.raises(Cancelled):
        remeasure_batch(batch_id, settings=settings, store=store, cancel=cancel)
    assert tries(store, batch_id) == [[], [], []]


def test_resuming_a_batch_that_is_done_measures_what_is_noisy(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load(monkeypatch, 0.9)
    assert run(["batch", "resume", "1"]) == 0
    told = capsys.readouterr()
    assert (
        "noisy results left, because the machine is busy: 1; on a quiet one `kernelwright batch resume 1`" in told.err
    )
    assert "67% passed with times that do not count: 1.0 until measured again" in told.out
    load(monkeypatch, 0.0)
    assert run(["batch", "resume", "1"]) == 0
    told = capsys.readouterr()
    assert "noisy, measured again" in told.err and "noisy results that count now: 1" in told.err
    assert "33% passed with times that do not count" in told.out


def test_a_kernel_that_is_found_wrong_when_it_is_measured_again_is_tried_no_more_and_passes_nowhere(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, settings, store = batch
    monkeypatch.setattr(remeasure, "open_evaluation_context", opened_wrongly)
    found = remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken())
    assert found == Remeasured(counts=0, left=0)
    monkeypatch.setattr(remeasure, "open_evaluation_context", opened_quickly)
    assert remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken()) == found
    assert tries(store, batch_id) == [[False], [], []], "asking again must not help what is right only sometimes"
    after = show_batch(store, batch_id)
    assert [job.outcome for job in after.jobs] == ["failed", "passed", "passed"]
    assert after.jobs[0].reason == "found wrong when it was evaluated again" and not after.jobs[0].counts
    assert after.groups[0].figures.fast_p[0.5] == pytest.approx(2 / 3)
    with store.read() as session:
        (event,) = results.list_events(session, after.jobs[0].job, kinds=[REMEASURED])
    retract_evaluation(store, str(event.data["evaluation"]), actor="ada", reason="a broken fan")
    assert show_batch(store, batch_id).jobs[0].outcome == "passed", "a refusal that was taken back refuses nothing"
    assert remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken()) == Remeasured(1, 0)


def test_what_other_machines_measured_is_left_without_starting_anything(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, settings, store = batch
    monkeypatch.setattr(remeasure, "open_evaluation_context", None)  # it is not opened
    with store.write() as session:
        row = session.get_one(JobRow, show_batch(store, batch_id).jobs[0].job)
        row.options = {**row.options, "device_kind": "another"}
    found = remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken())
    assert found == Remeasured(counts=0, left=0, elsewhere=1)


def test_a_missing_sandbox_leaves_its_results_and_fails_nothing(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remeasure, "open_evaluation_context", not_opened)
    assert run(["batch", "resume", "1"]) == 0
    assert "noisy results left, because this machine lacks their device or sandbox: 1" in capsys.readouterr().err


def test_a_device_that_cannot_tell_its_load_keeps_no_other_from_being_measured(
    batch: tuple[int, Settings, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id, settings, store = batch

    def unknown(self: SimulatedPlatform, wait: Callable[[], object]) -> float | None:
        return None

    monkeypatch.setattr(SimulatedPlatform, "load", unknown)
    first, second, _ = show_batch(store, batch_id).jobs
    with store.write() as session:
        session.get_one(EvaluationRow, second.evaluation).tags = ["custom_kernel", NOISY]
        row = session.get_one(JobRow, first.job)
        device = SimulatedPlatform().device().describe()
        row.platform, row.options = "simulated", {**row.options, "device": device, "device_kind": None}
    found = remeasure_batch(batch_id, settings=settings, store=store, cancel=CancelToken())
    assert found == Remeasured(counts=1, left=1)
    assert tries(store, batch_id) == [[], [True], []]
