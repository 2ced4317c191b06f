"""What the timed stage notes beside the times: memory held before them, and what did not count in a turn."""

import contextlib
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator.referee.correctness import call_outputs
from evaluator.referee.errors import ChampionFailed, Finding
from evaluator.referee.isolation.calls import Call
from evaluator.referee.platforms.load import load_platform
from evaluator.referee.pool.runner_pool import RunnerPool
from evaluator.referee.protocol.tensors import Tree
from evaluator.referee.timing import call_times
from evaluator.referee.timing.rounds import CHECKED, ProcessSet, checked_turns
from evaluator.referee.timing.stage import TimingStage

MB = 1 << 20
NOTHING = Tree({"list": []}, ())


def stopwatch(*, output_mb: int, input_mb: int, parameters_mb: int, source: str = "") -> TimingStage:
    """One that is about to time: what it knows of the op's sizes, and nothing else."""
    state = (NOTHING, [torch.empty(parameters_mb * MB, dtype=torch.uint8)])
    pool: Any = SimpleNamespace(
        input_bytes=input_mb * MB,
        output_bytes=output_mb * MB,
        state=state,
        platform=load_platform("cpu", 0),
        request=SimpleNamespace(candidate_source=source),
    )
    pool.may_hold_bytes = lambda eager_bytes: RunnerPool.may_hold_bytes(pool, eager_bytes)
    known: Any = {"pool": pool, "evidence": SimpleNamespace()}
    rest: Any = dict.fromkeys(("baselines", "builder", "champion", "reference"))
    return TimingStage(**known, **rest, plan=call_times.Plan(), warm=[])


@pytest.mark.parametrize(
    ("source", "more_mb", "hoards"),
    [
        ("", 0, False),
        ("", 8 * 4 + 2 * (3 + 5) + 64, False),
        ("", 113, True),
        ("torch.compile(f)", 112 + 64, False),
        ("torch.compile(f)", 177, True),
    ],
)
def test_a_candidate_hoards_that_holds_more_than_8_outputs_twice_what_it_is_given_and_a_workspace(
    source: str, more_mb: int, hoards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {1: 200 * MB, 2: 150 * MB, 3: (50 + more_mb) * MB}  # the candidate has two processes
    monkeypatch.setattr(
        "evaluator.referee.platforms.cpu.memory.held_bytes", lambda pids: sum(map(held.__getitem__, pids))
    )
    watch = stopwatch(output_mb=4, input_mb=3, parameters_mb=5, source=source)
    watch._look_at_memory(
        cast(Any, {"eager": SimpleNamespace(members=lambda: [1]), "candidate": SimpleNamespace(members=lambda: [2, 3])})
    )
    assert watch.hoards is hoards
    assert watch.profile["resident_mb"] == {"eager": 200.0, "candidate": 200.0 + more_mb}
    monkeypatch.setattr("evaluator.referee.platforms.cpu.memory.held_bytes", lambda pids: 0)
    watch._look_at_memory(cast(Any, {name: SimpleNamespace(members=lambda: [1]) for name in ("eager", "candidate")}))
    assert watch.hoards is hoards, "what one process set has shown is not forgotten in the next"


class Told:
    """A runner that takes 1 ms to get ready, 5 ms for a spot check, 2 ms for a new buffer, and 10 ms for a call."""

    def __init__(self) -> None:
        self.pid, self.role, self.asked = 1, "candidate", list[str]()
        self.has_memory, self.faults = True, 0

    def attach(self, buffer: object) -> float:
        self.asked.append("attach")
        self.faults += 1000  # its new pages are mapped
        return 0.002

    def empty_buffer(self) -> bool:
        self.asked.append("empty")
        return self.has_memory

    def disturbance(self) -> float:
        return self.faults

    def ask(self, message: dict[str, object], *, timeout_s: float) -> None:
        self.asked.append(" ".join(key if value is True else str(value) for key, value in message.items()))

    def call(self, tree: object, contents: object, **how: object) -> Call:
        self.asked.append(str(tree))
        ready_s = 0.005 if tree == "spot check" else 0.001
        return Call(NOTHING, 0.01, NOTHING, ready_s, 1, 0.0)


def orders(*variants: str) -> Iterator[tuple[str, ...]]:
    while True:
        yield variants


INPUTS = {
    name: SimpleNamespace(tree=name, contents=[], seed=1) for name in ("untimed", "spot check", "1", "2", "3", "4")
}


class Answered:
    """The outputs of a call, by which the variant that made it is known; it logs in `asked` when they are read."""

    def __init__(self, evidence: object, variant: str, handle: Told, *_: object) -> None:
        self.variant, self.handle, self.read = variant, handle, False

    stays = True

    def values(self) -> dict[str, torch.Tensor]:
        if not self.read:
            self.handle.asked.append("read")
        self.read = True
        return {"y": torch.tensor(self.variant == "champion"), "z": torch.tensor(self.variant == "candidate")}

    taken = values


def process_set(
    monkeypatch: pytest.MonkeyPatch,
    runners: dict[str, Told],
    *,
    checked: bool,
    frugal: bool = False,
) -> ProcessSet:
    """Runners that take turns, which are checked in all calls or in the timed ones; each answers with its role."""
    monkeypatch.setattr("evaluator.referee.platforms.cpu.memory.page_faults", lambda pid: 0)
    monkeypatch.setattr(call_outputs, "read", lambda *_: None)
    monkeypatch.setattr("evaluator.referee.timing.rounds.Output", Answered)
    pool = SimpleNamespace(
        request=SimpleNamespace(call_timeout_s=1.0),
        platform=load_platform("cpu", 0),
        names_of=dict[str, object](),
        frugal=frugal,
        input_bytes=1,
        slots=lambda: 1,
        tidy=lambda: None,
    )
    pool.release = lambda handle: RunnerPool.release(cast(Any, pool), handle)
    supply = SimpleNamespace(pause=lambda: None, resume=lambda: None)
    given: Any = (
        pool,
        SimpleNamespace(changing=()),
        runners,
        [INPUTS["untimed"]],
        supply,
        orders(*runners),
    )
    return ProcessSet(*given, random.Random(1), itertools.repeat(checked))


def test_getting_ready_for_a_spot_check_counts_as_getting_ready_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", lambda *_: None)
    runners = {"eager": Told(), "candidate": Told()}
    taken: list[Call] = []
    spot_check = SimpleNamespace(
        inputs=INPUTS["spot check"],
        after=0.6,  # before the third of four timed calls
        take=lambda evidence, handle, call: taken.append(call),
        judge=lambda evidence: None,
    )
    running = process_set(monkeypatch, runners, checked=False)
    done = running.run(cast(Any, [INPUTS[name] for name in "1234"]), cast(Any, [spot_check]))
    asked = [each for each in runners["candidate"].asked if each != "read"]
    assert asked == ["untimed", "1", "2", "untimed", "spot check", "3", "4"]
    for variant in runners:
        assert [turn.calls_s for turn in done.turns[variant]] == [(0.01,) * 2] * 2, "the spot check is not timed"
        assert [turn.ready_s for turn in done.turns[variant]] == pytest.approx([0.003, 0.003 + 0.005])
    assert len(taken) == 1


@pytest.mark.parametrize(
    ("wrong", "checked", "raised"),
    [
        ("champion", True, ChampionFailed),
        ("champion", False, None),  # only some turns' are read: what is measured is the candidate
        ("candidate", True, Finding),
        ("candidate", False, Finding),
    ],
)
def test_the_champions_answers_are_compared_in_turns_that_are_checked(
    wrong: str, checked: bool, raised: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*given: Any) -> None:
        if given[-1] == {"y": torch.tensor(wrong == "champion"), "z": torch.tensor(wrong == "candidate")}:
            raise Finding("wrong_output", "y of a timed call is wrong", "timed")

    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", compare)
    running = process_set(monkeypatch, {name: Told() for name in ("eager", "champion", "candidate")}, checked=checked)
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        running.run(cast(Any, [INPUTS[name] for name in "1234"]), [])


@pytest.mark.parametrize("checked", [True, False])
def test_where_memory_is_short_a_runner_holds_inputs_in_its_turns_and_its_last_outputs_are_read_after_all_turns(
    checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bool] = []
    monkeypatch.setattr(
        "evaluator.referee.timing.rounds.spot_checks.compare", lambda *given: compared.append(bool(given[-1]["z"]))
    )
    asked: list[str] = []  # by any of them, in order
    runners = {name: Told() for name in ("eager", "compile", "candidate")}
    for name, runner in runners.items():
        runner.asked = cast(Any, SimpleNamespace(append=lambda what, name=name: asked.append(f"{name} {what}")))
    running = process_set(monkeypatch, runners, checked=checked, frugal=True)
    running.empty_buffers()
    assert asked == [f"{name} empty" for name in runners]
    asked.clear()
    done = running.run(cast(Any, [INPUTS["1"], INPUTS["2"]]), [])
    seen = ["read"] * checked  # of an untimed call, before the next one takes its place
    for number in "12":
        turn = [f"{name} {what}" for name in runners for what in ("attach", "untimed", *seen, number, "empty")]
        turn += ["compile release give_back", "eager read", "candidate read"]
        assert asked[: len(turn)] == turn
        del asked[: len(turn)]
    assert not asked
    assert compared == [True] * (2 + 2 * checked)
    for variant in runners:
        assert [turn.ready_s for turn in done.turns[variant]] == pytest.approx([0.004] * 2), "a buffer is no free time"


def test_outputs_that_others_can_write_to_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", lambda *_: None)
    monkeypatch.setattr(Answered, "stays", False)  # as those in an input buffer, which will be emptied
    runners = {"eager": Told(), "candidate": Told()}
    running = process_set(monkeypatch, runners, checked=False, frugal=True)
    running.empty_buffers()
    running.run(cast(Any, [INPUTS["1"], INPUTS["2"]]), [])
    for runner in runners.values():
        turns = [["attach", "untimed", number, "read", "empty"] for number in "12"]
        assert runner.asked == ["empty", *turns[0], *turns[1]]


def test_a_runner_whose_buffer_has_none_of_the_hosts_memory_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", lambda *_: None)
    runners = {"eager": Told(), "candidate": Told()}
    for runner in runners.values():
        runner.has_memory = False
    running = process_set(monkeypatch, runners, checked=False, frugal=True)
    running.empty_buffers()
    running.run(cast(Any, [INPUTS["1"], INPUTS["2"]]), [])
    assert not any("attach" in runner.asked for runner in runners.values())


@pytest.mark.parametrize(("refill", "disturb", "even"), [(0, 0, True), (5000, 0, True), (5000, 40, False)])
def test_page_faults_of_saving_memory_disturb_no_round(
    refill: int, disturb: int, even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Faulting(Told):
        def call(self, tree: object, contents: object, **how: object) -> Call:
            untimed = tree == "untimed"
            self.faults += refill * (untimed and self.role == "compile") + disturb * (not untimed)
            return super().call(tree, contents, **how)

    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", lambda *_: None)
    runners: dict[str, Told] = {name: Faulting() for name in ("eager", "compile", "candidate")}
    for name, runner in runners.items():
        runner.role = name
    running = process_set(monkeypatch, runners, checked=False, frugal=True)
    running.empty_buffers()
    assert running.run(cast(Any, [INPUTS["1"], INPUTS["2"]]), []).even is even
    assert running.excused["candidate"] == 2000, "what it did not cause is not told of it"


def test_where_there_is_memory_outputs_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", lambda *_: None)
    runners = {"eager": Told(), "candidate": Told()}
    process_set(monkeypatch, runners, checked=False).run(cast(Any, [INPUTS["1"], INPUTS["2"]]), [])
    for runner in runners.values():
        assert runner.asked == ["untimed", "1", "read", "untimed", "2", "read"]


def test_what_ran_out_of_its_turn_may_be_the_champions_doing() -> None:
    stage = stopwatch(output_mb=1, input_mb=1, parameters_mb=1)
    cast(Any, stage.pool).account = SimpleNamespace(possible=True, unaccounted_s=1.0)
    stage.champion = cast(Any, SimpleNamespace())
    for first in (True, False):
        stage.measurement.open_set(["eager", "champion", "candidate"])
        if first:
            assert not stage._check_turns(), "once it may be an accident"
            continue
        with pytest.raises(ChampionFailed, match="out of their turn"):
            stage._check_turns()
    assert stage.profile["sets_dropped"] == 1
    stage.champion = None
    with pytest.raises(Finding) as found:
        stage._check_turns()
    assert found.value.code == "ran_out_of_turn", "without a champion it is the candidate's"


def test_processes_that_are_killed_in_the_candidates_turn_are_its_own() -> None:
    stage = stopwatch(output_mb=1, input_mb=1, parameters_mb=1)
    cast(Any, stage.pool).account = SimpleNamespace(possible=True, unaccounted_s=1.0)
    stage.champion = cast(Any, SimpleNamespace())
    stage.measurement.open_set(["eager", "champion", "candidate"])
    with pytest.raises(Finding) as found:
        stage._check_turns(kills=True, in_turns={"candidate": 1})
    assert (found.value.verdict, found.value.code) == ("out_of_memory", "memory"), "a champion is no excuse"
    with pytest.raises(ChampionFailed, match="for memory"):
        stage._check_turns(kills=True, in_turns={"champion": 1})


def test_kills_in_nobodys_turn_excuse_no_time_out_of_turn_and_accuse_nobody() -> None:
    stage = stopwatch(output_mb=1, input_mb=1, parameters_mb=1)
    cast(Any, stage.pool).account = SimpleNamespace(possible=True, unaccounted_s=1.0)
    stage.measurement.open_set(["eager", "candidate"])
    assert not stage._check_turns(kills=True), "the set does not count"
    stage.measurement.open_set(["eager", "candidate"])
    with pytest.raises(Finding) as found:
        stage._check_turns(kills=True)
    assert found.value.verdict == "sandbox_error"


@pytest.mark.parametrize("turns_min", [1, 2, 16])
def test_in_each_set_a_turn_is_checked_for_certain_and_nobody_knows_which(turns_min: int) -> None:
    seen = [list(itertools.islice(checked_turns(random.Random(seed), turns_min), 200)) for seed in range(300)]
    assert all(any(turns[:turns_min]) for turns in seen)
    for number in range(turns_min):
        assert any(turns[number] for turns in seen)
    later = [checked for turns in seen for checked in turns[turns_min:]]
    assert sum(later) / len(later) == pytest.approx(CHECKED, abs=0.01)


def test_only_a_trials_first_process_set_is_short() -> None:
    plan = call_times.Plan()
    assert [plan.least_rounds(sets) for sets in (0, 1)] == [plan.rounds_min, plan.rounds_min]
    assert [plan.for_trial().least_rounds(sets) for sets in (0, 1)] == [call_times.FIRST_ROUNDS, plan.rounds_min]
    assert replace(plan.for_trial(), rounds_min=1).least_rounds(0) == 1
