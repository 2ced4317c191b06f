"""What a Judge may cite: figures by their full names, lines of the evaluation, words that were really said."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.prompting.builder import evaluation_text
from agents.prompting.citations import evidence_checker
from agents.protocols import Outcome

DETAIL = "kernel.cpp:12:5: error: 'floatx' was not declared in this scope\n   12 |     floatx y;\n      |     ^~~~~~"
FAILED = Outcome(
    "0" * 64, "build_failed", "compile_error", message="The C++ extension does not build.", detail=DETAIL, tags=("x",)
)
PASSED = Outcome(
    "1" * 64,
    "passed",
    speedup=1.5,
    latency_ms={"candidate": 0.25, "eager": 0.375},
    profile_text="achieved bandwidth 36.5 GB/s of 90.0 GB/s\n41 % of the time in mul_rows",
    metrics={"profile.gb_per_s": 36.5, "latency_ms.candidate": 0.25, "profile.operators.aten::mul": 3},
)


@pytest.mark.parametrize(
    "line",
    [
        '"verdict": "build_failed"',
        '"verdict": "build_failed",',
        '`"verdict": "build_failed"`',
        "verdict: build_failed",
        'evaluation says "verdict": "build_failed".',
        '"verdict": "build_failed", "code": "compile_error"',
        "'floatx' was not declared in this scope",
        "kernel.cpp:12:5: error: 'floatx' was not declared in this scope",
        "detail: error: 'floatx' was not declared in this scope",
        "It does not build: the message is `The C++ extension does not build.`",
        "error: \u2018floatx\u2019 was not declared in this scope",
        "'floatx' was not declared in this scope\\n   12 |     floatx y;",
        DETAIL,
        json.dumps(DETAIL),
        "the c++ extension does not build",
    ],
)
def test_honest_evidence_of_a_failure_is_taken(line: str) -> None:
    assert evidence_checker(FAILED)([line]) is None


@pytest.mark.parametrize(
    "line",
    [
        "profile.gb_per_s",
        "profile.gb_per_s = 36.5",
        "the figure to look at is profile.gb_per_s.",
        "(profile.gb_per_s: 36.5)",
        "profile.operators.aten::mul is 3",
        "profile.gb_per_s_peak_unreal, but also profile.gb_per_s",
        '"speedup": 1.5,',
        '"candidate": 0.25',
        "achieved bandwidth 36.5 GB/s",
        "profile: 41 % of the time in mul_rows",
    ],
)
def test_honest_evidence_of_a_measurement_is_taken(line: str) -> None:
    assert evidence_checker(PASSED)([line]) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "x",
        "profile.gb_per_s_peak_unreal is 12",
        "profile.gb_per_s.peak is 12",
        "my.profile.gb_per_s",
        "profile.operators.aten::mul_ is 3",
        '"speedup": 1.55',
        '"speedup": 1.5.1',
        '"verdict": "passed_with_honours"',
        "candidate_hash",
        "roofline_fraction",
        "of the time",
        "{",
        "the cache misses are to blame",
        "bandwidth 3",
    ],
)
def test_evidence_of_nothing_that_was_shown_is_not_taken(line: str) -> None:
    doubt = evidence_checker(PASSED)(["profile.gb_per_s", line])
    assert doubt is not None and "names no figure" in doubt


def test_what_was_measured_is_not_judged_without_evidence() -> None:
    assert "is empty" in (evidence_checker(PASSED)([]) or "")
    assert evidence_checker(FAILED)([]) is None


@given(st.text(max_size=200), st.text(max_size=200), st.text(max_size=200))
def test_every_line_of_an_evaluation_is_evidence(message: str, detail: str, profile: str) -> None:
    outcome = Outcome("2" * 64, "wrong_output", "values", message, detail, profile_text=profile)
    check = evidence_checker(outcome)
    for line in evaluation_text(outcome).split("\n"):
        if ":" in line:
            assert check([line.strip()]) is None


WORDS = st.lists(
    st.sampled_from(["alpha", "be", "c", "delta9", "gb/s", "=", "12.5", "\u00fc", "\n", "(x)"]), min_size=1
)


@given(WORDS, st.data(), st.text("xyz -:`", max_size=20), st.text("xyz -:`", max_size=20))
def test_a_long_quote_is_found_whatever_stands_around_it(
    words: list[str], data: st.DataObject, before: str, after: str
) -> None:
    first = data.draw(st.integers(0, len(words) - 1))
    quote = " ".join(words[first : data.draw(st.integers(first, len(words) - 1)) + 1])
    outcome = Outcome("3" * 64, "wrong_output", detail=" ".join(words))
    squeezed = " ".join(quote.split()).strip("=()` ")
    if len(squeezed) >= 12 and squeezed[0].isalnum() and squeezed[-1].isalnum():
        assert evidence_checker(outcome)([f"{before} {quote} {after}"]) is None


@pytest.mark.parametrize("unit", ["a", "a ", "profile.", "profile.gb_per_s_", "aaaaaaaaaaaa ", '"', ": ", " "])
def test_endless_evidence_takes_time_that_grows_with_its_length_alone(unit: str) -> None:
    metrics = {f"profile.gb_per_s_{number}.{'a' * 50}": 1 for number in range(300)}
    detail = "a" * 100_000 + " a" * 100_000
    started_s = time.process_time()
    check = evidence_checker(
        Outcome("4" * 64, "passed", message=detail, detail=detail, profile_text=detail, metrics=metrics)
    )
    for _ in range(5):
        check([unit * (2_000_000 // len(unit))] * 20)
    assert time.process_time() - started_s < 60, "200 MB take a second; time that grows with the square takes hours"


def test_what_stands_far_behind_in_a_line_is_not_looked_at() -> None:
    assert evidence_checker(PASSED)(["-" * 2000 + " profile.gb_per_s"]) is not None
    assert evidence_checker(PASSED)(["-" * 1900 + " profile.gb_per_s"]) is None
