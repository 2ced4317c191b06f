"""The page about a GPU: what a run writes, and that a host without one writes nothing."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.__main__ import NO_GPU, judged, kept_of, run
from benchmarks.gpu.cases import LARGER, PARTS, Case, cases, larger
from benchmarks.gpu.page import page_of, row_of
from evaluator.build_cache import BuildCache
from evaluator.evaluation import Comparison, Evaluation, Interval, Latency, Roofline
from evaluator.platforms import load_platform
from evaluator.platforms.gpu.driver import gpu_at
from sandbox.process.sandbox import ProcessSandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict
from tests.platforms.gpu.attacks import PLAIN
from tests.platforms.kits import OP

ROOT = Path(__file__).parents[3]
HEAD = {
    "device": "NVIDIA H200",
    "compute_capability": "9.0",
    "driver": "580.65.06",
    "command": "python -m benchmarks.gpu --repeats 1",
}


@pytest.mark.skipif(gpu_at(0) is not None, reason="there is a GPU here")
def test_without_a_gpu_nothing_is_run_and_nothing_written() -> None:
    before = sorted((ROOT / "benchmarks" / "results").glob("gpu*"))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == NO_GPU
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
    script = f"import sys; sys.modules.update(dict.fromkeys({absent})); import benchmarks.gpu.__main__"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


ATTACK = Case("attack", "late", "cuda", OP, "source", ("wrong_output",))
ITSELF = Case("A/A", "run 1", "cuda", OP, "source")
FAULT = Case("fault", "race", "cuda", OP, "source", screened="crashed")


def found(verdict: str, *, code: str | None = None, speedup: float | None = None) -> Evaluation:
    return Evaluation(
        Verdict(verdict),
        "why | not",
        code=code,
        tags=("custom_kernel",),
        speedup=None if speedup is None else {"eager": Interval(speedup, 0.99, 1.02)},
        latency_ms={name: Latency(0.25, 0.24, 0.26) for name in ("eager", "candidate")},
        roofline=Roofline("memory", 0.2, 0.8) if speedup is not None else None,
        cost_s={"build": 2.0, "total": 4.0},
    )


def test_a_line_says_whether_the_verdict_is_as_it_must_be() -> None:
    assert "| wrong_output (values) | yes |" in row_of(kept_of(ATTACK, found("wrong_output", code="values")))
    line = row_of(kept_of(ATTACK, found("passed", speedup=2.0)))
    figures = "0.2500 / - / 0.2500 | 2.0000 (0.9900 to 1.0200) |  |  | 80%"
    assert line == f"| cuda | late | passed | NO | {figures} | custom_kernel | 4.0 |  |"
    assert row_of(kept_of(ATTACK, found("crashed"))).endswith("| why / not |")
    assert not kept_of(ITSELF, found("sandbox_error"))["kept"]
    assert kept_of(ITSELF, found("passed", speedup=1.0))["kept"]


def test_a_fault_that_a_device_does_not_show_is_a_result_and_no_failure() -> None:
    assert kept_of(FAULT, found("passed", speedup=1.0))["kept"]
    assert not kept_of(FAULT, found("sandbox_error"))["kept"]


def test_what_must_not_gain_is_held_against_the_same_candidate_without_it() -> None:
    gain = Case("gain", "persisting lines", "cuda", OP, "source", against="plain", at_most=1.05)
    beside = Comparison("hash", "alike", Interval(1.04, 1.0, 1.08), 3)
    kept = kept_of(gain, replace(found("passed", speedup=2.0), champion=beside))
    assert kept["kept"] and "| 1.0400 (1.0000 to 1.0800) |" in row_of(kept)
    faster = replace(beside, speedup=Interval(1.2, 1.1, 1.3))
    assert not kept_of(gain, replace(found("passed", speedup=2.0), champion=faster))["kept"]
    assert kept_of(gain, found("wrong_output"))["kept"]
    assert not kept_of(gain, found("sandbox_error"))["kept"]
    assert not kept_of(gain, found("passed", speedup=2.0))["kept"]


def test_the_page_names_device_driver_and_command_and_holds_a_table_for_each_part() -> None:
    runs = {
        case.key: kept_of(case, each)
        for case, each in (
            (ATTACK, found("passed", speedup=2.0)),
            (ITSELF, found("passed", speedup=1.01)),
            (FAULT, found("passed", speedup=1.0)),
        )
    }
    text = page_of(HEAD, runs)
    assert "As it must be: 2 of 3." in text
    assert "NVIDIA H200" in text and "580.65.06" in text and "`python -m benchmarks.gpu --repeats 1`" in text
    assert "A/A: off by 1.00% in the median and 1.00% at most; the interval holds 1.000 for 1 of 1." in text
    assert "## Attack" in text and "## Fault" in text and "## Exemplar" not in text
    assert "| refused when screened | 1 | 0 |" in text
    assert "| fault: cuda/race | crashed | passed |" in text
    assert "| attack | 1 | 0.0 | 0.0 | 0.0 | 0.0 | 2.0 | 0.0 | 0.0 | 0.0 | 0.0 | 4.0 |" in text


def test_each_part_is_there_and_every_case_has_a_name_of_its_own() -> None:
    every: list[Any] = list(cases(again=3))
    parts = [case.part for case in every]
    assert set(parts) == set(PARTS) and parts == sorted(parts, key=PARTS.index)
    assert parts.count("A/A") == parts.count("5 % slower") == 3
    assert parts.count("attack") >= 25 and parts.count("honest") >= 12
    assert {(case.platform) for case in every if case.part == "kit"} == {"cuda", "triton"}
    assert all(case.verdicts for case in every if case.part in ("kit", "attack", "honest", "starter", "exemplar"))
    assert {case.platform for case in every if case.part == "honest"} == {"cuda", "triton"}
    assert all(case.screened for case in every if case.part in ("starter", "fault", "exemplar"))
    assert len({case.key for case in every}) == len(every)


@pytest.mark.parametrize("op", LARGER)
def test_an_op_for_a_gpu_is_the_starter_op_with_larger_constants(op: str) -> None:
    source = larger(op)
    small = (ROOT / "tasks" / "suites" / "starter" / f"{op}.py").read_text()
    changed = [line for line in source.splitlines() if line not in small.splitlines()]
    assert changed == [f"{name} = {value}" for name, value in LARGER[op].items()]
    task_from_source(source, name=op)


def test_a_run_that_is_over_begins_nothing_more_and_says_how_much_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    judged_so_far: list[str] = []

    def judge(case: Case) -> dict[str, Any]:
        judged_so_far.append(case.key)
        return kept_of(case, found("wrong_output"))

    assert list(run([ATTACK, ITSELF, FAULT], judge, is_over=lambda: len(judged_so_far) == 2)) == [
        "attack/cuda/late",
        "A/A/cuda/run 1",
    ]
    told = capsys.readouterr()
    assert "1 are left for the next run" in told.err
    assert told.out.splitlines()[0].startswith("as it must be attack/cuda/late wrong_output")
    assert told.out.splitlines()[1].startswith("NOT as it must be A/A/cuda/run 1 wrong_output")


def test_a_case_is_judged_by_the_whole_referee(process_sandbox: ProcessSandbox, tmp_path: Path) -> None:
    case = Case("honest", "torch", "cpu", OP, PLAIN, ("passed",))
    result = judged(case, load_platform("cpu"), process_sandbox, BuildCache(tmp_path), 0)
    assert result["kept"], result["message"]
    assert result["speedup"]["eager"][0] > 0 and result["cost_s"]["total"] > 0
