"""What the timed stage notes beside the times: memory held before them, and what did not count in a turn."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from evaluator.referee.correctness import call_outputs
from evaluator.referee.isolation.calls import Call
from evaluator.referee.platforms.load import load_platform
from evaluator.referee.protocol.tensors import Tree
from evaluator.referee.timing import call_times
from evaluator.referee.timing.rounds import ProcessSet
from evaluator.referee.timing.stage import TimingStage

MB = 1 << 20
NOTHING = Tree({"list": []}, ())


def stopwatch(*, output_mb: int, input_mb: int, parameters_mb: int) -> TimingStage:
    """One that is about to time: what it knows of the op's sizes, and nothing else."""
    state = (NOTHING, [torch.empty(parameters_mb * MB, dtype=torch.uint8)])
    known: Any = {
        "pool": SimpleNamespace(input_bytes=input_mb * MB, state=state, platform=load_platform("cpu", 0)),
        "evidence": SimpleNamespace(output_bytes=output_mb * MB),
    }
    rest: Any = dict.fromkeys(("baselines", "builder", "champion", "reference"))
    return TimingStage(**known, **rest, plan=call_times.Plan(), warm=[])


@pytest.mark.parametrize(("more_mb", "hoards"), [(0, False), (8 * 4 + 2 * (3 + 5) + 64, False), (113, True)])
def test_a_candidate_hoards_that_holds_more_than_8_outputs_twice_what_it_is_given_and_a_workspace(
    more_mb: int, hoards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = {1: 200 * MB, 2: 150 * MB, 3: (50 + more_mb) * MB}  # the candidate has two processes
    monkeypatch.setattr("evaluator.referee.platforms.cpu.memory.resident_bytes", held.__getitem__)
    watch = stopwatch(output_mb=4, input_mb=3, parameters_mb=5)
    watch._look_at_memory(
        cast(Any, {"eager": SimpleNamespace(members=lambda: [1]), "candidate": SimpleNamespace(members=lambda: [2, 3])})
    )
    assert watch.hoards is hoards
    assert watch.profile["resident_mb"] == {"eager": 200.0, "candidate": 200.0 + more_mb}
    monkeypatch.setattr("evaluator.referee.platforms.cpu.memory.resident_bytes", lambda pid: 0)
    watch._look_at_memory(cast(Any, {name: SimpleNamespace(members=lambda: [1]) for name in ("eager", "candidate")}))
    assert watch.hoards is hoards, "what one process set has shown is not forgotten in the next"


class Told:
    """A runner that takes 1 ms to get ready, 5 ms for a spot check, and 10 ms for a call."""

    def __init__(self) -> None:
        self.pid, self.role, self.asked = 1, "candidate", list[str]()

    def call(self, tree: object, contents: object, **how: object) -> Call:
        self.asked.append(str(tree))
        ready_s = 0.005 if tree == "surprise" else 0.001
        return Call(NOTHING, 0.01, NOTHING, ready_s, 1, 0.0)


def orders() -> Iterator[tuple[str, ...]]:
    while True:
        yield "eager", "candidate"


def test_getting_ready_for_a_surprise_counts_as_getting_ready_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.referee.platforms.cpu.memory.page_faults", lambda pid: 0)
    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.read", lambda *_: {})
    monkeypatch.setattr("evaluator.referee.timing.rounds.spot_checks.compare", lambda *_: None)
    monkeypatch.setattr("evaluator.referee.timing.rounds.CHECKED", 0.0)
    monkeypatch.setattr(call_outputs, "read", lambda *_: None)
    pool = SimpleNamespace(
        request=SimpleNamespace(call_timeout_s=1.0), platform=load_platform("cpu", 0), names_of=dict[str, object]()
    )
    supply = SimpleNamespace(pause=lambda: None, resume=lambda: None)
    runners = {"eager": Told(), "candidate": Told()}
    inputs = {
        name: SimpleNamespace(tree=name, contents=[], seed=1) for name in ("untimed", "surprise", "1", "2", "3", "4")
    }
    taken: list[Call] = []
    spot_check = SimpleNamespace(
        inputs=inputs["surprise"],
        after=0.6,  # before the third of four timed calls
        take=lambda evidence, handle, call: taken.append(call),
        judge=lambda evidence: None,
    )
    given: Any = (pool, SimpleNamespace(changing=()), runners, [inputs["untimed"]], supply, orders(), random.Random(1))
    done = ProcessSet(*given).run(cast(Any, [inputs[name] for name in "1234"]), cast(Any, [spot_check]))
    assert runners["candidate"].asked == ["untimed", "1", "2", "untimed", "surprise", "3", "4"]
    for variant in runners:
        assert [turn.calls_s for turn in done.turns[variant]] == [(0.01,) * 2] * 2, "the spot check is not timed"
        assert [turn.ready_s for turn in done.turns[variant]] == pytest.approx([0.003, 0.003 + 0.005])
    assert len(taken) == 1
