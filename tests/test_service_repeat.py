"""Several evaluations of one candidate: whether they agree, and how it is shown."""

from typing import Any

import pytest

from service.cli.result import show_evaluation, show_repeated
from service.repeat import summary


def result(verdict: str = "passed", code: str | None = None, **speedups: tuple[float, float, float]) -> dict[str, Any]:
    intervals = {name: dict(zip(("value", "low", "high"), values, strict=True)) for name, values in speedups.items()}
    return {
        "verdict": verdict,
        "code": code,
        "speedup": intervals if verdict == "passed" else None,
        "latency_ms": {"candidate": {"median": 0.5, "low": 0.4, "high": 0.6}} if verdict == "passed" else {},
    }


def test_one_verdict_and_overlapping_intervals_agree() -> None:
    found = summary([result(eager=(2.0, 1.9, 2.1)), result(eager=(2.08, 2.05, 2.2))], 2)
    assert found["agree"] is True
    assert (found["schema"], found["asked"], found["done"]) == ("kernelwright.repeat/1", 2, 2)
    assert found["speedup"]["eager"] == {"median": 2.04, "lowest": 2.0, "highest": 2.08}
    assert len(found["evaluations"]) == 2


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([result(), result("wrong_output", "values")], "verdicts differ: passed, wrong_output/values"),
        ([result("wrong_output", "nan"), result("wrong_output", "values")], "verdicts differ"),
        ([result(eager=(2.0, 1.9, 2.1)), result(eager=(2.5, 2.4, 2.6))], "intervals do not overlap"),
        ([result(eager=(2, 1, 3)), result(eager=(2, 1, 3), compile=(1, 1, 1))], "measured in 1 of 2"),
    ],
)
def test_what_differs_is_named(results: list[dict[str, Any]], words: str) -> None:
    found = summary(results, len(results))
    assert found["agree"] is False
    assert words in " ".join(found["differences"])


def test_a_single_one_agrees_with_nothing() -> None:
    assert summary([result()], 3)["agree"] is None
    assert summary([], 3)["agree"] is None


def test_people_see_a_row_for_each_and_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    show_repeated(summary([result(eager=(2.0, 1.9, 2.1)), result("wrong_output", "values")], 2))
    shown = capsys.readouterr().out
    assert "wrong_output (values)" in shown
    assert "2.00 (1.90-2.10)" in shown
    assert "disagree: verdicts differ" in shown
    show_repeated(summary([result(eager=(2.0, 1.9, 2.1))] * 3, 3))
    assert "the 3 evaluations agree" in capsys.readouterr().out


def test_people_see_what_was_declared_and_what_another_rule_says(capsys: pytest.CaptureFixture[str]) -> None:
    correctness = {
        "checks": [{"inputs": "NaN and Inf", "note": "skipped: leaves the declared domain (finite)"}],
        "tolerance": {"declared": {"float32": 1e-3}},
        "kernelbench": {"passed": False, "input_sets": 2},
    }
    show_evaluation({**result("wrong_output", "values"), "correctness": correctness})
    shown = capsys.readouterr().out
    assert "declared by the task: float32 0.001" in shown
    assert "NaN and Inf: skipped: leaves the declared domain (finite)" in shown
    assert "kernelbench's rule refuses it on 2 sets" in shown
