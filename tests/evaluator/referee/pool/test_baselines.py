"""The baseline torch.compile: left out where a task cannot be compiled, and never once it could."""

import threading
from typing import Any, cast

import pytest

from evaluator.referee.errors import Finding, RunnerFailed
from evaluator.referee.isolation.calls import InputSet
from evaluator.referee.isolation.handle import RunnerHandle
from evaluator.referee.isolation.memory_kills import MemoryKills
from evaluator.referee.pool.baselines import Baselines
from evaluator.referee.protocol.tensors import Tree

INPUTS = InputSet(Tree({"list": []}, ()), [], 1)


class Runner:
    """A runner that compiles, or fails to."""

    role = "compile"

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def call(self, *_: object, **__: object) -> None:
        if self.fails:
            raise RunnerFailed("error", "no space left")

    def attach(self, _: object) -> None: ...

    def ask(self, *_: object, **__: object) -> dict[str, Any]:
        return {}

    def reveal(self, *_: object, **__: object) -> Tree:
        return Tree({"list": []}, ())


class RunnerPool:
    """Starts runners that fail as told, one after the other."""

    class request:
        task_source = ""

    def __init__(self, *fails: bool) -> None:
        self.fails = list(fails)
        self.kills = MemoryKills()
        self.hoarding: Finding | None = None

    def check_hoarding(self, *, ending: bool) -> None:
        if self.hoarding is not None:
            raise self.hoarding

    def start(self, _: str) -> RunnerHandle:
        return cast(RunnerHandle, Runner(self.fails.pop(0)))

    def load_model(self, *_: object) -> None: ...

    def stop(self, *handles: object) -> None:
        self.ended = len(handles)


def baselines(*fails: bool, packed: str = "") -> Baselines:
    return Baselines(cast(Any, RunnerPool(*fails)), packed)


def test_a_task_that_cannot_be_compiled_has_no_such_baseline() -> None:
    found = baselines(True)
    assert found.start_compile(INPUTS) is None
    assert "no space left" in found.absent()["compile"]
    assert found.start_compile(INPUTS) is None, "it is not tried again"


@pytest.mark.parametrize("earlier", ["this one", "another"])
def test_a_baseline_that_was_there_does_not_vanish(earlier: str) -> None:
    found = baselines(False, True) if earlier == "this one" else baselines(True, packed="from another")
    if earlier == "this one":
        assert found.start_compile(INPUTS) is not None
    with pytest.raises(Finding) as lost:
        found.start_compile(INPUTS)
    assert (lost.value.verdict, lost.value.code) == ("sandbox_error", "baseline_lost")
    assert found.absent() == {}


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (RunnerFailed("died", "no memory left", killed=True, for_memory=True), "no memory left"),
        (RunnerFailed("died", "ended by SIGSEGV"), "ended by SIGSEGV"),
        (RunnerFailed("error", "cannot be compiled again"), "cannot be compiled again"),
        (RunnerFailed("timed_out", "no answer"), "no answer"),
    ],
)
def test_a_baseline_that_fails_while_all_others_stand_still_is_left_out_by_its_own_name(
    failure: RunnerFailed, told: str
) -> None:
    found = baselines(False)
    assert found.start_compile(INPUTS) is not None
    found.leave_out_compile(failure, doing="a timed call")
    assert found.absent() == {"compile": f"the baseline torch.compile failed in a timed call: {told}"}
    assert found.start_compile(INPUTS) is None


def test_of_a_baseline_that_is_left_out_no_other_runner_comes_in() -> None:
    found = baselines(False, False)
    found.compile_ahead(INPUTS, 2)
    assert found.start_compile(INPUTS) is not None
    found.leave_out_compile(RunnerFailed("died", "ended by SIGSEGV"), doing="a timed call")
    assert cast(RunnerPool, found.pool).ended == 1
    assert found.start_compile(INPUTS) is None


def test_a_baseline_that_has_no_memory_to_start_does_not_vanish() -> None:
    """The candidate may have been loaded by then, and may have taken it."""
    found = baselines(packed="from another")
    pool = cast(RunnerPool, found.pool)

    def killed(_: str) -> RunnerHandle:
        raise RunnerFailed("died", "no memory", killed=True, for_memory=True)

    pool.start = killed  # type: ignore[method-assign]
    with pytest.raises(Finding) as lost:
        found.start_compile(INPUTS)
    assert (lost.value.verdict, lost.value.code) == ("sandbox_error", "baseline_lost")


def test_a_baseline_that_somebody_else_has_killed_does_not_vanish() -> None:
    found = baselines(False)
    with pytest.raises(Finding) as lost:
        found.leave_out_compile(RunnerFailed("died", "ended by SIGKILL", killed=True), doing="a timed call")
    assert (lost.value.verdict, lost.value.code) == ("sandbox_error", "baseline_lost")
    assert found.absent() == {}


def test_a_candidate_that_takes_what_the_baseline_needs_gains_nothing_by_it() -> None:
    found = baselines(False)
    cast(RunnerPool, found.pool).hoarding = Finding("out_of_memory", "the candidate held all", "memory")
    with pytest.raises(Finding, match="the candidate held all"):
        found.leave_out_compile(RunnerFailed("died", "no memory", killed=True, for_memory=True), doing="a timed call")
    assert found.absent() == {}


def test_what_failed_beside_the_candidate_is_tried_again_alone() -> None:
    found = baselines(True, False)
    found.compile_ahead(INPUTS, 2)
    assert found.start_compile(INPUTS) is not None


def test_the_first_that_is_ready_is_given_while_the_next_is_made_and_calls_wait_for_both() -> None:
    found, go_on, rested = baselines(False, False), threading.Event(), threading.Event()
    pool = cast(RunnerPool, found.pool)
    start, running = pool.start, iter([None, go_on])

    def slowly(role: str) -> RunnerHandle:
        if wait := next(running):
            assert wait.wait(20)
        return start(role)

    pool.start = slowly  # type: ignore[method-assign]
    found.compile_ahead(INPUTS, 2)
    assert found.start_compile(INPUTS) is not None
    found.compile_ahead(INPUTS, 1)  # goes on already: no third one is begun
    resting = threading.Thread(target=lambda: (found.rest(), rested.set()))
    resting.start()
    assert not rested.wait(0.2)
    go_on.set()
    assert rested.wait(20)
    resting.join()
    assert found.start_compile(INPUTS) is not None
    assert pool.fails == []
