"""A run over a whole model: its regions become jobs, what pays is put back, and what is delivered is proven."""

import fcntl
import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from db.evaluations import results
from db.jobs import jobs, model_runs
from db.records import JobStatus, ModelRunRecord
from db.store import Store
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest, Conflict, Unavailable
from service.mock_llm import Entry, Script, When
from service.settings import Settings, override
from service.whole_models.report import region_rows
from service.whole_models.run import faster_baselines, read_report, run_folder, start_run, worth_a_job
from tests.support.fast_batches import coder, quick
from tests.support.model_runs import BREAKS, MODEL, SLOW, carry_out, put_capture, replace_what_is_slow


@pytest.fixture(scope="session")
def captured() -> str:
    """The capture of `MODEL`, by the program that makes it in a sandbox."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export uses what torch warns of
        found = import_module("whole_models.capture.capture").capture(MODEL, b"", compile=False, budget_s=60.0)
    return json.dumps({"ok": True, **found})


@contextmanager
def begun(
    monkeypatch: pytest.MonkeyPatch, folder: Path, captured: str, speeds: list[float] | Script, **options: object
) -> Iterator[tuple[int, Settings, Store]]:
    """A run that has captured its model; the Coder writes kernels of these speeds, one a region."""
    script = speeds if isinstance(speeds, Script) else coder(speeds)
    with quick(monkeypatch, folder, script, model="openai/one", budget_usd=5, **options) as (settings, store):
        replace_what_is_slow(monkeypatch.setattr)
        (folder / "net.py").write_text(MODEL)
        run_id = start_run(str(folder / "net.py"), settings=settings, store=store, state=None, out=folder / "faster")
        put_capture(settings, run_id, captured)
        yield run_id, settings, store


def stored(store: Store, run_id: int) -> ModelRunRecord:
    with store.read() as session:
        return model_runs.get_run(session, run_id)


def test_a_model_is_optimized_region_by_region_and_delivered_with_its_proof(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        run = report.run
        assert (run.status, run.stage) == (JobStatus.DONE, "done")
        assert len(run.regions) >= 2
        assert all(region.job_id is not None for region in run.regions), "each region has its job"
        assert run.kept is not None and set(run.kept) == {region.name for region in run.regions}
        assert report.proof is not None and report.proof.verdict == "passed"
        with store.read() as session:
            proof = results.get_evaluation(session, str(run.evaluation_id))
            batch = jobs.list_jobs(session, batch_id=run.batch_id)
        assert proof.source.count("speed = 2.0") == len(run.regions), "the proof is of what is delivered"
        assert {job.task.suite for job in batch} == {"regions"}
    faster = tmp_path / "faster"
    assert sorted(path.stem for path in (faster / "kernels").iterdir()) == sorted(run.kept)
    text = (faster / "report.md").read_text()
    assert all(name in text for name in run.kept)
    assert "from model import Model" in text


def test_a_kernel_that_does_not_pay_in_the_model_is_taken_out_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0, 1.2]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        rows = {row["name"]: row for row in region_rows(store, run)}
        assert run.kept
        assert {rows[name]["speedup"] for name in run.kept} == {2.0}
        taken_out = [row for row in rows.values() if row["speedup"] == 1.2]
        assert taken_out and all("the model is no slower without it" in row["why"] for row in taken_out)
        assert any(trial["taken_out"] and trial["decision"] == "better" for trial in run.trials)


def test_a_kernel_with_which_the_model_is_wrong_is_left_out_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [BREAKS, 2.0]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        rows = {row["name"]: row for row in region_rows(store, run)}
        assert run.kept and all(rows[name]["speedup"] == 2.0 for name in run.kept)
        broken = [row for row in rows.values() if row["speedup"] == BREAKS]
        assert broken and all("the model does not pass with it (wrong_output)" in row["why"] for row in broken)


def test_where_nothing_pays_nothing_is_delivered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [0.0]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        assert (report.run.status, report.run.kept, report.proof, report.delivered) == (JobStatus.DONE, (), None, None)
    assert not (tmp_path / "faster").exists()


def test_what_torch_compile_alone_does_faster_is_not_delivered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [SLOW]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        assert report.run.status is JobStatus.DONE
        assert report.proof is not None and faster_baselines(report.proof) == ["compile"]
        assert (report.run.kept, report.delivered) == ((), None)
    assert not (tmp_path / "faster").exists()


def test_a_run_whose_process_is_gone_is_not_shown_as_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        with (run_folder(settings, run_id) / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert read_report(run_id, settings=settings, store=store).run.status is JobStatus.RUNNING
        found = read_report(run_id, settings=settings, store=store).run
        assert (found.status, found.error) == (JobStatus.INTERRUPTED, "its process ended in the middle of it")


def test_a_run_without_a_model_to_work_with_says_so_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    refused = Script(match=(Entry(fault="unauthorized", when=When(request="write"), repeat=True),))
    with begun(monkeypatch, tmp_path, captured, refused) as (run_id, settings, store):
        with pytest.raises(Unavailable, match=f"models resume {run_id}"):
            carry_out(run_id, settings, store)
        run = stored(store, run_id)
        assert (run.status, run.stage, run.kept) == (JobStatus.FAILED, "optimize", None)


def test_the_budget_is_shared_by_what_regions_take_of_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        with store.read() as session:
            options = {job.id: job.options for job in jobs.list_jobs(session, batch_id=run.batch_id)}
        total = sum(region.share for region in run.regions)
        for region in run.regions:
            assert region.job_id is not None
            assert options[region.job_id]["own_budget_usd"] == pytest.approx(5 * region.share / total)


def test_regions_that_together_could_gain_too_little_get_no_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        regions = list(carry_out(run_id, settings, store).run.regions)
    small = [replace(region, share=share) for region, share in zip(regions * 2, (0.3, 0.004, 0.003), strict=False)]
    assert [region.share for region in worth_a_job(small)] == [0.3]
    assert [region.share for region in worth_a_job([replace(small[1], share=0.02), *small])] == [0.3, 0.02]


def test_a_run_that_is_stopped_between_its_jobs_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        cancel = CancelToken()
        cancel.request("interrupted")
        with pytest.raises(Cancelled):
            carry_out(run_id, settings, store, cancel=cancel)
        assert (stored(store, run_id).status, stored(store, run_id).stage) == (JobStatus.INTERRUPTED, "optimize")
        first = stored(store, run_id).batch_id
        report = carry_out(run_id, settings, store)
        assert report.run.status is JobStatus.DONE
        assert report.run.batch_id == first, "jobs are not queued twice"
        with pytest.raises(Conflict, match=f"model run {run_id} is done"):
            carry_out(run_id, settings, store)


def test_a_run_that_another_process_works_on_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        with (run_folder(settings, run_id) / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(Conflict, match="being worked on by another process"):
                carry_out(run_id, settings, store)
        assert stored(store, run_id).status is JobStatus.RUNNING


def test_a_run_that_is_killed_again_and_again_ends_like_one_that_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        values = {
            "data_dir": str(settings.data_dir),
            "api_base": settings.api_base,
            "rounds": 1,
            "price": "1.5,6",
            "model": "openai/one",
            "budget_usd": 5,
        }
        command = [sys.executable, "-m", "tests.support.model_runs", json.dumps(values), str(run_id)]
        kills = 0
        for after_s in (0.4, 0.8, 1.2, None):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None and process.stdout.readline() == "begins\n"
            try:
                process.wait(after_s if after_s is not None else 120)
            except subprocess.TimeoutExpired:
                process.kill()
            kills += process.wait() == -signal.SIGKILL
            process.stdout.close()
        report = read_report(run_id, settings=settings, store=store)
        assert (report.run.status, report.run.stage) == (JobStatus.DONE, "done")
        assert report.proof is not None and report.delivered == tmp_path / "faster"
        assert kills >= 2
        asked = [(trial["question"], trial["candidate"], trial["champion"]) for trial in report.run.trials]
        assert len(asked) == len(set(asked)), "no trial was decided twice"
        with store.read() as session:
            calls = sum(job.tokens > 0 for job in jobs.list_jobs(session, batch_id=report.run.batch_id))
        assert calls == len(report.run.regions)


@pytest.mark.parametrize("platform", ["riscv", "cuda", "simulated"])
def test_platforms_that_cannot_time_a_model_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str, platform: str
) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        (tmp_path / "net.py").write_text(MODEL)
        with pytest.raises(BadRequest, match=f"platform '{platform}': whole models are for cpu"):
            start_run(
                str(tmp_path / "net.py"),
                settings=override(settings, platform=platform),
                store=store,
                state=None,
                out=None,
            )


def test_a_folder_that_is_not_ours_is_not_written_into(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "net.py").write_text(MODEL)
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        with pytest.raises(BadRequest, match="exists and was not written by Kernelwright"):
            start_run(str(tmp_path / "net.py"), settings=settings, store=store, state=None, out=tmp_path / "mine")
        with pytest.raises(BadRequest, match="make it first"):
            start_run(str(tmp_path / "net.py"), settings=settings, store=store, state=None, out=tmp_path / "no" / "no")
        with pytest.raises(BadRequest, match=r"--state .*cannot be read"):
            start_run(
                str(tmp_path / "net.py"), settings=settings, store=store, state=tmp_path / "none.safetensors", out=None
            )
