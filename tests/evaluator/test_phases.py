"""Every line of progress of the referee belongs to a phase, and every stage of what an evaluation costs does."""

import json
import re
from pathlib import Path

import pytest

from evaluator.phases import BEFORE, PHASES, doing, phase_of_line, phase_seconds
from service.evaluation_context import BEGINNING, SEARCHING, WAITING

ROOT = Path(__file__).parents[2]
REFEREE = ROOT / "evaluator" / "referee"
NOT_OF_EVALUATIONS = {"running the op", "measuring the device: memory, streaming stores, threads"}


def said():
    """The texts that the referee's modules pass to `progress`, up to what they fill in."""
    for path in sorted(REFEREE.rglob("*.py")):
        yield from re.findall(r"\bprogress\(\s*f?\"([^\"{]+)", path.read_text())


def test_each_line_of_progress_of_an_evaluation_belongs_to_a_phase():
    found = set(said()) - NOT_OF_EVALUATIONS
    assert len(found) > 8
    assert [text for text in found if phase_of_line(text) is None] == []


def test_a_wait_for_the_device_is_a_phase_before_all_others():
    assert phase_of_line(WAITING) == "waiting"
    assert [phase_of_line(each) for each in (BEGINNING, SEARCHING)] == ["starting", "searching"]
    assert [phase.name for phase in PHASES[: len(BEFORE)]] == [*BEFORE]


@pytest.mark.parametrize("line", ["", "the device could not be measured: x", "\0", "job 3: op in the docker sandbox"])
def test_other_lines_belong_to_none(line):
    assert phase_of_line(line) is None


def test_the_seconds_of_phases_are_those_of_the_evaluation():
    cost_s = json.loads((ROOT / "tests" / "data" / "evaluation_passed.json").read_text())["cost_s"]
    found = phase_seconds(cost_s)
    assert sum(found.values()) == pytest.approx(cost_s["total"], abs=0.01)
    assert found["timing"] == pytest.approx(cost_s["timing"] + cost_s["limits"])
    assert "profiling" not in found


def test_each_stage_that_the_referee_measures_belongs_to_a_phase():
    stages = {"start", "import", "profile"}
    stages |= set(re.findall(r'stage\(self\.cost_s, "(\w+)"\)', (REFEREE / "evaluate.py").read_text()))
    assert stages == {name for phase in PHASES for name in phase.stages}


def test_a_phase_of_another_version_is_called_by_its_name():
    assert (doing("timing"), doing("meditating")) == ("timing", "meditating")
