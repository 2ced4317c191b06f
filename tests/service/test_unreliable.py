"""Figures that cannot be relied on say so wherever they are shown."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from agents import stop_rules
from db.leaderboard.rules import UNRELIABLE
from service.cli import job_output as shown
from service.jobs.report import _roofline, _summary

WORDS = {
    "noisy": "busy with something else",
    "beyond_roofline": "quarantined",
    "too_short": "hand-over",
    "cold": "cold caches",
    "uneven": "that the speedup counts",
}


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


def test_whoever_ranks_chooses_or_shows_means_the_same_tags() -> None:
    assert set(UNRELIABLE) == stop_rules.UNRELIABLE == set(shown.UNRELIABLE) == set(WORDS)


@pytest.mark.parametrize("tag", UNRELIABLE)
def test_the_command_says_it(tag: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown.show_evaluation(passed(tag))
    lines = capsys.readouterr().out.splitlines()
    assert WORDS[tag] in " ".join(line.strip() for line in lines)
    assert max(map(len, lines)) <= 80
    shown.show_evaluation(passed("tie"))
    assert WORDS[tag] not in capsys.readouterr().out


def test_every_line_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    unbounded = {"security_boundary": False, "sandbox": {"name": "process"}}
    shown.show_evaluation(passed("custom_kernel", *UNRELIABLE, provenance=unbounded))
    shown.show_evaluation({"verdict": "wrong_output", "code": "values", "message": "far off, " * 30})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("security boundary" in line for line in lines)


@pytest.mark.parametrize("tag", UNRELIABLE)
def test_the_report_says_it(tag: str) -> None:
    job: Any = SimpleNamespace(model="m")
    best: Any = SimpleNamespace(
        verdict="passed", tags=(tag,), sandbox="docker", result=passed(tag), created_at=datetime.now(UTC)
    )
    assert WORDS[tag] in _summary(job, best)
    best.tags = ()
    assert WORDS[tag] not in _summary(job, best)


def test_why_no_limit_is_known_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    shown.show_evaluation(passed(profile={"roofline_note": "this op can be done with less"}))
    assert "not known: this op can be done with less" in capsys.readouterr().out
    assert _roofline(None) == "Not known for this op.\n"
