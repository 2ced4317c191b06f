"""The page about a GPU: what a run writes, and that a host without one writes nothing."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import gpu as page
from evaluator.evaluation import Evaluation
from evaluator.platforms.gpu.driver import gpu_at
from evaluator.referee.protocol.nvml import Gpu

ROOT = Path(__file__).parents[3]
GPU = Gpu(0, "GPU-a", "NVIDIA H200", "9.0", 141 << 30, "580.65.06")


@pytest.mark.skipif(gpu_at(0) is not None, reason="there is a GPU here")
def test_without_a_gpu_nothing_is_run_and_nothing_written() -> None:
    before = sorted((ROOT / "benchmarks" / "results").glob("gpu*"))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == page.NO_GPU
    assert "nothing was run, nothing was written" in done.stderr and not done.stdout
    assert sorted((ROOT / "benchmarks" / "results").glob("gpu*")) == before


def test_what_is_needed_to_judge_on_a_gpu_is_torch_and_the_standard_library() -> None:
    absent = (
        "pydantic",
        "docker",
        "sqlalchemy",
        "typer",
        "rich",
        "litellm",
        "openai",
        "langgraph",
        "fastapi",
        "pytest",
    )
    script = f"import sys; sys.modules.update(dict.fromkeys({absent})); import benchmarks.gpu"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def found(verdict: str, *, code: str | None = None, speedup: float | None = None) -> Evaluation:
    interval = SimpleNamespace(value=speedup, low=0.99, high=1.02)
    latency = {name: SimpleNamespace(median=0.25) for name in ("eager", "candidate")}
    told = {
        "verdict": verdict,
        "code": code,
        "message": "why | not",
        "tags": ("custom_kernel",),
        "speedup": None if speedup is None else {"eager": interval},
        "latency_ms": latency,
    }
    return cast("Evaluation", SimpleNamespace(**told))


def test_a_line_says_whether_the_verdict_is_as_it_must_be() -> None:
    attack = page.Case("attack", "late", "cuda", "op", "source", ("wrong_output",))
    assert "| wrong_output (values) | yes |" in page.row_of(attack, found("wrong_output", code="values"), 1.0)
    line = page.row_of(attack, found("passed", speedup=2.0), 1.0)
    assert "| passed | NO | 2.0000 (0.9900 to 1.0200) | 0.2500 / 0.2500 | custom_kernel | 1.0 | why / not |" in line
    itself = page.Case("A/A", "run 1", "cuda", "op", "source")
    assert "| NO |" in page.row_of(itself, found("sandbox_error"), 1.0)
    assert "| yes |" in page.row_of(itself, found("passed", speedup=1.0), 1.0)


def test_the_page_names_device_driver_and_command() -> None:
    attack = page.Case("attack", "late", "cuda", "op", "source", ("wrong_output",))
    rows = [page.row_of(attack, found(verdict), 1.0) for verdict in ("wrong_output", "passed")]
    text = page.page_of(GPU, "python -m benchmarks.gpu --again 1", rows)
    assert "As it must be: 1 of 2." in text
    assert page.page_of(GPU, "", rows, ["## Profile of"]).endswith(f"{rows[-1]}\n## Profile of\n")
    assert "NVIDIA H200" in text and "580.65.06" in text and "`python -m benchmarks.gpu --again 1`" in text


def test_a_run_holds_kits_attacks_honest_candidates_and_an_op_against_itself() -> None:
    every: list[Any] = list(page.cases(again=3))
    parts = [case.part for case in every]
    assert parts.count("A/A") == 3 and parts.count("attack") >= 10 and parts.count("honest") >= 4
    assert {case.platform for case in every if case.part == "kit"} == {"cuda", "triton"}
    assert all(case.verdicts for case in every if case.part != "A/A")
