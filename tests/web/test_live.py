"""A page that keeps itself up to date hears of every kind of event that a job may have."""

import inspect
import re
from pathlib import Path

from agents.protocols import Event

LIVE = (Path(__file__).parents[2] / "web" / "static" / "live.js").read_text()


def test_the_script_listens_to_every_kind_of_event() -> None:
    kinds = re.findall(r"^    (\w+) {2,}\w", inspect.getdoc(Event) or "", re.MULTILINE)
    assert {"job_started", "remeasured"} <= set(kinds)
    (listed,) = re.findall(r"^const KINDS = \[(.*)\];$", LIVE, re.MULTILINE)
    assert set(kinds) <= set(re.findall(r'"(\w+)"', listed))
