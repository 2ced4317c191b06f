"""What a command prints of an evaluation."""

from typing import Any

import pytest

from service.cli import job_output as shown
from tasks.outcomes import TAGS, UNRANKED


def passed(*tags: str, **changes: Any) -> dict[str, Any]:
    return {
        "verdict": "passed",
        "code": None,
        "tags": list(tags),
        "latency_ms": {},
        "roofline": None,
        "provenance": {"security_boundary": True, "sandbox": {"name": "docker"}},
        **changes,
    }


@pytest.mark.parametrize("tag", sorted(UNRANKED))
def test_figures_that_get_no_rank_say_why(tag: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown.show_evaluation(passed(tag))
    lines = capsys.readouterr().out.splitlines()
    assert TAGS[tag].text in " ".join(line.strip() for line in lines)
    assert max(map(len, lines)) <= 80
    shown.show_evaluation(passed("tie"))
    assert "No rank" not in capsys.readouterr().out


def test_every_line_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    unbounded = {"security_boundary": False, "sandbox": {"name": "process"}}
    shown.show_evaluation(passed(*TAGS, provenance=unbounded))
    shown.show_evaluation({"verdict": "wrong_output", "code": "values", "message": "far off, " * 30})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("security boundary" in line for line in lines)


def test_why_no_limit_is_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    shown.show_evaluation(passed(profile={"roofline_note": "this op can be done with less"}))
    assert "not known: this op can be done with less" in capsys.readouterr().out


def test_a_screened_candidate_is_told_on_which_smaller_inputs_it_was_judged(capsys: pytest.CaptureFixture[str]) -> None:
    screening = {"smaller_inputs": ["2x8 instead of 4x8"], "smaller_in_checks": ["1x8 instead of 2x8"]}
    shown.show_evaluation(passed("executed", verdict="screened", profile={"screening": screening}))
    said = " ".join(capsys.readouterr().out.split())
    assert "smaller, because a call on the task's own takes too long here: 2x8 instead of 4x8" in said
    assert "smaller still for races, bounds and order: 1x8 instead of 2x8" in said
    shown.show_evaluation(passed("executed", verdict="screened", profile={"screening": {}}))
    assert "smaller" not in capsys.readouterr().out
