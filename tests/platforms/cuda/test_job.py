"""A job for platform `cuda`: models work on what is shown without a GPU, and no place names a time."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents.protocols import Event
from db.store import Store
from service.cancellation import CancelToken
from service.cli.job_output import show_report
from service.cli.progress import ProgressState
from service.database import open_store
from service.errors import BadRequest
from service.jobs import local
from service.jobs import run as job_run
from service.jobs.run import JobReport
from service.settings import Settings, load_settings
from tests.fakes import ScriptedLLM, fenced
from tests.platforms.kits import OP, cuda
from tests.support.web_application import Web

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("cuda")]

TORCH_DOES_A_PART = cuda(result="value * w[i]", body="return torch.relu(extension.scaled_relu(x, self.weight) - x) + x")
RIGHT = cuda()
ADVICE = {
    "bottleneck": "torch computes the ReLU",
    "change": "move the ReLU into the kernel",
    "evidence": ["not timed: screened without a GPU"],
    "stop": False,
}


@dataclass(frozen=True)
class Done:
    """A job that has run, and all that was told meanwhile."""

    report: JobReport
    settings: Settings
    store: Store
    llm: ScriptedLLM
    told: list[str]
    kernel: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "op.py").write_text(OP)
    settings = load_settings(
        data_dir=folder / "data", lock_dir=folder, platform="cuda", sandbox="docker", model="openai/scripted", rounds=4
    )
    advice = fenced(json.dumps(ADVICE), language="json")
    llm = ScriptedLLM([fenced(TORCH_DOES_A_PART), advice, fenced(RIGHT), advice, fenced(RIGHT)])
    store, progress, told = open_store(settings), ProgressState("optimize"), list[str]()

    def observe(event: Event) -> None:
        told.append(progress.apply(event) or "")

    with contextlib.ExitStack() as until, pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_run, "open_models", lambda *_, **__: llm)
        until.callback(store.close)
        report = local.optimize(
            str(folder / "op.py"), settings=settings, store=store, observe=observe, cancel=CancelToken(),
            out=folder / "fast.py",
        )  # fmt: skip
        yield Done(report, settings, store, llm, told, folder / "fast.py")


def test_the_candidate_of_which_more_is_shown_is_the_best(done: Done) -> None:
    best = done.report.best
    assert best is not None and best.source == RIGHT and best.verdict == "screened"
    assert {"executed", "custom_kernel", "race_free", "in_bounds"} <= set(best.tags)
    assert best.measurements.speedup is None and best.round == 2


@pytest.mark.nvrtc
@pytest.mark.usefixtures("gpu_compiler")
def test_the_job_ends_when_all_is_shown(done: Done) -> None:
    assert done.report.stop_reason == "shown"
    assert done.llm.requests() == ["write", "judge-improve", "improve"]


def test_the_models_are_told_what_is_not_shown_and_why(done: Done) -> None:
    for index in (1, 2):
        sections = done.llm.sections(index)
        assert json.loads(sections["evaluation"])["verdict"] == "screened"
        assert "not timed: screened without a GPU" in sections["profile"]
        unwrapped = sections["profile"].replace("\n    ", " ")
        assert "not shown: race_free, in_bounds: its launches do not write the outputs" in unwrapped


def test_the_terminal_names_what_is_shown(done: Done, capsys: pytest.CaptureFixture[str]) -> None:
    assert "best so far: round 1: executed, not timed" in [line.replace("compiled, ", "") for line in done.told]
    show_report(done.report)
    shown = capsys.readouterr().out
    assert "verdict    screened" in shown and "race_free" in shown and "latency" not in shown


def test_the_exported_file_and_the_report_claim_no_speed(done: Done) -> None:
    kernel = done.kernel.read_text()
    assert kernel.endswith(RIGHT)
    assert "# Verdict: screened" in kernel and "Speedup" not in kernel
    assert "a GPU" in kernel.partition("# Use:")[2]
    report = done.kernel.with_name("fast.report.md").read_text()
    assert "a kernel, not timed yet" in report and "- thread sanitizer: nothing found" in report
    assert "faster" not in report and "Latency" not in report
    assert "--platform cuda" in report


def test_the_pages_name_the_verdict(done: Done) -> None:
    job, best = done.report.job, done.report.best
    assert best is not None
    client = Web(done.store, done.settings, login=False).client()
    for path in ("/", "/jobs", f"/jobs/{job.id}", f"/jobs/{job.id}/candidates/{best.candidate_hash}"):
        answer = client.get(path)
        assert answer.status_code == 200, answer.text
        assert " ms<" not in answer.text
        if path.startswith("/jobs/"):
            assert "screened" in answer.text and "measuring the best" not in answer.text
        if path.endswith(f"/{job.id}"):
            assert "Found a kernel that is right; it was not timed" in answer.text
            assert "custom_kernel, race_free, in_bounds, not timed" in answer.text, "the log"


def test_a_strategy_that_chooses_by_times_is_refused(done: Done) -> None:
    settings = done.settings.model_copy(update={"strategy": "tree"})
    with pytest.raises(BadRequest, match=r"'tree' chooses by times, .* choose judge, sample, tools"):
        local.optimize(
            str(done.kernel.with_name("op.py")), settings=settings, store=done.store, observe=lambda event: None,
            cancel=CancelToken(),
        )  # fmt: skip
