"""A run over a whole model: its regions become jobs, what pays is put back, and what is delivered is proven."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from db.evaluations import results
from db.jobs import batches, job_queue, jobs, model_runs
from db.records import EvaluationRecord, JobStatus, Measurements, ModelRunRecord, Owner
from db.store import Store
from evaluator.evaluation import shape_group_of
from evaluator.platforms import load_platform
from service.batches.manage import NOT_WORTH_IT, resume_batch, show_batch, start_batch
from service.batches.spec import make_spec
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest, Conflict, Unavailable
from service.evaluation_context import EvaluationContext
from service.jobs.batch_budget import WEIGHT
from service.jobs.liveness import this_process
from service.jobs.local import run_batch
from service.jobs.spec import task_of
from service.mock_llm import Entry, Script, When
from service.settings import Settings, load_settings, override
from service.submissions.access import Principal, Role
from service.submissions.jobs import resume_for
from service.views.models import model_run_view
from service.weights import read_state
from service.whole_models import budget
from service.whole_models import plan as plan_module
from service.whole_models.assemble import Assembly, Kernel, Trial
from service.whole_models.budget import left_to_gain
from service.whole_models.local import Watching, optimize_model, read_report, run_queued_job
from service.whole_models.plan import Plan, capture_model, packed, plan_of, too_slow_text, unpacked
from service.whole_models.prove import SLOWER, Prover, faster_baselines, prove_each
from service.whole_models.report import region_rows, shape_rows
from service.whole_models.run import ModelRun, worth_a_job
from tasks.load import find_task
from tasks.outcomes import candidate_hash
from tests.support.fast_batches import coder, quick
from tests.support.killable_jobs import Sandbox
from tests.support.model_runs import (
    BREAKS,
    BREAKS_LATE,
    BUSY,
    MODEL,
    SLOW,
    ModelContext,
    carry_out,
    opened_for_models,
    queue_captured,
    replace_what_is_slow,
)
from tests.support.weights import state_file
from whole_models.graph import CaptureFailed, read_captured
from whole_models.regions import Region, choose, counted_ms, find_regions, shape_group_in


def capture_of(source: str, shape_group: int | None = None) -> str:
    """The capture of a model, by the program that makes it in a sandbox."""
    program = import_module("whole_models.capture.capture")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.export uses what torch warns of
        found = program.capture(source, compile=False, budget_s=60.0, shape_group=shape_group)
    return json.dumps({"ok": True, **found})


@pytest.fixture(scope="session")
def captured() -> str:
    """The capture of `MODEL`."""
    return capture_of(MODEL)


SHAPES = """

def get_input_groups():
    return [[torch.randn(3, 32)], [torch.randn(500, 32)]]
"""


@pytest.fixture(scope="session")
def with_shapes() -> list[bytes]:
    """What the program says of `MODEL` with each list of inputs, that of `get_inputs()` first."""
    return [capture_of(MODEL + SHAPES, number).encode() for number in (None, 0, 1)]


@contextmanager
def begun(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    captured: str,
    speeds: list[float] | Script,
    *,
    source: str = MODEL,
    **options: object,
) -> Iterator[tuple[int, Settings, Store]]:
    """A run that has captured its model; the Coder writes kernels of these speeds, one a region."""
    script = speeds if isinstance(speeds, Script) else coder(speeds)
    with quick(monkeypatch, folder, script, model="openai/one", budget_usd=5, **options) as (settings, store):
        replace_what_is_slow(monkeypatch.setattr)
        (folder / "net.py").write_text(source)
        yield (
            queue_captured(folder / "net.py", settings, store, captured, out=folder / "faster"),
            settings,
            store,
        )


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


def test_equal_regions_of_two_graphs_have_one_task_and_one_job_and_its_kernel_in_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    data = json.loads(captured)
    (graph,) = data["graphs"]
    twice = json.dumps(data | {"graphs": [graph | {"path": "a"}, graph | {"path": "b"}]})
    plan = plan_for([twice.encode()], tmp_path)
    assert len(plan.chosen) > len(worth_a_job(plan)) == len(plan.chosen) / 2
    assert len({task.id for task in plan.tasks.values()}) == len(plan.first_with_task) == len(plan.chosen) / 2
    assert all("2 times in a call" in task.source for task in plan.tasks.values())
    with begun(monkeypatch, tmp_path, twice, [2.0]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        assert run.status is JobStatus.DONE
        assert run.kept is not None and set(run.kept) == {region.name for region in run.regions}
        with store.read() as session:
            batch = jobs.list_jobs(session, batch_id=run.batch_id)
        assert sorted({region.job_id for region in run.regions}) == sorted(job.id for job in batch)
        assert len(batch) * 2 == len(run.regions)


BRANCHING = """import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64))

    def forward(self, x):
        h = torch.tanh(x * self.scale) + x.sigmoid()
        if h.sum().item() > 1e9:
            h = h * 2
        return torch.softmax(h * h, -1) + x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []
"""


def test_a_model_that_cannot_be_exported_gets_kernels_in_the_graphs_that_dynamo_makes_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captured = json.dumps(json.loads(capture_of(BRANCHING)) | {"notes": ["two | weights"]})
    with begun(monkeypatch, tmp_path, captured, [2.0], source=BRANCHING) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        assert (report.run.status, report.run.stage) == (JobStatus.DONE, "done")
        assert report.run.kept is not None and len(report.run.kept) >= 2
        assert report.proof is not None and report.proof.verdict == "passed"
        (stays,) = report.run.plan["stays_eager"]
        assert "dynamo makes 2 graphs of it, of which 2 are captured" in stays["reason"]
        with store.read() as session:
            tasks = [job.task.id for job in jobs.list_jobs(session, batch_id=report.run.batch_id)]
        assert len(tasks) == len(report.run.regions)
    text = (tmp_path / "faster" / "model.py").read_text()
    assert "A part of the forward of the model" in text and "_kw_Fragments" in text
    assert "\nNote: two \\| weights.\n" in (tmp_path / "faster" / "report.md").read_text()


def plan_for(captures: list[bytes], folder: Path) -> Plan:
    (folder / "plan.py").write_text(MODEL)
    return plan_of(find_task(str(folder / "plan.py")), packed(captures), load_settings(model="openai/one"))


def proofs_of(run: ModelRunRecord, shape_group: int | None) -> list[dict[str, Any]]:
    return [
        dict(each)
        for each in run.trials
        if str(each["question"]).startswith("proof") and each["shape_group"] == shape_group
    ]


def test_each_list_of_inputs_has_regions_kernels_and_a_proof_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), [2.0]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        run = report.run
        groups = {shape_group_in(region.name) for region in run.regions}
        assert groups == {None, 0, 1}
        assert run.kept is not None and {shape_group_in(name) for name in run.kept} == groups
        assert report.proof is not None and shape_group_of(report.proof.result) is None
        with store.read() as session:
            files = model_runs.get_files(session, run_id)
        last = {group: proofs_of(run, group)[-1] for group in groups}
        delivered = candidate_hash(files["candidate.py"])
        assert {each["candidate"] for each in last.values()} == {delivered}, "each proof is of what is delivered"
        shapes = shape_rows(store, run, report.proof)
        assert [(row["shape_group"], row["kept"] > 0) for row in shapes] == [(0, True), (1, True)]
        assert all(row["evaluation"] == last[row["shape_group"]]["evaluation"] for row in shapes)
        assert all(row["speedup"]["value"] > 1 for row in shapes)
        model = dict(run.plan)
        assert [group["shape_group"] for group in model["groups"]] == [0, 1] and not model["as_it_is"]
    text = (tmp_path / "faster" / "report.md").read_text()
    assert "get_input_groups()[1]" in text and last[1]["evaluation"] in text
    kernels = {path.stem for path in (tmp_path / "faster" / "kernels").iterdir()}
    assert kernels == set(run.kept)


def test_kernels_for_other_shapes_alone_are_delivered_with_their_proof(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    worth = worth_a_job(plan_for(with_shapes, tmp_path))
    speeds = [2.0 if shape_group_in(name) == 1 else 0.0 for name in worth]
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), speeds) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        run = report.run
        assert run.kept and {shape_group_in(name) for name in run.kept} == {1}
        assert report.proof is not None and shape_group_of(report.proof.result) == 1
        assert len(proofs_of(run, 1)) == 1, "what is delivered was proven already"
        view = model_run_view(store, run_id)
        assert [line.kept for line in view.shapes] == [0, len(run.kept)]
        assert view.shapes[0].proof is None and view.shapes[1].proof is not None


def test_where_a_proof_refuses_the_kernels_of_one_list_those_of_the_others_are_delivered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    worth = worth_a_job(plan_for(with_shapes, tmp_path))
    speeds = [BREAKS_LATE if shape_group_in(name) is None else 2.0 for name in worth]
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), speeds) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        assert run.status is JobStatus.DONE and run.kept
        assert {shape_group_in(name) for name in run.kept} == {0, 1}
        rows = {row["name"]: row for row in region_rows(store, run)}
        refused = [row["why"] for name, row in rows.items() if shape_group_in(name) is None]
        assert set(refused) == {"the proof holds only without it"}
        again = {group: proofs_of(run, group)[-1]["candidate"] for group in (0, 1)}
        assert again[0] == again[1]


def test_what_was_not_judged_with_one_list_of_inputs_is_asked_again_before_anything_is_delivered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), [2.0]) as (run_id, settings, store):
        proof = ModelRun._proof
        made: list[int | None] = []

        def busy_from_the_third_on(run: ModelRun, shape_group: int | None, source: str) -> EvaluationRecord:
            if len(made) == 2:
                (settings.data_dir / BUSY).touch()
            made.append(shape_group)
            return proof(run, shape_group, source)

        monkeypatch.setattr(ModelRun, "_proof", busy_from_the_third_on)
        run = carry_out(run_id, settings, store).run
        assert (run.status, run.error) == (JobStatus.FAILED, "the proof says timed_out: no answer within 20 s")
        assert made[:3] == [None, 0, 1] and set(made[3:]) == {1}
        (settings.data_dir / BUSY).unlink()
        monkeypatch.setattr(ModelRun, "_proof", proof)
        run = carry_out(run_id, settings, store).run
        assert run.status is JobStatus.DONE and run.kept
        assert [len(proofs_of(run, group)) for group in (None, 0)] == [2, 2], "alone, and together"
        assert [each["decision"] for each in proofs_of(run, 1)][-2:] == ["passed", "passed"]


def test_a_list_that_is_not_judged_when_the_run_is_resumed_either_is_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), [2.0]) as (run_id, settings, store):
        proof = ModelRun._proof

        def busy_for_one(run: ModelRun, shape_group: int | None, source: str) -> EvaluationRecord:
            (settings.data_dir / BUSY).touch() if shape_group == 1 else (settings.data_dir / BUSY).unlink(
                missing_ok=True
            )
            return proof(run, shape_group, source)

        monkeypatch.setattr(ModelRun, "_proof", busy_for_one)
        assert carry_out(run_id, settings, store).run.status is JobStatus.FAILED
        run = carry_out(run_id, settings, store).run
        assert run.status is JobStatus.DONE
        assert {shape_group_in(name) for name in run.kept or ()} == {None, 0}
        why = {row["why"] for row in region_rows(store, run) if shape_group_in(row["name"]) == 1}
        assert why == {"its inputs run the original code: their last proof says timed_out"}


def test_an_evaluation_of_other_inputs_than_were_asked_for_is_not_taken_for_theirs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    def of_an_older_worker(context: Any, source: str, **options: Any) -> Any:
        return evaluate(replace(context, shape_group=None), source, **options)

    evaluate = ModelContext.evaluate
    monkeypatch.setattr(ModelContext, "evaluate", of_an_older_worker)
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), [2.0]) as (run_id, settings, store):
        with pytest.raises(Unavailable, match="is of other inputs: a worker of another version made it"):
            carry_out(run_id, settings, store)
        assert stored(store, run_id).status is JobStatus.FAILED


def test_jobs_end_for_the_inputs_for_which_too_little_is_left_and_go_on_for_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    of_many = counted_ms(plan_for(with_shapes, tmp_path).others[1].captured)
    monkeypatch.setattr(budget, "left_to_gain", lambda found, waiting, total_ms: 0.0 if total_ms == of_many else 1.0)
    with begun(monkeypatch, tmp_path, packed(with_shapes).decode(), [2.0]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        assert {shape_group_in(name) for name in run.kept or ()} >= {None, 0}
        with store.read() as session:
            ended = {
                job.id for job in jobs.list_jobs(session, batch_id=run.batch_id) if job.stop_reason == NOT_WORTH_IT
            }
        assert {shape_group_in(region.name) for region in run.regions if region.job_id in ended} == {1}


def test_lists_of_inputs_that_get_no_kernels_are_told_with_the_reason(with_shapes: list[bytes], tmp_path: Path) -> None:
    own, few, many = with_shapes
    failed = CaptureFailed("call", "RuntimeError: no such shape").to_json()
    slow = json.dumps({**json.loads(many), "eager_ms": 9000.0}).encode()
    plan = plan_for([own, failed, slow], tmp_path)
    assert not plan.others
    assert plan.as_it_is[0] == "get_input_groups()[0]: call: RuntimeError: no such shape"
    assert plan.as_it_is[1].startswith("get_input_groups()[1]: a call takes 9 s")
    assert [each.shape_group for each in plan_for([own, few, own], tmp_path).others] == [0], (
        "the second has its kernels"
    )
    several = json.dumps({**json.loads(own), "shape_groups": 9}).encode()
    assert "get_input_groups()[1] and later ones" in plan_for([several, few], tmp_path).as_it_is[0]


def test_of_another_list_only_what_the_kernels_do_not_know_yet_gets_any(
    with_shapes: list[bytes], tmp_path: Path
) -> None:
    own, few, _ = (json.loads(each) for each in with_shapes)
    parts = {**own, "graphs": [{**own["graphs"][0], "path": path} for path in ("first", "second")]}
    changed = {**few, "graphs": [parts["graphs"][0], {**few["graphs"][0], "path": "second"}]}
    plan = plan_for([json.dumps(each).encode() for each in (parts, changed)], tmp_path)
    assert {region.graph for region in plan.others[0].regions} == {"second"}
    scalar = {"name": "s", "kind": "scalar", "value": 1}
    graph = own["graphs"][0]
    graph = {**graph, "inputs": [*graph["inputs"], scalar], "arguments": ["tuple", [["leaf"], ["leaf"]]]}
    same = {**own, "graphs": [graph]}
    other = {**own, "graphs": [{**graph, "inputs": [*graph["inputs"][:-1], {**scalar, "value": 1.0}]}]}
    plan = plan_for([json.dumps(each).encode() for each in (same, same, other)], tmp_path)
    assert [each.shape_group for each in plan.others] == [1], "1 and 1.0 are told apart, as guards do"
    none = json.dumps({**own, "graphs": []}).encode()
    told, *_ = plan_for([none, none], tmp_path).as_it_is
    assert told == "get_input_groups()[0]: nothing of the model could be captured"


def test_a_resumed_run_has_the_plans_that_it_began_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    own, few, many = with_shapes
    told = json.loads(many)
    for node in told["graphs"][0]["nodes"]:
        node["eager_ms"] = 1500.0 / len(told["graphs"][0]["nodes"])
    slow = json.dumps({**told, "eager_ms": 1500.0}).encode()
    with begun(monkeypatch, tmp_path, packed([own, few, slow]).decode(), [2.0], measure_s=300) as (
        run_id,
        settings,
        store,
    ):
        cancel = CancelToken()
        cancel.request("interrupted")
        with pytest.raises(Cancelled):
            carry_out(run_id, settings, store, cancel=cancel)
        run = carry_out(run_id, override(settings, measure_s=20), store).run
        assert run.status is JobStatus.DONE
        assert {shape_group_in(region.name) for region in run.regions} == {None, 0, 1}


RECORD = EvaluationRecord(
    "e", 1, "", "", 0, "cpu", "device", "docker", "passed", None, "", (), Measurements(), {}, datetime.now(UTC)
)


def assembly_of(name: str) -> Assembly:
    kernel = Kernel(name, Region(name, "whole", "", (), (), 1.0), "", 2.0, 1.0)
    return Assembly((kernel,), name)


def provers_that_say(
    told: Callable[[int | None, tuple[str, ...]], str],
    groups: list[int | None],
    record: Callable[[Trial], None] = lambda trial: None,
) -> list[Prover]:
    """Provers of lists of inputs whose proofs say this of the names of the kernels in place."""

    def evaluate(group: int | None, source: str) -> EvaluationRecord:
        verdict = told(group, tuple(source.split()))
        return replace(RECORD, verdict=verdict, candidate_hash=candidate_hash(source), source=source)

    return [
        Prover(
            group,
            lambda kernels: " ".join(kernel.name for kernel in kernels),
            [],
            partial(evaluate, group),
            lambda evaluation_id: pytest.fail(),
            record,
            lambda text: None,
        )
        for group in groups
    ]


def test_kernels_that_do_not_hold_beside_those_of_lists_before_them_are_left_out() -> None:
    def told(group: int | None, names: tuple[str, ...]) -> str:
        return "wrong_output" if "g1" in names and group != 1 else "passed"

    groups: list[int | None] = [None, 0, 1]
    held = prove_each(provers_that_say(told, groups), [assembly_of(name) for name in ("own", "g0", "g1")])
    assert [each.shape_group for each in held] == [None, 0]
    assert {each.proof.source for each in held} == {"own g0"}, "each proof is of what is delivered"


def test_a_list_that_is_not_judged_twice_does_not_keep_the_others_from_being_delivered() -> None:
    def told(group: int | None, names: tuple[str, ...]) -> str:
        return "timed_out" if group == 0 else "passed"

    provers = provers_that_say(told, [None, 0])
    assemblies = [assembly_of("own"), assembly_of("g0")]
    asked_again = prove_each(provers, assemblies)
    assert [(each.shape_group, each.proof.verdict) for each in asked_again] == [(0, "timed_out")]
    late = {(0, candidate_hash("g0"))}
    assert [(each.shape_group, each.proof.source) for each in prove_each(provers, assemblies, late=late)] == [
        (None, "own")
    ]


def test_proofs_together_that_are_never_judged_do_not_keep_what_holds_from_being_delivered() -> None:
    def slow_together(group: int | None, names: tuple[str, ...]) -> str:
        return "timed_out" if group is None and len(names) > 1 else "passed"

    assemblies = [assembly_of("own"), assembly_of("g0")]
    (again,) = prove_each(provers_that_say(slow_together, [None, 0]), assemblies)
    assert (again.shape_group, again.proof.verdict) == (None, "timed_out")
    made: list[Trial] = []
    late = {(None, candidate_hash("own g0"))}
    held = prove_each(provers_that_say(slow_together, [None, 0], made.append), assemblies, late=late)
    assert [(each.shape_group, each.proof.source) for each in held] == [(None, "own")]
    asked = [(each.shape_group, each.candidate) for each in made]
    assert len(set(asked)) == len(asked), "nothing is measured twice in a run"

    def wrong_beside(group: int | None, names: tuple[str, ...]) -> str:
        if group is None and "g1" in names:
            return "wrong_output"
        return "timed_out" if group == 0 and "g2" in names else "passed"

    late = {(0, candidate_hash("own g0 g2"))}
    four = [assembly_of(name) for name in ("own", "g0", "g1", "g2")]
    held = prove_each(provers_that_say(wrong_beside, [None, 0, 1, 2]), four, late=late)
    assert {each.proof.source for each in held} == {"own g0"}


def test_other_inputs_are_captured_where_the_file_declares_them_and_the_model_can_be_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, with_shapes: list[bytes]
) -> None:
    own, few, many = with_shapes
    asked: list[int | None] = []
    answers = {None: own, 0: few, 1: many}

    def run_capture(sandbox: object, source: str, *, shape_group: int | None, **_: object) -> bytes:
        asked.append(shape_group)
        return answers[shape_group]

    monkeypatch.setattr(plan_module, "run_capture", run_capture)

    def captured_as(source: str) -> list[bytes]:
        asked.clear()
        (tmp_path / "net.py").write_text(source)
        named: Any = Sandbox()
        context = EvaluationContext(find_task(str(tmp_path / "net.py")), load_platform("cpu"), named, load_settings())
        return unpacked(capture_model(context, on_progress=lambda text: None, cancel=CancelToken()))

    assert captured_as(MODEL + SHAPES) == [own, few, many] and asked == [None, 0, 1]
    hidden = SHAPES.replace("def get_input_groups():\n    return", "get_input_groups = lambda:")
    assert captured_as(MODEL + hidden) == [own] and asked == [None], "the referee would not check them"
    assert plan_for([own], tmp_path).as_it_is == ("get_input_groups(): it is no function at the top level of the file",)
    answers[0] = b"\xff" * 100
    assert b"unreadable result" in captured_as(MODEL + SHAPES)[1]
    monkeypatch.setattr(plan_module, "GROUPS_BYTES", 10)
    assert b"captures of other inputs take more than" in captured_as(MODEL + SHAPES)[2]
    answers[None] = json.dumps({**json.loads(own), "eager_ms": 9000.0}).encode()
    assert len(captured_as(MODEL + SHAPES)) == 1, "nothing is done for a model that cannot be judged"


@pytest.mark.parametrize("kept", [b"[", b"[1]", b"[[]]", b"[]", b"[" * 5000, b"no JSON"])
def test_a_capture_of_another_form_is_refused_in_one_line(kept: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    with pytest.raises(BadRequest, match="unreadable result"):
        plan_of(find_task(str(tmp_path / "net.py")), kept, load_settings())


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
        assert report.proof is not None and faster_baselines(report.proof.result) == ["compile"]
        assert (report.run.kept, report.delivered) == ((), None)
    assert not (tmp_path / "faster").exists()


def proofs(run: ModelRunRecord) -> list[tuple[str, str, bool]]:
    asked = [trial for trial in run.trials if str(trial["question"]).startswith("proof")]
    assert len({trial["candidate"] for trial in asked}) == len(asked), "no source was proven twice"
    return [(str(trial["name"]), str(trial["decision"]), bool(trial["taken_out"])) for trial in asked]


def test_a_kernel_with_which_only_the_proof_refuses_the_model_is_taken_out_and_the_others_are_delivered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0, BREAKS_LATE, 2.0]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        run = report.run
        rows = {row["name"]: row for row in region_rows(store, run)}
        (late,) = [name for name, row in rows.items() if row["speedup"] == BREAKS_LATE]
        assert run.status is JobStatus.DONE and run.kept
        assert {rows[name]["speedup"] for name in run.kept} == {2.0}
        assert rows[late]["why"] == "the proof holds only without it"
        assert report.proof is not None and report.proof.verdict == "passed"
        assert report.proof.source.count("speed = ") == len(run.kept), "the proof is of what is delivered"
        asked = proofs(run)
        assert asked[0] == ("all", "wrong_output", False) and asked[-1] == (late, "passed", True)
        assert sorted(path.stem for path in (tmp_path / "faster" / "kernels").iterdir()) == sorted(run.kept)
        assert late in (tmp_path / "faster" / "report.md").read_text()


def test_a_kernel_with_which_torch_compile_is_faster_is_taken_out_and_the_others_are_delivered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0, SLOW, 2.0]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        assert report.run.kept and report.delivered is not None
        assert report.proof is not None and faster_baselines(report.proof.result) == []
        asked = proofs(report.run)
        assert asked[0][:2] == ("all", SLOWER) and asked[-1][1:] == ("passed", True)


def test_where_the_proof_refuses_every_kernel_the_run_says_what_it_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [BREAKS_LATE]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        assert (report.run.status, report.run.kept, report.delivered) == (JobStatus.FAILED, (), None)
        assert report.run.error == "the proof says wrong_output: row 3 differs"
        assert report.proof is not None and report.proof.source.count("speed = ") == len(report.run.regions)
        asked = proofs(report.run)
        assert len(asked) > 2 and not any(taken_out for _, _, taken_out in asked)
        again = carry_out(run_id, settings, store)
        assert proofs(again.run) == asked, "a resumed run measures no proof again"
    assert not (tmp_path / "faster").exists()


def test_a_proof_that_timed_out_is_measured_again_when_the_run_is_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        (settings.data_dir / BUSY).touch()
        assert carry_out(run_id, settings, store).run.error == "the proof says timed_out: no answer within 20 s"
        (settings.data_dir / BUSY).unlink()
        report = carry_out(run_id, settings, store)
        assert (report.run.status, report.run.error) == (JobStatus.DONE, None)
        assert report.run.kept and report.delivered is not None


def test_a_run_that_is_stopped_in_its_search_for_a_proof_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0, BREAKS_LATE, 2.0]) as (run_id, settings, store):
        killed = Prover._proof
        made: list[str] = []

        def stopped(prover: Prover, assembly: Assembly, out: str) -> EvaluationRecord:
            if made:
                raise Cancelled
            made.append(out)
            return killed(prover, assembly, out)

        monkeypatch.setattr(Prover, "_proof", stopped)
        with pytest.raises(Cancelled):
            carry_out(run_id, settings, store)
        assert [name for name, _, _ in proofs(stored(store, run_id))] == ["all"]
        monkeypatch.setattr(Prover, "_proof", killed)
        run = carry_out(run_id, settings, store).run
        assert run.status is JobStatus.DONE and run.kept
        assert [name for name, _, _ in proofs(run)].count("all") == 1


@pytest.mark.parametrize(
    ("eager_ms", "measure_s", "said"),
    [
        (900.0, 20.0, ""),
        (1000.0, 20.0, "8 minutes, where an evaluation has 7; give get_inputs() a smaller batch, or allow more "),
        (1000.0, 20.0, "(KERNELWRIGHT_MEASURE_S=105)"),
        (1000.0, 105.0, ""),
        (3200.0, 600.0, ""),
        (3201.0, 20.0, "24 minutes, where an evaluation has 7; give get_inputs() a smaller batch"),
    ],
)
def test_a_model_that_cannot_be_judged_in_time_is_told_with_the_remedy(
    eager_ms: float, measure_s: float, said: str
) -> None:
    text = too_slow_text(eager_ms, override(load_settings(), measure_s=measure_s))
    assert (said in text) if said else (text == "")


def test_nothing_is_spent_on_a_model_that_cannot_be_judged_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    slow = json.dumps({**json.loads(captured), "eager_ms": 5000.0})
    with begun(monkeypatch, tmp_path, slow, [2.0]) as (run_id, settings, store):
        with pytest.raises(BadRequest, match=r"a call takes 5 s, .* give get_inputs\(\) a smaller batch$"):
            carry_out(run_id, settings, store)
        run = stored(store, run_id)
        assert (run.status, run.batch_id, run.plan["too_slow"][:14]) == (JobStatus.FAILED, None, "a call takes 5")


def test_a_run_goes_on_with_the_weights_that_it_began_with_or_says_how_to_give_them_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    path, other = tmp_path / "w.safetensors", tmp_path / "other.safetensors"
    path.write_bytes(state_file({"weight": ("F32", [1], b"abcd")}))
    other.write_bytes(state_file({"weight": ("F32", [1], b"efgh")}))
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        with store.write() as session:
            jobs.update_options(session, run_id, weights=read_state(path).digest)
        with pytest.raises(BadRequest, match=r"are not kept.*kernelwright models resume 1 --state FILE"):
            carry_out(run_id, settings, store)
        failed = stored(store, run_id)
        assert failed.status is JobStatus.FAILED and not failed.plan, "no capture is made without them"
        with pytest.raises(BadRequest, match=r"other\.safetensors: holds other weights than those that run 1 began"):
            carry_out(run_id, settings, store, state=other)
        with pytest.raises(BadRequest, match=r"are not kept"):
            carry_out(run_id, settings, store)
        with pytest.raises(BadRequest, match="are not kept for local"):
            resume_for(Principal("u", Role.OPERATOR), run_id, settings=settings, store=store)
        assert stored(store, run_id) == failed, "what cannot go on is left as it is"
        assert carry_out(run_id, settings, store, state=path).run.status is JobStatus.DONE


def test_a_run_without_a_model_to_work_with_says_so_and_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    refused = Script(match=(Entry(fault="unauthorized", when=When(request="write"), repeat=True),))
    with begun(monkeypatch, tmp_path, captured, refused) as (run_id, settings, store):
        with pytest.raises(Unavailable, match=f"models resume {run_id}"):
            carry_out(run_id, settings, store)
        run = stored(store, run_id)
        assert (run.status, run.stage, run.kept) == (JobStatus.FAILED, "optimize", None)


def test_of_what_other_jobs_leave_of_the_budget_each_may_use_the_share_that_its_region_could_gain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        with store.read() as session:
            found = [jobs.get_job(session, region.job_id or 0) for region in run.regions]
        found.sort(key=lambda job: job.id)
        weights = [job.options[WEIGHT] for job in found]
        assert len(found) > 1 and weights == sorted(weights, reverse=True)
        left = 5.0
        for number, job in enumerate(found):
            assert job.options["budget_usd"] == pytest.approx(left * weights[number] / sum(weights[number:]))
            left -= job.cost_usd
            assert job.cost_usd > 0
        assert found[-1].options["budget_usd"] == pytest.approx(5.0 - sum(job.cost_usd for job in found[:-1])), (
            "the last may use all that is left"
        )


def test_jobs_end_where_too_little_is_left_to_gain_and_are_not_queued_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    def once_found(found: list[budget.Saving], waiting: list[Region], total_ms: float) -> float:
        share = left_to_gain(found, waiting, total_ms)
        assert 0 < share <= 1
        return 0.0 if found else share

    monkeypatch.setattr(budget, "left_to_gain", once_found)
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        run = carry_out(run_id, settings, store).run
        first, *others = run.regions
        assert run.status is JobStatus.DONE and run.kept == (first.name,)
        rows = {row["name"]: row for row in region_rows(store, run)}
        with store.read() as session:
            found = {job.id: job for job in jobs.list_jobs(session, batch_id=run.batch_id)}
        assert others
        for region in others:
            job = found[region.job_id or 0]
            assert (job.status, job.stop_reason, job.rounds_done) == (JobStatus.CANCELLED, NOT_WORTH_IT, 0)
            assert rows[region.name]["why"] == "its job did not run: too little was left to gain"
        assert resume_batch(store, run.batch_id or 0) == 0


@pytest.mark.parametrize(("first", "second", "jobs_for"), [(98.0, 2.0, 2), (2.0, 98.0, 2), (99.5, 0.5, 1)])
def test_regions_that_could_gain_most_get_their_jobs_first_and_the_smallest_none(
    captured: str, first: float, second: float, jobs_for: int
) -> None:
    whole = replace(read_captured(captured.encode()), eager_ms=0.0)
    one, other = choose(whole, find_regions(whole, min_share=0))[:2]
    (graph,) = whole.graphs
    ms = {one.nodes[-1]: first, other.nodes[-1]: second}  # what follows a product; large products do not count
    nodes = tuple(replace(node, eager_ms=ms.get(node.name, 0.0)) for node in graph.nodes)
    plan = Plan(replace(whole, graphs=(replace(graph, nodes=nodes),)), (one, other), (one, other), {})
    by_gain = sorted({one.name: first / 100, other.name: second / 100}.items(), key=lambda each: -each[1])
    assert list(worth_a_job(plan).items()) == by_gain[:jobs_for]


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


def test_a_run_that_is_cancelled_just_before_its_jobs_are_queued_queues_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        cancel, optimize = CancelToken(), ModelRun._optimize

        def cancelled_before(run: ModelRun, plan: Plan) -> None:
            with store.write() as session:
                jobs.request_cancel(session, run_id)
            cancel.request("cancelled")
            optimize(run, plan)

        with monkeypatch.context() as patch:
            patch.setattr(ModelRun, "_optimize", cancelled_before)
            with pytest.raises(Cancelled):
                carry_out(run_id, settings, store, cancel=cancel)
        assert stored(store, run_id).status is JobStatus.CANCELLED
        assert stored(store, run_id).batch_id is None
        run = carry_out(run_id, settings, store).run
        assert run.status is JobStatus.DONE and run.kept, "it can be resumed"


def test_jobs_of_regions_do_not_keep_the_address_and_key_file_of_the_worker_that_queued_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    def stop(batch_id: int, end_jobs: Callable[[], None]) -> None:
        raise Cancelled

    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        owner = this_process()
        with store.write() as session:
            assert job_queue.take_job(session, run_id, 1, owner, worker_id="w1", sandbox="docker")
            jobs.update_options(session, run_id, api_base=None)
            task = task_of(jobs.get_job(session, run_id))
        of_worker = settings.model_copy(update={"api_key_file": tmp_path / "key", "api_base": "http://worker"})
        with opened_for_models(task, of_worker) as context, pytest.raises(Cancelled):
            ModelRun(
                store, run_id, owner, context, lambda name, group: pytest.fail(), stop, lambda text: None, CancelToken()
            ).run()
        with store.read() as session:
            found = jobs.list_jobs(session, batch_id=stored(store, run_id).batch_id)
        assert found and all(job.options.get(name) is None for job in found for name in ("api_base", "api_key_file"))


def test_a_run_that_another_process_works_on_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        with store.write() as session:
            other = Owner(socket.gethostname(), os.getppid(), "another")
            assert job_queue.take_job(session, run_id, 1, other, worker_id=None, sandbox="docker")
        with pytest.raises(Conflict, match="being worked on by another process"):
            carry_out(run_id, settings, store)
        assert stored(store, run_id).status is JobStatus.RUNNING


def test_what_was_proven_is_delivered_again_where_its_folder_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        carry_out(run_id, settings, store)
        files = {path.name: path.read_bytes() for path in (tmp_path / "faster").rglob("*.*")}
        shutil.rmtree(tmp_path / "faster")
        assert read_report(run_id, settings=settings, store=store).delivered is None
        assert carry_out(run_id, settings, store).delivered == tmp_path / "faster"
        assert {path.name: path.read_bytes() for path in (tmp_path / "faster").rglob("*.*")} == files
        with pytest.raises(Conflict, match="is done"):
            carry_out(run_id, settings, store)


def test_a_plan_alone_ends_with_its_regions_and_asks_no_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0]), model="openai/one") as (settings, store):
        replace_what_is_slow(monkeypatch.setattr)
        (tmp_path / "net.py").write_text(MODEL)
        run_id = queue_captured(tmp_path / "net.py", settings, store, captured, plan_only=True)
        report = carry_out(run_id, settings, store)
        assert (report.run.status, report.run.stage) == (JobStatus.DONE, "done")
        assert len(report.run.regions) >= 2
        assert (report.run.batch_id, report.run.kept, report.proof, report.delivered) == (None, None, None, None)


def test_the_proof_is_the_best_of_the_job_and_its_cost_is_that_of_the_regions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with begun(monkeypatch, tmp_path, captured, [2.0]) as (run_id, settings, store):
        report = carry_out(run_id, settings, store)
        with store.read() as session:
            job = jobs.get_job(session, run_id)
            of_regions = jobs.list_jobs(session, batch_id=report.run.batch_id)
        assert report.proof is not None and job.best_evaluation_id == report.proof.id
        assert job.cost_usd == pytest.approx(sum(each.cost_usd for each in of_regions)) and job.cost_usd > 0
        assert job.stop_reason == "proven"


def run_models(batch_id: int, settings: Settings, store: Store) -> None:
    """Run what waits of a batch of models, as its command does."""
    watching = Watching(lambda run_id: None, lambda text: None, lambda job, place, total: lambda event: None)
    run_batch(
        batch_id,
        settings=settings,
        store=store,
        observer_for=lambda job: lambda event: None,
        cancel=CancelToken(),
        run_job=lambda job_id, observe: run_queued_job(
            job_id, settings=settings, store=store, observe=observe, watching=watching, cancel=CancelToken()
        ),
    )


def test_the_total_of_a_batch_of_models_bounds_the_regions_of_each_when_it_is_resumed_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    def region_budget_usd(run_id: int) -> float | None:
        with store.read() as session:
            return batches.get_batch(session, stored(store, run_id).batch_id or 0).budget_usd

    refused = Script(match=(Entry(fault="unauthorized", when=When(request="write"), repeat=True),))
    with quick(monkeypatch, tmp_path, refused, model="openai/one") as (settings, store):
        replace_what_is_slow(monkeypatch.setattr)
        (tmp_path / "net.py").write_text(MODEL)
        spec = {"tasks": [str(tmp_path / "net.py")], "models": ["openai/one"], "whole_models": True}
        batch_id = start_batch(make_spec({**spec, "budget_usd": 2.0}), settings=settings, store=store)
        with store.write() as session:
            (job,) = jobs.list_jobs(session, batch_id=batch_id)
            model_runs.set_capture(session, job.id, captured.encode())
        run_models(batch_id, settings, store)
        assert stored(store, job.id).status is JobStatus.FAILED, "no model answers"
        assert region_budget_usd(job.id) == 2.0
        resume_batch(store, batch_id, budget_usd=0.5)
        run_models(batch_id, settings, store)
        assert region_budget_usd(job.id) == 0.5
        with store.write() as session:
            batches.set_budget(session, batch_id, 0.25)
        with pytest.raises(Unavailable):
            carry_out(job.id, settings, store)
        assert region_budget_usd(job.id) == 0.25
        with store.write() as session:
            batches.set_budget(session, batch_id, 0.0)
        with pytest.raises(BadRequest, match="nothing is left of the total budget of its batch"):
            carry_out(job.id, settings, store)


def test_a_batch_of_models_runs_each_and_gives_their_proofs_as_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, captured: str
) -> None:
    with quick(monkeypatch, tmp_path, coder([2.0]), model="openai/one") as (settings, store):
        replace_what_is_slow(monkeypatch.setattr)
        (tmp_path / "net.py").write_text(MODEL)
        spec = make_spec({"tasks": [str(tmp_path / "net.py")], "models": ["openai/one"], "whole_models": True})
        batch_id = start_batch(spec, settings=settings, store=store)
        with store.write() as session:
            (job,) = jobs.list_jobs(session, batch_id=batch_id)
            model_runs.set_capture(session, job.id, captured.encode())
        assert job.kind == "model"
        run_models(batch_id, settings, store)
        (found,) = show_batch(store, batch_id).jobs
        report = read_report(job.id, settings=settings, store=store)
        assert report.proof is not None and report.delivered == settings.job_dir(job.id) / "model"
        assert (found.status, found.speedup) == (JobStatus.DONE, report.proof.measurements.speedup)


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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str
) -> None:
    refused = pytest.raises(BadRequest, match=f"platform '{platform}': whole models are for cpu")
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store), refused:
        begin_here(tmp_path, override(settings, platform=platform), store)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"out": "mine"}, "exists and was not written by Kernelwright"),
        ({"out": "reported"}, "exists and was not written by Kernelwright"),
        ({"out": "no/no"}, "make it first"),
        ({"state": "none.safetensors"}, r"--state .*cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_anything_is_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "reported").mkdir()
    (tmp_path / "reported" / "report.md").write_text("# a report of the user's own")
    with quick(monkeypatch, tmp_path, coder([2.0])) as (settings, store):
        with pytest.raises(BadRequest, match=said):
            begin_here(tmp_path, settings, store, **{name: tmp_path / value for name, value in given.items()})
        with store.read() as session:
            assert model_runs.list_runs(session) == []


def begin_here(folder: Path, settings: Settings, store: Store, **given: Path) -> None:
    (folder / "net.py").write_text(MODEL)
    watching = Watching(lambda run_id: None, lambda text: None, lambda job, place, total: lambda event: None)
    optimize_model(
        str(folder / "net.py"), settings=settings, store=store, watching=watching, cancel=CancelToken(), **given
    )
