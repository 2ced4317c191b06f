"""Batches from their spec to their figures; all parts are real but the evaluator (tests/support/fast_batches.py)."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from agents.protocols import Event
from db.evaluations import results
from db.jobs import job_queue, jobs
from db.records import JobRecord, JobStatus
from db.store import Store
from db.tables import EvaluationRow, JobRow
from service.batches.export import COLUMNS, batch_json, csv_text
from service.batches.forms import kernelbench_form
from service.batches.manage import cancel_batch, compare_batches, list_batches, resume_batch, show_batch, start_batch
from service.batches.spec import MAX_JOBS, BatchSpec, make_spec, read_spec
from service.cancellation import CancelToken
from service.cli.app import run
from service.cli.batch_output import show_comparison
from service.database import open_store
from service.errors import BadRequest
from service.jobs.liveness import this_process
from service.jobs.local import run_batch, run_queued
from service.mock_llm import start_llm_server
from service.settings import load_settings
from service.weights import WeightsReader, read_state
from tasks.source_kernel import SourceKernel, constant_text
from tests.support.fast_batches import coder, quick, run_all, write_ops
from tests.support.weights import state_file

MODEL = "openai/scripted"


def jobs_of(store: Store, batch_id: int) -> list[JobRecord]:
    with store.read() as session:
        return jobs.list_jobs(session, batch_id=batch_id)[::-1]


def spec_of(tasks: Sequence[str], **values: object) -> BatchSpec:
    return make_spec({"tasks": list(tasks), "models": [MODEL], **values})


# --- what is asked for


def test_a_file_says_what_to_run_and_options_go_before_it(tmp_path: Path) -> None:
    path = tmp_path / "week.toml"
    path.write_text(
        'tasks = ["starter", "op.py"]\nsamples = 2\nbudget_usd = 5\n'
        'models = ["builtin/compiler", { name = "openai/x", price = "1,2" }]\n[job]\nrounds = 3\nbudget_usd = 0.5\n'
    )
    spec = read_spec(path, samples=4, job_rounds=7, budget_usd=None)
    assert (spec.samples, spec.job.rounds, spec.job.budget_usd, spec.budget_usd) == (4, 7, 0.5, 5)
    assert [choice.name for choice in spec.choices] == ["builtin/compiler", "openai/x"]
    assert spec.choices[1].price == "1,2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks = [", "is not TOML"),
        ('tasks = ["a"]\nmodel = "x"', r"model: unknown key; there is: name, tasks, models"),
        ('tasks = ["a"]\n[job]\nround = 2', r"job.round: unknown key; there is: strategy, rounds"),
        ("samples = 2", "tasks: missing; name suites"),
        ("tasks = []", "tasks: "),
        ('tasks = ["a"]\nsamples = 0', "samples: input should be greater than or equal to 1"),
        ('tasks = ["a"]\nbudget_usd = -1', "budget_usd: "),
        ('tasks = ["a"]\nbudget_usd = nan', "budget_usd: "),
        ('tasks = ["a"]\njob = 3', "job: "),
        ('tasks = "starter"', "tasks: "),
        ('tasks = ["a"]\npriority = "urgent"', "priority: "),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_the_key(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadRequest, match=said) as refused:
        read_spec(path)
    assert "bad.toml" in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    (tmp_path / "large.toml").write_text("#" * (1 << 20) + "##")
    for name, said in (("none.toml", "cannot be read"), ("latin.toml", "is not TOML"), ("large.toml", "1 MiB")):
        with pytest.raises(BadRequest, match=said):
            read_spec(tmp_path / name)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"models": ["manual/inbox"]}, "works with files of one machine"),
        ({"models": ["builtin/best"]}, "model 'builtin/best' is unknown; built in: builtin/compiler"),
        ({"platforms": ["abacus"]}, "platform 'abacus' is unknown"),
        ({"models": ["builtin/compiler", "builtin/compiler"]}, "one is named twice"),
        ({"job": {"strategy": "luck"}}, "luck"),
        ({"job": {"price": "free"}}, "price free"),
        ({"job": {"api_base": "http://me:secret@host/v1"}}, "would be stored and shown"),
        ({"job": {"api_key_file": "/nowhere/key"}}, "cannot be read"),
        ({"tasks": ["nothing/here"]}, "none can be used; nothing/here"),
        ({"tasks": ["starter"], "samples": 1000, "models": ["builtin/compiler", "openai/x"]}, f"more than {MAX_JOBS}"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_stored(values: dict[str, object], said: str) -> None:
    settings = load_settings()
    store = open_store(settings)
    try:
        with pytest.raises(BadRequest, match=said) as refused:
            start_batch(make_spec({"tasks": ["starter/gelu_tanh"], **values}), settings=settings, store=store)
        assert "secret" not in str(refused.value)
        assert list_batches(store) == []
        with store.read() as session:
            assert jobs.list_jobs(session) == []
    finally:
        store.close()


def test_strangers_name_neither_files_of_this_machine_nor_keys_in_them(tmp_path: Path) -> None:
    settings = load_settings()
    store = open_store(settings)
    (op,) = write_ops(tmp_path, 1)
    key = tmp_path / "key"
    key.write_text("abc")
    try:
        with pytest.raises(BadRequest, match="no such task;"):
            start_batch(make_spec({"tasks": [op]}), settings=settings, store=store, files=False)
        for job, models in (({"api_key_file": str(key)}, [MODEL]), ({}, [{"name": MODEL, "api_key_file": str(key)}])):
            spec = make_spec({"tasks": ["starter"], "job": job, "models": models})
            with pytest.raises(BadRequest, match="only its own users may"):
                start_batch(spec, settings=settings, store=store, files=False)
    finally:
        store.close()


def test_thousands_of_unknown_names_are_refused_at_once() -> None:
    settings = load_settings()
    store = open_store(settings)
    names = [f"starter/gelu_tanhh{number}" for number in range(5000)]
    try:
        began_s = time.monotonic()
        batch_id = start_batch(make_spec({"tasks": ["starter/gelu_tanh", *names]}), settings=settings, store=store)
        assert time.monotonic() - began_s < 5
        refused = show_batch(store, batch_id).refused
    finally:
        store.close()
    assert [ref for ref, _ in refused] == names
    assert "did you mean starter/gelu_tanh?" in refused[0][1]
    assert "did you mean" not in refused[-1][1]
    assert "no such task" in refused[-1][1]


def test_suites_patterns_and_names_are_resolved_and_each_task_counts_once(tmp_path: Path) -> None:
    settings = load_settings()
    store = open_store(settings)
    bad = tmp_path / "bad.py"
    bad.write_text("def (")
    try:
        tasks = ["starter/g*", "starter/gelu_tanh", "starter/mixed_pool", "no/such", str(bad)]
        batch_id = start_batch(make_spec({"tasks": tasks}), settings=settings, store=store)
        details = show_batch(store, batch_id)
        names = [job.task.partition("/")[2] for job in details.jobs]
        assert names == ["gated_running_mean", "gelu_tanh", "group_norm_silu", "mixed_pool"]
        assert [ref for ref, _ in details.refused] == ["no/such", str(bad)]
        assert "is not Python" in details.refused[1][1]
        suite = start_batch(make_spec({"tasks": ["starter"]}), settings=settings, store=store)
        assert show_batch(store, suite).line.jobs == 18
    finally:
        store.close()


def test_a_batch_on_finite_inputs_has_tasks_of_their_own(tmp_path: Path) -> None:
    settings = load_settings()
    store = open_store(settings)
    (op,) = write_ops(tmp_path, 1)
    Path(op).write_text(Path(op).read_text() + '\nDOMAIN = "bounded"\n')
    tasks = ["starter/gelu_tanh", op]
    try:
        asked = start_batch(make_spec({"tasks": tasks, "domain": "finite"}), settings=settings, store=store)
        named = start_batch(
            make_spec({"tasks": ["starter.finite/gelu_tanh", "starter.finite/*"]}), settings=settings, store=store
        )
        first, second = show_batch(store, asked), show_batch(store, named)
        assert [job.task for job in first.jobs] == [job.task for job in second.jobs] == ["starter.finite/gelu_tanh"]
        assert ["declares the DOMAIN bounded" in reason for _, reason in first.refused] == [True]
        assert [ref for ref, _ in second.refused] == ["starter.finite/*"], "a pattern is over the tasks that are listed"
        whole = start_batch(make_spec({"tasks": ["*/gelu_tanh"]}), settings=settings, store=store)
        assert [job.task for job in show_batch(store, whole).jobs] == ["starter/gelu_tanh"]
        suite = start_batch(make_spec({"tasks": ["starter.finite"]}), settings=settings, store=store)
        assert show_batch(store, suite).line.jobs == 18
    finally:
        store.close()
    with pytest.raises(BadRequest, match="domain: input should be 'finite'"):
        make_spec({"tasks": tasks, "domain": "nan"})


def test_whole_models_of_a_batch_have_the_weights_that_its_file_names(tmp_path: Path) -> None:
    settings = load_settings()
    store = open_store(settings)
    first, second = write_ops(tmp_path, 2)
    file = tmp_path / "w.safetensors"
    file.write_bytes(state_file({"weight": ("F32", [1], b"abcd")}))
    toml = tmp_path / "batch.toml"
    toml.write_text(f'tasks = ["{first}", "{second}"]\nwhole_models = true\nweights = {{ "{first}" = "{file}" }}\n')
    digest = read_state(file).digest
    try:
        for spec in (read_spec(toml), read_spec(toml).model_copy(update={"weights": {first: digest}})):
            batch = start_batch(spec, settings=settings, store=store)
            assert [job.options.get("weights") for job in jobs_of(store, batch)] == [digest, None]
            assert all(WeightsReader(store).of(job) for job in jobs_of(store, batch)[:1])
        file.unlink()
        with pytest.raises(BadRequest, match=r"w\.safetensors: cannot be read"):
            start_batch(read_spec(toml), settings=settings, store=store)
    finally:
        store.close()
    for values, said in (
        ({"whole_models": False}, "are for whole models"),
        ({"tasks": [second]}, "is not among tasks"),
    ):
        with pytest.raises(BadRequest, match=f"weights: .*{said}"):
            read_spec(toml, **values)


def test_a_model_for_which_nothing_faster_was_found_is_right_and_counts_as_no_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from db.tables import JobRow

    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 2)), settings=settings, store=store)
        run_all(batch_id, settings, store)
        with store.write() as session:
            row = session.get_one(JobRow, jobs_of(store, batch_id)[0].id)
            row.stop_reason, row.best_evaluation_id = "nothing_faster", None
        details = show_batch(store, batch_id)
    first = details.jobs[0]
    assert (first.outcome, first.compiled, first.reason) == ("passed", True, "nothing faster was found")
    assert first.counted_speedup("eager") is None
    assert details.groups[0].figures.correctness_rate == 1


KERNEL = SourceKernel("cuda", "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")


def test_a_batch_of_translations_takes_the_tasks_that_bring_such_a_kernel_and_names_the_others(tmp_path: Path) -> None:
    settings = load_settings()
    store = open_store(settings)
    with_one, without, of_another = write_ops(tmp_path, 3)
    Path(with_one).write_text(Path(with_one).read_text() + constant_text(KERNEL))
    Path(of_another).write_text(Path(of_another).read_text() + constant_text(replace(KERNEL, platform="opencl")))
    asked = {"translate_from": "cuda", "platforms": ["cpu", "riscv"]}
    try:
        batch_id = start_batch(
            spec_of([with_one, without, of_another, "starter/gelu_tanh"], **asked), settings=settings, store=store
        )
        details = show_batch(store, batch_id)
        assert [(job.task, job.platform) for job in details.jobs] == [("local/op0", "cpu"), ("local/op0", "riscv")]
        assert {job.options["translated_from"] for job in jobs_of(store, batch_id)} == {"cuda"}
        reasons = dict(details.refused)
        assert list(reasons) == ["local/op1", "local/op2", "starter/gelu_tanh"]
        assert "brings no SOURCE_KERNEL to translate from cuda; write the kernel into the op" in reasons["local/op1"]
        assert "brings a SOURCE_KERNEL of platform opencl, not cuda" in reasons["local/op2"]
        with pytest.raises(BadRequest, match=r"^tasks: none can be used; local/op1: brings no SOURCE_KERNEL to trans"):
            start_batch(spec_of([without], **asked), settings=settings, store=store)
        for values, said in (
            ({"translate_from": "metal"}, "--from 'metal': no such platform"),
            ({"translate_from": "cuda", "platforms": ["cpu", "cuda"]}, "--from cuda: is the platform to optimize for"),
            ({"translate_from": "cuda", "models": ["builtin/compiler"]}, "builtin/compiler translates nothing"),
        ):
            with pytest.raises(BadRequest, match=said):
                start_batch(spec_of([with_one], **values), settings=settings, store=store)
        assert len(list_batches(store)) == 1
    finally:
        store.close()


def test_the_command_line_asks_for_a_batch_of_translations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (without,) = write_ops(tmp_path, 1)
    assert run(["batch", "run", "--tasks", without, "--models", MODEL, "--from", "cuda", "--detach"]) == 2
    assert "local/op0: brings no SOURCE_KERNEL to translate from cuda" in capsys.readouterr().err
    Path(without).write_text(Path(without).read_text() + constant_text(KERNEL))
    assert run(["batch", "run", "--tasks", without, "--models", MODEL, "--from", "cuda", "--detach"]) == 0


# --- running


def test_a_batch_runs_every_task_with_every_sample_and_says_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick(monkeypatch, tmp_path, coder([4.0, 1.0, 0.0])) as (settings, store):
        spec = spec_of(write_ops(tmp_path, 3), samples=2, name="first")
        batch_id = start_batch(spec, settings=settings, store=store)
        assert [job.sample for job in jobs_of(store, batch_id)] == [1, 1, 1, 2, 2, 2]
        before = show_batch(store, batch_id)
        assert not before.complete and before.groups[0].open == 6 and before.groups[0].figures.geomean is None
        run_all(batch_id, settings, store)
        details = show_batch(store, batch_id)
    assert details.complete
    assert [job.outcome for job in details.jobs] == ["passed", "passed", "failed"] * 2
    assert [job.reason for job in details.jobs][2] == "wrong_output"
    (group,) = details.groups
    assert (group.figures.tasks, group.figures.samples) == (3, 6)
    assert group.figures.pass_at_k == {1: pytest.approx(2 / 3), 2: pytest.approx(2 / 3)}
    assert group.figures.fast_p[1.0] == pytest.approx(1 / 3)
    assert group.figures.geomean is not None and group.figures.geomean.value == pytest.approx(4 ** (1 / 3))
    assert group.cost_usd == pytest.approx(details.line.spent_usd) and group.cost_usd > 0
    # Nothing was measured against torch.compile here: correct, and no faster than anything.
    assert all(job.counted_speedup("compile") is None for job in details.jobs)


def test_a_job_that_cannot_be_run_ends_alone_and_is_listed_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = write_ops(tmp_path, 3)
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        batch_id = start_batch(spec_of(ops), settings=settings, store=store)
        first = jobs_of(store, batch_id)[0]
        with store.write() as session:
            jobs.update_options(session, first.id, rounds=-5)
        run_all(batch_id, settings, store)
        details = show_batch(store, batch_id)
    assert [job.outcome for job in details.jobs] == ["unjudged", "passed", "passed"]
    assert details.jobs[0].reason.startswith("error: ")
    assert details.groups[0].unjudged == 1
    assert details.groups[0].figures.tasks == 2


def test_a_provider_that_refuses_says_nothing_of_the_model_and_the_batch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0], fault_first="unauthorized")) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 2)), settings=settings, store=store)
        run_all(batch_id, settings, store)
        details = show_batch(store, batch_id)
        assert [job.outcome for job in details.jobs] == ["unjudged", "passed"]
        assert resume_batch(store, batch_id) == 1
        run_all(batch_id, settings, store)
        assert [job.outcome for job in show_batch(store, batch_id).jobs] == ["passed", "passed"]


def test_results_that_cannot_be_relied_on_or_were_retracted_are_no_speedups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from db.tables import EvaluationRow
    from db.types import utc_now

    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 3)), settings=settings, store=store)
        run_all(batch_id, settings, store)
        ids = [job.best_evaluation_id for job in jobs_of(store, batch_id)]
        with store.write() as session:
            session.get_one(EvaluationRow, ids[0]).tags = ["custom_kernel", "noisy"]
            session.get_one(EvaluationRow, ids[1]).retracted_at = utc_now()
        details = show_batch(store, batch_id)
    assert [job.reason for job in details.jobs] == ["noisy", "retracted", ""]
    assert [job.outcome for job in details.jobs] == ["passed", "failed", "passed"]
    assert [job.counted_speedup("eager") for job in details.jobs] == [None, None, 2.0]
    assert details.groups[0].figures.correctness_rate == pytest.approx(2 / 3)
    assert details.groups[0].figures.fast_p[1.0] == pytest.approx(1 / 3)


def test_a_stop_leaves_the_rest_in_line_and_resuming_pays_for_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0, 3.0, 4.0]), rounds=1) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 3)), settings=settings, store=store)
        cancel = CancelToken()

        def stop_in_the_second(event: Event) -> None:
            if event.kind == "llm_call":
                calls.append(event)
            if len(calls) == 2:
                cancel.request("interrupted")

        calls: list[Event] = []
        run_batch(batch_id, settings=settings, store=store, observer_for=lambda job: stop_in_the_second, cancel=cancel)
        statuses = [job.status for job in jobs_of(store, batch_id)]
        assert statuses == [JobStatus.DONE, JobStatus.INTERRUPTED, JobStatus.QUEUED]
        assert resume_batch(store, batch_id) == 2
        run_all(batch_id, settings, store)
        assert {job.status for job in jobs_of(store, batch_id)} == {JobStatus.DONE}
        with store.read() as session:
            paid = [len(results.list_llm_calls(session, job.id)) for job in jobs_of(store, batch_id)]
    assert paid == [1, 1, 1]


def test_cancelling_ends_what_waits_and_resuming_takes_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 3)), settings=settings, store=store)
        first = jobs_of(store, batch_id)[0]
        with store.write() as session:  # someone runs it
            assert job_queue.take_job(
                session, first.id, first.attempt, this_process(), worker_id=None, sandbox="docker"
            )
        assert cancel_batch(store, batch_id) == 3
        cancelled = jobs_of(store, batch_id)
        assert [job.status for job in cancelled] == [JobStatus.RUNNING, JobStatus.CANCELLED, JobStatus.CANCELLED]
        assert cancelled[0].cancel_requested
        assert show_batch(store, batch_id).line.batch.cancel_requested
        run_all(batch_id, settings, store)
        assert [job.status for job in jobs_of(store, batch_id)][1:] == [JobStatus.CANCELLED] * 2
        with pytest.raises(BadRequest, match="1 jobs are still stopping; try again in a moment"):
            resume_batch(store, batch_id)
        assert show_batch(store, batch_id).line.batch.cancel_requested
        with store.write() as session:
            reason, owner = "cancelled", this_process()
            assert jobs.finish_job(session, first.id, owner, status=JobStatus.CANCELLED, stop_reason=reason)
        assert resume_batch(store, batch_id) == 3
        run_all(batch_id, settings, store)
        details = show_batch(store, batch_id)
        assert [job.outcome for job in details.jobs] == ["passed"] * 3
        assert not details.line.batch.cancel_requested


def test_a_job_that_another_took_is_left_to_him(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 1)), settings=settings, store=store)
        (job,) = jobs_of(store, batch_id)
        with store.write() as session:
            assert job_queue.take_job(session, job.id, job.attempt, this_process(), worker_id=None, sandbox="docker")
        found = run_queued(job.id, settings=settings, store=store, observe=lambda event: None, cancel=CancelToken())
        assert found is None
        assert jobs_of(store, batch_id)[0].cost_usd == 0


def test_a_job_that_began_on_a_device_of_another_kind_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        batch_id = start_batch(spec_of(write_ops(tmp_path, 2)), settings=settings, store=store)
        first = jobs_of(store, batch_id)[0]
        with store.write() as session:
            jobs.update_options(session, first.id, device="another", device_kind="0123abcd")
        run_all(batch_id, settings, store)
        assert [job.status for job in jobs_of(store, batch_id)] == [JobStatus.QUEUED, JobStatus.DONE]


@pytest.mark.timeout(240)
def test_a_batch_that_is_killed_goes_on_where_it_was_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    ops = write_ops(tmp_path, 4)
    with start_llm_server(coder([2.0, 3.0], delay_s=0.25)) as server:
        values = {"data_dir": str(tmp_path / "data"), "api_base": server.url, "price": "1.5,6", "rounds": 1}
        settings = load_settings(**values)
        store = open_store(settings)
        try:
            batch_id = start_batch(spec_of(ops), settings=settings, store=store)
            kills = 0
            for wait_s in (0.4, 0.6, 0.8, None):
                resume_batch(store, batch_id)
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.fast_batches", json.dumps(values), str(batch_id)],
                    cwd=Path(__file__).parents[3],
                    env={**os.environ, "OPENAI_API_KEY": "none", "HOME": str(tmp_path)},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                assert process.stdout is not None
                assert process.stdout.readline() == "begins\n"
                if wait_s is not None:
                    time.sleep(wait_s)
                    process.send_signal(signal.SIGKILL)
                    kills += process.wait(60) == -signal.SIGKILL
                else:
                    assert process.wait(120) == 0
                process.stdout.close()
            details = show_batch(store, batch_id)
            with store.read() as session:
                calls = Counter(
                    job.id for job in jobs_of(store, batch_id) for _ in results.list_llm_calls(session, job.id)
                )
        finally:
            store.close()
        answered = server.stats()["replies"]
    assert kills >= 2
    assert [job.outcome for job in details.jobs] == ["passed"] * 4
    assert set(calls.values()) == {1}, "each job was asked for one kernel, and that was paid for once"
    assert answered <= 4 + kills, "only what was in flight at a kill was asked for again"


# --- comparing


def test_two_batches_are_compared_task_by_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = write_ops(tmp_path, 7)
    with quick(monkeypatch, tmp_path, coder([4.0] * 6 + [2.0] * 5 + [0.0])) as (settings, store):
        first = start_batch(spec_of(ops[:6]), settings=settings, store=store)
        run_all(first, settings, store)
        second = start_batch(spec_of(ops[1:]), settings=settings, store=store)
        run_all(second, settings, store)
        (versus,) = compare_batches(store, first, second)
        (turned,) = compare_batches(store, second, first)
    made = versus.comparison
    assert made.n == 5
    assert made.ratio is not None and made.ratio.value == pytest.approx(2.0)
    assert made.faster.exact and made.faster.p == pytest.approx(2 / 32)
    assert [task.partition("@")[0] for task in made.missing_in_b] == ["local/op0"]
    assert [task.partition("@")[0] for task in made.missing_in_a] == ["local/op6"]
    assert turned.comparison.ratio is not None and turned.comparison.ratio.value == pytest.approx(0.5)
    assert turned.comparison.faster.p == made.faster.p


def test_figures_of_different_devices_are_said_to_be(tmp_path, monkeypatch, capsys):
    ops = write_ops(tmp_path, 2)
    with quick(monkeypatch, tmp_path, coder([2.0, 4.0, 2.0, 4.0])) as (settings, store):
        first, second = (start_batch(spec_of(ops), settings=settings, store=store) for _ in range(2))
        for batch_id in (first, second):
            run_all(batch_id, settings, store)
        (alike,) = compare_batches(store, first, second)
        with store.write() as session:
            of_second = select(JobRow.best_evaluation_id).where(JobRow.batch_id == second)
            session.execute(update(EvaluationRow).where(EvaluationRow.id.in_(of_second)).values(device="another"))
        (differ,) = compare_batches(store, first, second)
        assert show_batch(store, second).groups[0].devices == ("another",)
    assert len(alike.devices) == 1 and len(differ.devices) == 2
    show_comparison(first, second, "eager", [alike])
    assert "different devices" not in capsys.readouterr().out
    show_comparison(first, second, "eager", [differ])
    assert "measured on different devices" in capsys.readouterr().out


def test_models_are_matched_by_name_or_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0, 4.0])) as (settings, store):
        spec = make_spec({"tasks": write_ops(tmp_path, 2), "models": ["openai/a", "openai/b"]})
        both = start_batch(spec, settings=settings, store=store)
        run_all(both, settings, store)
        assert [(each.model_a, each.model_b) for each in compare_batches(store, both, both)] == [
            ("openai/a", "openai/a"),
            ("openai/b", "openai/b"),
        ]
        (versus,) = compare_batches(store, both, both, model_a="openai/b", model_b="openai/a")
        assert versus.comparison.ratio is not None and versus.comparison.ratio.value == pytest.approx(2.0)
        with pytest.raises(BadRequest, match="no model openai/c; there is: openai/a, openai/b"):
            compare_batches(store, both, both, model_a="openai/c")


# --- exports


def test_exports_hold_every_job_and_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([4.0, 0.0, 2.0])) as (settings, store):
        ops = write_ops(tmp_path, 3)
        batch_id = start_batch(spec_of([*ops, "no/such"], name="=1+1"), settings=settings, store=store)
        run_all(batch_id, settings, store)
        details = show_batch(store, batch_id)
    rows = list(csv.DictReader(io.StringIO(csv_text(details))))
    assert len(rows) == 3 and tuple(rows[0]) == COLUMNS
    assert [row["speedup"] for row in rows] == ["4.0", "", "2.0"]
    assert [row["outcome"] for row in rows] == ["passed", "failed", "passed"]
    assert rows[0]["candidate_ms"] == "1.0" and float(rows[0]["cost_usd"]) > 0
    whole = json.loads(json.dumps(batch_json(details), default=str))
    assert whole["schema"] == "kernelwright.batch/1"
    assert whole["complete"] and len(whole["jobs"]) == 3
    assert whole["refused"][0]["task"] == "no/such"
    assert whole["groups"][0]["figures"]["fast_p"]["1.5"] == pytest.approx(2 / 3)
    assert "def forward" not in json.dumps(whole), "sources are not repeated for each job"


def test_a_spreadsheet_takes_no_text_for_a_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        (op,) = write_ops(tmp_path, 1)
        spec = make_spec({"tasks": [op], "models": ["=cmd|' /C calc'!A0/x"]})
        batch_id = start_batch(spec, settings=settings, store=store)
        rows = list(csv.DictReader(io.StringIO(csv_text(show_batch(store, batch_id)))))
    assert rows[0]["model"].startswith("'=")


def test_kernelbenchs_form_has_problem_ids_samples_and_runtimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [Path(op) for op in write_ops(tmp_path, 3)]
    named = [str(op.rename(op.with_name(f"{number}_op_.py"))) for number, op in zip((10, 2, 33), ops, strict=True)]
    with quick(monkeypatch, tmp_path, coder([4.0, 0.0, 2.0, 0.0, 0.0, 2.0])) as (settings, store):
        batch_id = start_batch(spec_of(named, samples=2), settings=settings, store=store)
        run_all(batch_id, settings, store)
        found = kernelbench_form(show_batch(store, batch_id)).eval_results
    assert list(found) == ["2", "10", "33"]
    assert [each["sample_id"] for each in found["10"]] == [0, 1]
    assert all(
        set(each) == {"sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"}
        for tries in found.values()
        for each in tries
    )
    assert [(each["correctness"], each["runtime"]) for each in found["10"]] == [(True, 1.0), (False, -1.0)]
    assert [each["correctness"] for each in found["33"]] == [True, True]
    assert found["2"][0]["compiled"] and found["2"][0]["runtime_stats"] == {}


def test_kernelbenchs_form_holds_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quick(monkeypatch, tmp_path, coder([4.0, 2.0])) as (settings, store):
        spec = make_spec({"tasks": write_ops(tmp_path, 1), "models": ["openai/a", "openai/b"]})
        batch_id = start_batch(spec, settings=settings, store=store)
        run_all(batch_id, settings, store)
        details = show_batch(store, batch_id)
    with pytest.raises(BadRequest, match="choose --model: openai/a, openai/b"):
        kernelbench_form(details)
    with pytest.raises(BadRequest, match="there is: openai/a, openai/b"):
        kernelbench_form(details, model="openai/c")
    assert kernelbench_form(details, model="openai/b").eval_results["1"][0]["runtime"] == 2.0


def test_a_batch_that_is_not_there_is_named() -> None:
    store = open_store(load_settings())
    try:
        for act in (show_batch, cancel_batch, resume_batch):
            with pytest.raises(LookupError, match="batch 7 is not in the store"):
                act(store, 7)
    finally:
        store.close()
