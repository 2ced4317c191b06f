"""Several evaluations of one candidate: whether they agree, and how it is shown."""

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from db.leaderboard.pooling import Speedup, pool_speedups
from service.cancellation import Cancelled, CancelToken
from service.cli.app import run
from service.cli.job_output import show_evaluation, show_repeated
from service.evaluate import repeat_summary


def result(verdict: str = "passed", code: str | None = None, **speedups: tuple[float, float, float]) -> dict[str, Any]:
    intervals = {name: dict(zip(("value", "low", "high"), values, strict=True)) for name, values in speedups.items()}
    return {
        "verdict": verdict,
        "code": code,
        "speedup": intervals if verdict == "passed" else None,
        "latency_ms": {"candidate": {"median": 0.5, "low": 0.4, "high": 0.6}} if verdict == "passed" else {},
    }


def test_one_verdict_and_overlapping_intervals_agree() -> None:
    found = repeat_summary([result(eager=(2.0, 1.9, 2.1)), result(eager=(2.08, 2.05, 2.2))], 2)
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
    found = repeat_summary(results, len(results))
    assert found["agree"] is False
    assert words in " ".join(found["differences"])


def test_the_pooled_speedups_are_those_that_the_leaderboard_would_have() -> None:
    noisy = result(eager=(9.0, 8.9, 9.1)) | {"tags": ["noisy"]}
    found = repeat_summary([result(eager=(2.0, 1.9, 2.1)), result(eager=(2.1, 2.0, 2.2)), noisy], 3)
    assert found["pooled"]["eager"] == asdict(pool_speedups([Speedup(2.0, 1.9, 2.1), Speedup(2.1, 2.0, 2.2)]))
    assert repeat_summary([noisy], 1)["pooled"]["eager"] == {"value": 9.0, "low": 8.9, "high": 9.1}
    assert repeat_summary([result(eager=(2.0, 1.9, 2.1)), result("wrong_output", "values")], 2)["pooled"] == {}


def test_a_single_one_agrees_with_nothing() -> None:
    assert repeat_summary([result()], 3)["agree"] is None
    assert repeat_summary([], 3)["agree"] is None


def test_people_see_a_row_for_each_and_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    show_repeated(repeat_summary([result(eager=(2.0, 1.9, 2.1)), result("wrong_output", "values")], 2))
    shown = capsys.readouterr().out
    assert "wrong_output (values)" in shown
    assert "2.00 (1.90-2.10)" in shown
    assert "disagree: verdicts differ" in shown
    show_repeated(repeat_summary([result(eager=(2.0, 1.9, 2.1))] * 3, 3))
    shown = capsys.readouterr().out
    assert "the 3 evaluations agree" in shown
    assert "over eager: pooled 2.00 (1.94-2.06)" in shown


def test_people_see_what_was_declared_and_what_another_rule_says(capsys: pytest.CaptureFixture[str]) -> None:
    correctness = {
        "checks": [
            {"inputs": "as generated", "passed": True, "note": ""},
            {"inputs": "scaled up", "passed": False, "note": ""},
            {"inputs": "NaN and Inf", "passed": True, "note": "skipped: leaves the declared domain (finite)"},
            {"inputs": "large integers", "passed": True, "note": "skipped: nothing to change"},
        ],
        "tolerance": {"declared": {"float32": 1e-3}},
        "kernelbench": {"passed": False, "input_sets": 2},
    }
    show_evaluation({**result("wrong_output", "values"), "correctness": correctness})
    shown = capsys.readouterr().out
    assert "declared by the task: float32 0.001" in shown
    assert "checks     1 passed, 1 failed, 2 skipped" in shown
    assert "large integers: skipped: nothing to change" in shown
    assert "NaN and Inf: skipped: leaves the declared domain (finite)" in shown
    assert "kernelbench's rule refuses it on 2 sets" in shown


@pytest.mark.parametrize(("done", "status"), [(2, 130), (0, 130)])
def test_ctrl_c_keeps_those_that_are_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], done: int, status: int
) -> None:
    def stopped_half_way(*_: Any, cancel: CancelToken, times: int, **__: Any) -> Iterator[Any]:
        assert times == 5
        for _number in range(done):
            yield SimpleNamespace(record=SimpleNamespace(result=result(eager=(2.0, 1.9, 2.1))))
        cancel.signal_number = signal.SIGINT
        raise Cancelled

    monkeypatch.setattr("service.evaluate.evaluate_file", stopped_half_way)
    assert run(["evaluate", "op.py", "best.py", "--repeat", "5", "--json"]) == status
    shown = capsys.readouterr()
    if done:
        found = json.loads(shown.out)
        assert (found["asked"], found["done"], found["agree"]) == (5, 2, True)
        assert "stopped after 2 of 5" in shown.err
    else:
        assert shown.out == ""
        assert "stopped before there was a verdict" in shown.err


PROFILED = {"absent": {}, "detail": {"absent": {"calls": "the runner crashed"}}}


@pytest.mark.parametrize("as_json", [False, True])
def test_people_see_the_profile_of_the_first_that_passed_after_the_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    done = [
        {**result("crashed"), "profile": {}},
        {**result(eager=(2.0, 1.9, 2.1)), "profile": {**PROFILED, "output_bytes": 1024}},
        {**result(eager=(2.0, 1.9, 2.1)), "profile": {**PROFILED, "output_bytes": 4096}},
    ]
    evaluated = [SimpleNamespace(record=SimpleNamespace(result=one)) for one in done]
    monkeypatch.setattr("service.evaluate.evaluate_file", lambda *_, **__: iter(evaluated))
    asked = ["evaluate", "op.py", "best.py", "--repeat", "3", "--profile", *(["--json"] if as_json else [])]
    assert run(asked) == 0
    shown = capsys.readouterr().out
    if as_json:
        assert [one["profile"] for one in json.loads(shown)["evaluations"]] == [one["profile"] for one in done]
        return
    summarised, _, profiled = shown.partition("profile of evaluation 2 of 3")
    assert "the evaluations disagree" in summarised
    assert "output: 1,024 B" in profiled
    assert "not measured: calls: the runner crashed" in profiled
    assert "4,096" not in shown


def test_repeats_of_which_none_passed_have_no_profile_to_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated = [SimpleNamespace(record=SimpleNamespace(result={**result("crashed"), "profile": {}}))] * 2
    monkeypatch.setattr("service.evaluate.evaluate_file", lambda *_, **__: iter(evaluated))
    assert run(["evaluate", "op.py", "best.py", "--repeat", "2", "--profile"]) == 0
    assert "profile" not in capsys.readouterr().out


def test_what_runs_on_no_gpu_is_not_sanitized(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    candidate = tmp_path / "best.py"
    candidate.write_text("class ModelNew: ...\n")
    asked = ["evaluate", "starter/gelu_tanh", str(candidate), "--platform", "cpu", "--sanitize"]
    assert run(asked) == 2
    said = capsys.readouterr().err
    assert (
        "--sanitize: compute-sanitizer watches kernels on an NVIDIA GPU: on platforms cuda and triton where one" in said
    )
    assert "platform cpu on this host is" in said


def test_sanitizing_is_part_of_a_profile_which_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def evaluated(*_: Any, **options: Any) -> Iterator[Any]:
        asked.update(options)
        yield SimpleNamespace(record=SimpleNamespace(result={**result(eager=(2.0, 1.9, 2.1)), "profile": PROFILED}))

    monkeypatch.setattr("service.evaluate.evaluate_file", evaluated)
    assert run(["evaluate", "op.py", "best.py", "--sanitize"]) == 0
    assert asked["sanitize"] is True
    assert "the runner crashed" in capsys.readouterr().out


def test_an_unknown_rule_is_bad_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["evaluate", "starter/gelu_tanh", str(tmp_path / "best.py"), "--tolerance", "generous"]) == 2
    assert "--tolerance generous: unknown; there is: kernelbench" in capsys.readouterr().err
