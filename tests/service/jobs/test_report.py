"""The report that is exported with a kernel."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from service.jobs.export import _roofline, _summary
from tasks.outcomes import TAGS, WALL


@pytest.mark.parametrize("tag", TAGS)
def test_the_report_says_what_a_tag_means(tag: str) -> None:
    job: Any = SimpleNamespace(model="m")
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


def test_a_limit_that_is_not_known_is_said_to_be_so() -> None:
    assert _roofline(None, WALL) == "Not known for this op.\n"
