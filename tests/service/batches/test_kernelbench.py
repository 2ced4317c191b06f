"""Figures beside KernelBench's own analysis script: what it printed, unchanged, for the same rows.

`python benchmarks/kernelbench_figures.py CHECKOUT --record` has recorded the outputs in tests/data/kernelbench_analysis
with the checkout's commit and digests. Without `--record` it runs the script again and compares. So does the last test
here if KERNELWRIGHT_TEST_KERNELBENCH names a checkout, and KERNELWRIGHT_TEST_KERNELBENCH_PYTHON a Python that has what
the script imports.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kernelbench_figures import CASES, RECORDED, compared
from service.batches.forms import kernelbench_form, level_of, multikernelbench_form
from service.batches.results import samples_of
from service.batches.statistics import Figures, figures
from tests.support.kernelbench_script import details_of, generated_rows, read_by_script, run_script

CASE = pytest.mark.parametrize("case", sorted(CASES))


def recorded(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{case}.json").read_text())
    return found


def first_samples(rows: list[Any]) -> Figures:
    """Our figures of each task's first sample: the script looks at no other."""
    return figures([sample for sample in samples_of(details_of(rows).jobs, "eager") if sample.number == 1])


@CASE
def test_the_script_says_what_our_figures_say_of_the_same_rows(case: str) -> None:
    found = recorded(case)
    for name, ours, theirs in compared(first_samples(found["rows"]), found["figures"]):
        assert ours == pytest.approx(theirs, rel=1e-9), name


@CASE
def test_what_it_printed_are_these_figures(case: str) -> None:
    found = recorded(case)
    ours, printed = first_samples(found["rows"]), found["printed"]
    assert f"Compilation rate: {100 * (ours.compile_rate or 0):.1f}%" in printed
    assert f"Correctness rate: {100 * (ours.correctness_rate or 0):.1f}%" in printed
    assert ours.geomean_passed is not None
    assert f"Geometric mean of speedup for correct samples: {ours.geomean_passed.value:.4f}" in printed
    scores = dict(re.findall(r"\| +([0-9.]+) +\| +([0-9.]+) +\|", printed))
    assert {float(p): float(score) for p, score in scores.items()} == {
        p: pytest.approx(score, abs=1e-6) for p, score in ours.fast_p.items()
    }
    every = figures(samples_of(details_of(found["rows"]).jobs, "eager"))
    averages = dict(re.findall(r"\| avg_(pass@[0-9]+) +\| +([0-9.]+) \|", printed))
    assert {name: float(value) for name, value in averages.items()} == {
        f"pass@{k}": pytest.approx(value, abs=1e-5) for k, value in every.pass_at_k.items()
    }


@CASE
def test_the_files_that_it_read_are_those_that_are_exported_now(case: str) -> None:
    found = recorded(case)
    now = read_by_script(kernelbench_form(details_of(found["rows"])))
    assert json.loads(json.dumps(now)) == found["read"]
    assert json.loads(json.dumps(generated_rows(**CASES[case]))) == found["rows"]  # type: ignore[arg-type]


def test_the_rows_hold_what_results_hold() -> None:
    rows = [row for case in CASES for row in recorded(case)["rows"]]
    outcomes = {(outcome, compiled, counts) for _, _, outcome, compiled, counts, *_ in rows}
    failures = {("failed", True, False), ("failed", False, False)}
    assert outcomes == failures | {("passed", True, True), ("passed", True, False)}
    speedups = [speedup for *_, counts, speedup, _, _ in rows if counts]
    assert min(speedups) < 0.5 and max(speedups) > 2.0


def test_a_form_is_complete_also_where_nothing_was_timed() -> None:
    rows = [
        ("s/7_a", 1, "failed", False, False, None, None, None),
        ("s/8_b", 1, "passed", True, False, 3.0, 6.0, 2.0),
        ("s/8_b", 2, "passed", True, True, 3.0, 2.0, 0.7),
    ]
    form = kernelbench_form(details_of(rows))  # type: ignore[arg-type]
    assert form.problems == {"7": "7_a.py", "8": "8_b.py"}
    assert form.baseline["level1"]["7_a.py"]["num_trials"] == 0
    baseline = form.baseline["level1"]["8_b.py"]
    assert (baseline["mean"], baseline["std"], baseline["num_trials"]) == (4.0, 2.0, 2)
    noisy, counted = form.eval_results["8"]
    assert noisy["runtime"] == pytest.approx(4.0) and noisy["metadata"]["speedup_counts"] is False
    assert counted["runtime"] == pytest.approx(4.0 / 3.0) and counted["runtime_stats"]["median"] == 0.7
    assert form.eval_results["7"][0]["runtime"] == -1.0
    assert form.pass_at_k["averages"] == {"avg_pass@1": 0.5}


def test_numbers_that_are_equal_are_no_problem_ids() -> None:
    rows = [(f"s/{name}", 1, "failed", False, False, None, None, None) for name in ("01_b", "1_a")]
    form = kernelbench_form(details_of(rows))  # type: ignore[arg-type]
    assert sorted(form.problems) == ["1", "2"] and all(len(tries) == 1 for tries in form.eval_results.values())


def test_multikernelbenchs_form_has_a_result_a_run() -> None:
    rows = [
        ("multikernelbench-loss/mse", 1, "failed", False, False, None, None, None),
        ("multikernelbench-loss/mse", 2, "passed", True, True, 4.0, 2.0, 0.5),
        ("multikernelbench-math/cumsum", 1, "failed", True, False, None, None, None),
    ]
    form = multikernelbench_form(details_of(rows), model="openai/m", platform="cpu")  # type: ignore[arg-type]
    first, second = form.runs
    assert set(first) == {"mse", "cumsum"} and set(second) == {"mse"}
    assert (first["mse"]["compiled"], first["mse"]["correctness"], first["mse"]["performance"]) == (False, False, None)
    assert "compile_info" in first["mse"] and "correctness_info" in first["cumsum"]
    assert second["mse"]["performance"]["mean"] == pytest.approx(0.5)
    assert form.baseline["mse"]["mean"] == 2.0 and form.language == "cpu"


def test_ops_of_the_same_name_are_told_apart() -> None:
    rows = [(f"{suite}/op", 1, "passed", True, True, 2.0, 2.0, 1.0) for suite in ("a", "b")]
    form = multikernelbench_form(details_of(rows), model="openai/m", platform="cpu")  # type: ignore[arg-type]
    assert set(form.baseline) == {"a/op", "b/op"}


@pytest.mark.parametrize(
    ("suite", "level"),
    [
        ("kernelbench-level3", 3),
        ("kernelbench-level2-fit256MB", 2),
        ("kernelbench-level2.finite", 2),
        ("starter", 1),
        ("npukernelbench_level0", 1),
    ],
)
def test_a_suite_says_its_level(suite: str, level: int) -> None:
    assert level_of(suite) == level


@CASE
@pytest.mark.skipif("KERNELWRIGHT_TEST_KERNELBENCH" not in os.environ, reason="needs a checkout of KernelBench")
def test_the_script_itself_says_so_again(case: str, tmp_path: Path) -> None:
    python = os.environ.get("KERNELWRIGHT_TEST_KERNELBENCH_PYTHON", sys.executable)
    checkout = Path(os.environ["KERNELWRIGHT_TEST_KERNELBENCH"])
    found = recorded(case)
    _, theirs = run_script(checkout, python, kernelbench_form(details_of(found["rows"])), tmp_path)
    for name, ours, value in compared(first_samples(found["rows"]), theirs):
        assert ours == pytest.approx(value, rel=1e-9), name
