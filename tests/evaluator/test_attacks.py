"""Every attack ends as the verdict that its header names; none passes, none hangs, none leaves anything behind."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.evaluate import Effort, evaluate
from evaluator.platforms import load_platform
from sandbox.base import Sandbox
from tasks.build import task_from_source
from tasks.outcomes import Verdict

ATTACKS = Path(__file__).parents[1] / "attacks"
SEPARATOR = "# --- candidate ---\n"
EFFORT = Effort(
    wall_s=120, memory_mb=4096, call_timeout_s=5, build_timeout_s=20, measure_budget_s=0.3, baselines=("eager",)
)


def attacks() -> list[Path]:
    """All of them; those that need several cores come last, for their containers are others."""
    paths = (path for path in ATTACKS.glob("*.py") if path.name != "op.py")
    return sorted(paths, key=lambda path: (header(path.read_text(), "cores"), path))


def header(source: str, key: str) -> str:
    """What the first lines say of `key`; empty if nothing."""
    found = re.search(rf"^# {key}: (.+)$", source, re.MULTILINE)
    return found[1] if found else ""


def needs_its_own_container(expected: set[str]) -> bool:
    """Whether an attack may be timed to its end, or uses up what its container has."""
    return any(verdict.startswith(("passed", "timed_out", "out_of_memory")) for verdict in expected)


def test_every_attack_says_what_it_tries_and_how_it_must_end() -> None:
    assert len(attacks()) >= 45
    for path in attacks():
        source = path.read_text()
        assert header(source, "tries"), path.name
        assert header(source, "verdict"), path.name


def cases() -> list[object]:
    """The attacks as tests. Those that use every core take turns: one that burns its time would end the others."""
    every_core = pytest.mark.xdist_group("attacks_on_every_core")
    return [
        pytest.param(path, id=path.stem, marks=[every_core] if header(path.read_text(), "cores") == "all" else [])
        for path in attacks()
    ]


@pytest.mark.docker
@pytest.mark.parametrize("path", cases())
def test_attack_is_refused(
    path: Path, docker_sandbox: Sandbox, shared_docker_sandbox: Sandbox, request: pytest.FixtureRequest
) -> None:
    source = path.read_text()
    wall_s = EFFORT.wall_s
    if header(source, "cores") == "all":  # it runs beside others, or tells by its cores whether it is timed
        request.getfixturevalue("every_core")
        wall_s *= 2  # it may slow itself and the tests beside it
    op, separator, candidate = source.partition(SEPARATOR)
    if not separator:
        op, candidate = (ATTACKS / "op.py").read_text(), source
    expected = {text.strip() for text in header(source, "verdict").split(" or ")}
    baselines = tuple(header(source, "baselines").split(", ")) if header(source, "baselines") else EFFORT.baselines
    task, effort = task_from_source(op, name=path.stem), replace(EFFORT, baselines=baselines, wall_s=wall_s)
    sandbox = docker_sandbox if needs_its_own_container(expected) else shared_docker_sandbox
    evaluation = evaluate(task, candidate, sandbox=sandbox, platform=load_platform("cpu"), effort=effort)
    found = evaluation.verdict.value + (f"/{evaluation.code}" if evaluation.code else "")
    assert found in expected, f"{found}: {evaluation.message}\n{evaluation.detail}"
    assert evaluation.message
    if evaluation.verdict is not Verdict.PASSED:
        assert evaluation.speedup is None
        return
    # What is right, and only pretends or hinders others, gains nothing by it.
    assert evaluation.speedup is not None
    # What only looks faster than it is says so in its header, and is tagged where it does.
    gains, looks = evaluation.speedup["eager"].low >= 1.05, header(source, "looks") == "faster"
    assert looks or not gains, evaluation.tags
    assert set(evaluation.speedup) == set(baselines), evaluation.profile["absent"]
    tags = {text for text in header(source, "tag").split(" or ") if text and (gains or not looks)}
    assert not tags or tags & set(evaluation.tags), (evaluation.tags, evaluation.profile["time_by_file"])


@pytest.mark.docker
@pytest.mark.exclusive
def test_memory_is_looked_at_all_through_a_process_set(docker_sandbox: Sandbox) -> None:
    attack = (ATTACKS / "zeros_once_a_set.py").read_text()
    late = attack.replace("len(CALLED) > 4 ", "len(CALLED) > 44 ")  # behind the rounds that every set has
    assert late != attack
    op, _, candidate = late.partition(SEPARATOR)
    effort = replace(EFFORT, baselines=("eager",), measure_budget_s=5)
    task = task_from_source(op, name="late")
    found = evaluate(task, candidate, sandbox=docker_sandbox, platform=load_platform("cpu"), effort=effort)
    assert found.profile["resident_mb"]["candidate"] > 100, found.profile["resident_mb"]
    assert "uneven" in found.tags
