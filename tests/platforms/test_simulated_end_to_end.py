"""A job for platform `simulated`, from the model's reply to every place that shows its figures: no figure is a time."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents.protocols import Event
from db.store import Store
from service.batches.export import batch_json
from service.batches.forms import kernelbench_form
from service.batches.manage import show_batch, start_batch
from service.batches.spec import make_spec
from service.cancellation import CancelToken
from service.cli.app import build_app
from service.cli.job_output import show_report
from service.cli.progress import ProgressState
from service.database import open_store
from service.jobs import local
from service.jobs import run as job_run
from service.jobs.run import JobReport
from service.mcp.tools import bounded, tool_specs
from service.settings import Settings, load_settings
from service.views.leaderboard import leaderboard_page
from tests.fakes import AnsweringLLM, ScriptedLLM, fenced
from tests.support.web_application import Web

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("simulated")]  # they share one job

MODEL = "openai/scripted"
NOTE = "timed: cycles"
OP = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x):
        return F.relu(x * self.weight) + x


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64]
"""
PROGRAM = """
import array_machine as am


class ModelNew:
    def __init__(self, features):
        pass

    def __call__(self, x):
        return {result}
"""
RIGHT = PROGRAM.format(result='am.maximum(x * am.state("weight"), 0.0) + x / 1.0')
BETTER = PROGRAM.format(result='am.relu(x * am.state("weight")) + x')
ADVICE = {"bottleneck": "b", "change": "no division", "evidence": ["latency_ms.candidate"], "stop": False}
# 4 KiB are loaded and stored, 256 B of weights loaded; an instruction works on 64 groups of 16 elements.
RIGHT_CYCLES = 200 + 128 + 8 + 128 + (1 + 1 + 1 + 4) * 64 + 2  # two constants
BETTER_CYCLES = 200 + 128 + 8 + 128 + (1 + 1 + 1) * 64
EAGER_CYCLES = 3 * 200 + (128 + 8 + 128 + 64) + (128 + 128 + 64) + (128 + 128 + 128 + 64)
SPEEDUP = EAGER_CYCLES / BETTER_CYCLES


@dataclass(frozen=True)
class Done:
    """A job that has run, and all that was told meanwhile."""

    report: JobReport
    settings: Settings
    store: Store
    llm: ScriptedLLM
    told: list[str]
    op: Path
    kernel: Path


@contextlib.contextmanager
def models(llm: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_run, "open_models", lambda *_, **__: llm)
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "op.py").write_text(OP)
    settings = load_settings(
        data_dir=folder / "data", lock_dir=folder, platform="simulated", sandbox="docker", model=MODEL, rounds=2,
        plateau_rounds=0, roofline_target=1.0,
    )  # fmt: skip
    llm = ScriptedLLM([fenced(RIGHT), fenced(json.dumps(ADVICE), language="json"), fenced(BETTER)])
    store, progress, told = open_store(settings), ProgressState("optimize"), list[str]()

    def observe(event: Event) -> None:
        told.append(progress.apply(event) or "")

    with models(llm):
        report = local.optimize(
            str(folder / "op.py"), settings=settings, store=store, observe=observe, cancel=CancelToken(),
            out=folder / "fast.py",
        )  # fmt: skip
    yield Done(report, settings, store, llm, told, folder / "op.py", folder / "fast.py")
    store.close()


def page(done: Done, path: str) -> str:
    answer = Web(done.store, done.settings, login=False).client().get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_better_program_is_found_and_every_figure_is_a_count(done: Done) -> None:
    assert (done.report.stop_reason, done.report.job.platform) == ("rounds", "simulated")
    best = done.report.best
    assert best is not None and best.source == BETTER and "cycles" in best.tags
    assert best.message.endswith(NOTE)
    assert best.result["latency_ms"]["candidate"]["median"] == pytest.approx(BETTER_CYCLES * 1e-6)
    assert best.result["latency_ms"]["eager"]["median"] == pytest.approx(EAGER_CYCLES * 1e-6)
    assert best.measurements.speedup == pytest.approx(SPEEDUP)


def test_the_terminal_says_so(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(NOTE in line for line in done.told if line.startswith(("passed", "best so far"))) == 4
    show_report(done.report)
    shown = capsys.readouterr().out
    assert "latency (cycles)" in shown and "latency (ms)" not in shown and " ms" not in shown
    assert "Timed: cycles." in shown and f"{EAGER_CYCLES:,}" in shown and f"{BETTER_CYCLES:,}" in shown
    arguments = ["leaderboard", "--platform", "simulated"]
    listed = CliRunner().invoke(build_app(), arguments, env={"KERNELWRIGHT_DATA_DIR": str(done.settings.data_dir)})
    assert f"{BETTER_CYCLES:,} cycles" in listed.stdout and NOTE in listed.output


def test_the_models_are_told_so(done: Done) -> None:
    assert done.llm.requests() == ["write", "judge-improve", "improve"]
    assert "counts cycles" in done.llm.sections(0)["platform"] and "timed: cycles" in done.llm.sections(0)["device"]
    for index in (1, 2):
        assert json.loads(done.llm.sections(index)["evaluation"])["timed"] == "cycles"
        assert done.llm.sections(index)["profile"].startswith(NOTE)


def test_the_exported_file_and_the_report_say_so(done: Done) -> None:
    kernel = done.kernel.read_text()
    assert kernel.endswith(BETTER)
    assert f"# Speedup over eager: {SPEEDUP:.3f}" in kernel and f", {NOTE}\n" in kernel
    assert "array machine" in kernel.partition("# Use:")[2]
    report = done.kernel.with_name("fast.report.md").read_text()
    assert "median (cycles)" in report and "(ms)" not in report and " ms" not in report
    assert f"| {BETTER_CYCLES:,} |" in report and report.count(NOTE) == 2
    assert "the device's described limits allow" in report


def test_the_pages_say_so(done: Done) -> None:
    job, best = done.report.job, done.report.best
    assert best is not None
    paths = ("/leaderboard", "/jobs", f"/jobs/{job.id}", f"/jobs/{job.id}/candidates/{best.candidate_hash}")
    shown = {path: page(done, path) for path in ("/", *paths, "/tasks/local/op")}
    for path, text in shown.items():
        assert NOTE in text, path
    for path in paths[2:]:
        assert " ms<" not in shown[path] and ", ms<" not in shown[path] and ">ms<" not in shown[path]
        assert f"{BETTER_CYCLES:,}" in shown[path]
    assert f"{BETTER_CYCLES:,}" in shown["/leaderboard"]
    assert "bytes a cycle" in shown[paths[3]] and "GB/s" not in shown[paths[3]]
    assert '"unit": "cycles"' in shown[paths[3]]
    assert f"{SPEEDUP:.2f} times eager, {NOTE}" in shown[paths[2]], "the job's log"


def test_the_api_and_the_tools_of_agents_say_so(done: Done) -> None:
    client = Web(done.store, done.settings, login=False).client()
    whole = client.get(f"/api/v1/jobs/{done.report.job.id}").json()
    assert [("cycles" in line["tags"]) for line in whole["rounds"]] == [True, True]
    assert "cycles" in whole["best"]["tags"]
    [entry] = client.get("/api/v1/leaderboard?platform=simulated").json()["entries"]
    assert "cycles" in entry["tags"] and entry["rank"] == 1
    assert leaderboard_page(done.store)[0][0].tags == tuple(entry["tags"])
    tools = {tool.name: tool for tool in tool_specs()}
    given = {"op_source": OP, "candidate_source": BETTER}
    for name in ("evaluate", "profile"):
        tool = tools[name]
        found = bounded(tool.run(done.settings, tool.arguments(**given), lambda text: None, CancelToken()))
        assert (found["verdict"], found["timed"]) == ("passed", "cycles")


def test_a_batch_says_so(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    other = done.op.with_name("other.py")
    other.write_text(OP.replace("(16, 64)", "(32, 64)"))
    spec = make_spec(
        {"tasks": [str(done.op), str(other)], "models": [MODEL], "platforms": ["simulated"], "job": {"rounds": 1}}
    )
    batch_id = start_batch(spec, settings=done.settings, store=done.store)
    with models(AnsweringLLM(lambda sections, messages: fenced(BETTER))):
        local.run_batch(
            batch_id, settings=done.settings, store=done.store, observer_for=lambda job: lambda event: None,
            cancel=CancelToken(),
        )  # fmt: skip
    details = show_batch(done.store, batch_id)
    assert details.complete and [job.outcome for job in details.jobs] == ["passed", "passed"]
    assert details.groups[0].figures.geomean is not None
    from service.cli.batch_output import show_details, show_jobs

    show_details(details)
    show_jobs(details)
    assert capsys.readouterr().out.count(NOTE) == 3
    text = page(done, f"/batches/{batch_id}")
    assert NOTE in text and f"{MODEL}, {NOTE}" in text
    assert all("cycles" in job["tags"] for job in batch_json(details)["jobs"])
    assert NOTE.partition(": ")[2] in json.dumps(kernelbench_form(details).eval_results)
