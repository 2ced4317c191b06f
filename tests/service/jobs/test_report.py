"""The report that is exported with a kernel."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from service.jobs.export import _roofline, _summary, correctness_section, latency_section
from tasks.outcomes import TAGS, WALL


@pytest.mark.parametrize("tag", TAGS)
def test_the_report_says_what_a_tag_means(tag: str) -> None:
    job: Any = SimpleNamespace(job=SimpleNamespace(model="m"), on_leaderboard=None)
    best: Any = SimpleNamespace(
        verdict="passed",
        tags=(tag, "a tag of another version"),
        sandbox="docker",
        result={"provenance": {"security_boundary": True}},
        created_at=datetime.now(UTC),
    )
    assert TAGS[tag].text in _summary(job, best)
    best.tags = ()
    assert TAGS[tag].text not in _summary(job, best)


def test_checks_that_were_not_made_are_called_skipped() -> None:
    checks = [
        {"inputs": "as generated", "passed": True, "max_error": 1e-7, "allowed_error": 1e-6, "note": ""},
        {"inputs": "NaN and Inf", "passed": True, "max_error": None, "allowed_error": None, "note": "skipped: why"},
    ]
    rows = [
        line for line in correctness_section({"checks": checks}).splitlines() if "as generated" in line or "NaN" in line
    ]
    assert ["passed" in row for row in rows] == [True, False]
    assert "| skipped |" in rows[1]


def test_the_report_names_the_statistic_of_its_speedups() -> None:
    assert "interquartile means of paired ratios" in latency_section({}, WALL)


def test_a_limit_that_is_not_known_is_said_to_be_so() -> None:
    assert _roofline(None, WALL) == "Not known for this op.\n"
