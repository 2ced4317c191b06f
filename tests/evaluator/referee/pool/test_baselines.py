"""Baselines other than eager: left out where they cannot run a task, and never once they could."""

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evaluator.referee.errors import BaselineFailed, Finding, RunnerFailed
from evaluator.referee.isolation.calls import InputSet
from evaluator.referee.isolation.handle import RunnerHandle
from evaluator.referee.isolation.memory_kills import MemoryKills
from evaluator.referee.pool.baselines import FIRST_CALL_TIMEOUT_S, JUDGED_SHARE, Baselines, OtherBaseline
from evaluator.referee.pool.memory_need import Need
from evaluator.referee.pool.runner_pool import Request
from evaluator.referee.protocol.tensors import Tree

INPUTS = InputSet(Tree({"list": []}, ()), [], 1)


class Runner:
    """A runner that compiles, or fails to."""

    role = "compile"
    platform = SimpleNamespace(input_buffer=lambda *_: None)

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def call(self, *_: object, timeout_s: float, **__: object) -> None:
        self.timeout_s = timeout_s
        if self.fails:
            raise RunnerFailed("error", "no space left")

    def attach(self, _: object) -> None: ...

    def give(self, *_: object, **__: object) -> None: ...

    def ask(self, *_: object, **__: object) -> dict[str, Any]:
        return {}

    def reveal(self, *_: object, **__: object) -> Tree:
        return Tree({"list": []}, ())


class RunnerPool:
    """Starts runners that fail as told, one after the other."""

    request = Request("cpu", "")

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


def compiled(*fails: bool, packed: str = "") -> OtherBaseline:
    return OtherBaseline(cast(Any, RunnerPool(*fails)), "compile", packed)


def test_a_task_that_cannot_be_compiled_has_no_such_baseline() -> None:
    found = compiled(True)
    assert found.start(INPUTS) is None
    assert found.fails == "torch.compile cannot run this task: no space left"
    assert found.start(INPUTS) is None, "it is not tried again"


@pytest.mark.parametrize("earlier", ["this one", "another"])
def test_a_baseline_that_was_there_does_not_vanish(earlier: str) -> None:
    found = compiled(False, True) if earlier == "this one" else compiled(True, packed="from another")
    if earlier == "this one":
        assert found.start(INPUTS) is not None
    with pytest.raises(Finding) as lost:
        found.start(INPUTS)
    assert (lost.value.verdict, lost.value.code) == ("sandbox_error", "baseline_lost")
    assert found.fails == ""


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
    found = compiled(False)
    assert found.start(INPUTS) is not None
    found.leave_out(failure, doing="a timed call")
    assert found.fails == f"the baseline torch.compile failed in a timed call: {told}"
    assert found.start(INPUTS) is None


def test_of_a_baseline_that_is_left_out_no_other_runner_comes_in() -> None:
    found = compiled(False, False)
    found.start_ahead(INPUTS, 2)
    assert found.start(INPUTS) is not None
    found.leave_out(RunnerFailed("died", "ended by SIGSEGV"), doing="a timed call")
    assert cast(RunnerPool, found.pool).ended == 1
    assert found.start(INPUTS) is None


def test_a_baseline_that_has_no_memory_to_start_does_not_vanish() -> None:
    """The candidate may have been loaded by then, and may have taken it."""
    found = compiled(packed="from another")
    pool = cast(RunnerPool, found.pool)

    def killed(_: str) -> RunnerHandle:
        raise RunnerFailed("died", "no memory", killed=True, for_memory=True)

    pool.start = killed  # type: ignore[method-assign]
    with pytest.raises(Finding) as lost:
        found.start(INPUTS)
    assert (lost.value.verdict, lost.value.code) == ("sandbox_error", "baseline_lost")


def test_a_baseline_that_somebody_else_has_killed_does_not_vanish() -> None:
    found = compiled(False)
    with pytest.raises(Finding) as lost:
        found.leave_out(RunnerFailed("died", "ended by SIGKILL", killed=True), doing="a timed call")
    assert (lost.value.verdict, lost.value.code) == ("sandbox_error", "baseline_lost")
    assert found.fails == ""


def test_a_candidate_that_takes_what_the_baseline_needs_gains_nothing_by_it() -> None:
    found = compiled(False)
    cast(RunnerPool, found.pool).hoarding = Finding("out_of_memory", "the candidate held all", "memory")
    with pytest.raises(Finding, match="the candidate held all"):
        found.leave_out(RunnerFailed("died", "no memory", killed=True, for_memory=True), doing="a timed call")
    assert found.fails == ""


def test_what_failed_beside_the_candidate_is_tried_again_alone() -> None:
    found = compiled(True, False)
    found.start_ahead(INPUTS, 2)
    assert found.start(INPUTS) is not None


def test_the_first_that_is_ready_is_given_while_the_next_is_made_and_calls_wait_for_both() -> None:
    found, go_on, rested = compiled(False, False), threading.Event(), threading.Event()
    pool = cast(RunnerPool, found.pool)
    start, running = pool.start, iter([None, go_on])

    def slowly(role: str) -> RunnerHandle:
        if wait := next(running):
            assert wait.wait(20)
        return start(role)

    pool.start = slowly  # type: ignore[method-assign]
    found.start_ahead(INPUTS, 2)
    assert found.start(INPUTS) is not None
    found.start_ahead(INPUTS, 1)  # goes on already: no third one is begun
    resting = threading.Thread(target=lambda: (found.rest(), rested.set()))
    resting.start()
    assert not rested.wait(0.2)
    go_on.set()
    assert rested.wait(20)
    resting.join()
    assert found.start(INPUTS) is not None
    assert pool.fails == []


def test_a_runner_that_was_judged_is_the_next_that_is_given() -> None:
    found = compiled(False, False)
    first = found.start(INPUTS)
    found.start_ahead(INPUTS, 1)
    found.rest()
    assert first is not None
    found.put_back(first)
    assert found.start(INPUTS) is first


def test_a_baseline_that_computes_something_else_is_refused_and_never_started_again() -> None:
    found = compiled(False, False)
    found.start_ahead(INPUTS, 2)
    found.rest()
    found.refuse("output differs (inputs: as generated)")
    assert found.fails == "torch.compile is no baseline for this task: output differs (inputs: as generated)"
    assert cast(RunnerPool, found.pool).ended == 2
    assert found.start(INPUTS) is None


def several(*fails: bool, names: str = "eager,compile,onnxruntime,openvino", **caches: str) -> Baselines:
    pool: Any = RunnerPool(*fails)
    pool.request = Request("cpu", "", baselines=tuple(names.split(",")), baseline_caches=caches, wall_s=100.0)
    pool.need, pool.memory_bytes = Need(1 << 20), 4 << 30
    return Baselines(pool)


def right(_: RunnerHandle, until: float) -> int:
    return 12


def test_each_baseline_that_is_asked_for_is_started_and_told_by_its_name() -> None:
    found = several(False, True, False)
    assert list(found.others) == ["compile", "onnxruntime", "openvino"], "eager is the reference itself"
    started = found.start_others(INPUTS)
    assert list(started) == ["compile", "openvino"]
    assert found.absent() == {"onnxruntime": "ONNX Runtime cannot run this task: no space left"}


def test_a_baseline_that_is_right_is_timed_and_what_it_has_built_is_kept() -> None:
    found = several(False, False, compile="QUJD", names="eager,compile,onnxruntime")
    for other in found.others.values():
        found.judge(other, INPUTS, right)
    assert found.judged() == {"compile": 12, "onnxruntime": 12}
    assert found.packed() == {"compile": "QUJD"}
    assert found.absent() == {}
    assert list(found.start_others(INPUTS)) == ["compile", "onnxruntime"]
    assert cast(RunnerPool, found.pool).fails == [], "the runners that were judged are those that are given"


def test_a_baseline_that_is_wrong_is_left_out_and_nothing_of_it_is_kept() -> None:
    def wrong(*_: object) -> int:
        raise Finding("wrong_output", "the candidate does not change its input", "input_mutated")

    found = several(False, compile="QUJD", names="eager,compile")
    found.judge(found.others["compile"], INPUTS, wrong)
    assert found.absent() == {"compile": "torch.compile is no baseline for this task: it does not change its input"}
    assert (found.packed(), found.judged(), found.start_others(INPUTS)) == ({}, {}, {})


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (Finding("task_invalid", "no memory", "out_of_memory"), "sandbox_error/out_of_memory"),
        (Finding("task_invalid", "the generator fails"), "task_invalid/None"),
        (Finding("sandbox_error", "it is short of disk"), "sandbox_error/None"),
    ],
)
def test_no_baseline_is_blamed_for_what_is_the_tasks_and_no_task_for_memory_that_baselines_took(
    raised: Finding, code: str
) -> None:
    def fails(*_: object) -> int:
        raise raised

    found = several(False, names="eager,compile")
    with pytest.raises(Finding) as ended:
        found.judge(found.others["compile"], INPUTS, fails)
    assert f"{ended.value.verdict}/{ended.value.code}" == code


def test_a_baseline_that_fails_while_it_is_judged_is_left_out() -> None:
    def fails(*_: object) -> int:
        raise BaselineFailed("compile", RunnerFailed("died", "ended by SIGSEGV"))

    found = several(False, names="eager,compile")
    found.judge(found.others["compile"], INPUTS, fails)
    assert found.absent() == {
        "compile": "the baseline torch.compile failed in a call that was checked: ended by SIGSEGV"
    }


def test_unusual_baselines_share_the_time_for_first_calls_and_judging() -> None:
    found, untils = several(False, False, False), []

    def examine(handle: RunnerHandle, until: float) -> int:
        untils.append(until - time.perf_counter())
        return 1

    compile_, first, second = found.others.values()
    for each in (compile_, first):
        found.judge(each, INPUTS, examine)
    timeouts = [cast(Runner, each._ready[0]).timeout_s for each in (compile_, first)]
    assert timeouts[0] == FIRST_CALL_TIMEOUT_S
    assert JUDGED_SHARE * 100.0 - 1 < timeouts[1] <= JUDGED_SHARE * 100.0
    assert all(JUDGED_SHARE * 100.0 - 1 < each <= JUDGED_SHARE * 100.0 for each in untils)
    found._left_s = 1.0
    found.judge(second, INPUTS, examine)
    assert found.absent() == {
        "openvino": "OpenVINO was left out, because the time for baselines was spent on those before it"
    }


def test_an_unusual_baseline_for_which_there_is_no_memory_is_left_out_and_the_task_is_not_refused() -> None:
    found = several(False, False, False)
    pool = cast(Any, found.pool)
    pool.need, pool.memory_bytes = Need(64 << 20, 64 << 20), 2 << 30
    for each in found.others.values():
        found.judge(each, INPUTS, right)
    assert found.judged() == {"compile": 12}
    for name in ("onnxruntime", "openvino"):
        assert "was left out, because with it the task needs about" in found.absent()[name]


def test_a_first_start_that_was_killed_is_tried_again_once_no_candidate_is_in_its_way() -> None:
    found, ends = compiled(False), [RunnerFailed("died", "no memory", killed=True, for_memory=True)]
    pool = cast(RunnerPool, found.pool)
    start = pool.start

    def killed_once(role: str) -> RunnerHandle:
        if ends:
            raise ends.pop()
        return start(role)

    pool.start = killed_once  # type: ignore[method-assign]
    assert found.start(INPUTS) is not None


def test_a_candidate_that_holds_what_a_first_start_needs_is_refused() -> None:
    found = compiled()
    pool = cast(RunnerPool, found.pool)
    pool.hoarding = Finding("out_of_memory", "the candidate held all", "memory")

    def killed(_: str) -> RunnerHandle:
        raise RunnerFailed("no_room", "no process could be made")

    pool.start = killed  # type: ignore[method-assign]
    with pytest.raises(Finding, match="the candidate held all"):
        found.start(INPUTS)
