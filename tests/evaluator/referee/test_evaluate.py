"""An evaluation ends with a verdict whatever happens; only evidence passes, and nobody is accused without it."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee import errors, evaluate
from evaluator.referee.correctness import tolerances
from evaluator.referee.errors import Finding, RunnerFailed, names_role
from evaluator.referee.isolation import exhaustion
from evaluator.referee.platforms.load import load_platform
from evaluator.referee.pool.runner_pool import Request, RunnerPool
from evaluator.referee.protocol import traits


class FakePool:
    """A pool in which nothing is started; `hoarding` is what looking for it finds."""

    def __init__(self, hoarding: Exception | None = None) -> None:
        self.hoarding = hoarding
        self.stopped = False
        self.platform = load_platform("cpu", 0)
        self.request = Request("cpu", "", baselines=("eager",))
        self.seeds = SimpleNamespace(secret=b"\0")

    def check_hoarding(self) -> None:
        if self.hoarding is not None:
            raise self.hoarding

    def stop_all(self) -> None:
        self.stopped = True


def ended(error: Exception, monkeypatch: pytest.MonkeyPatch, hoarding: Exception | None = None) -> dict[str, Any]:
    def examine(self: evaluate.Evaluation) -> Finding:
        raise error

    monkeypatch.setattr(evaluate.Evaluation, "_examine", examine)
    pool: Any = FakePool(hoarding)
    told = evaluate.Evaluation(pool).run()
    assert pool.stopped
    assert told["speedup"] is None
    return told


def verdict(told: dict[str, Any]) -> str:
    return f"{told['verdict']}/{told['code']}"


@pytest.mark.parametrize(
    "error", [TypeError("x\ny"), BrokenPipeError(32, "Broken pipe"), MemoryError(), KeyError("pid")]
)
def test_the_referees_own_fault_is_a_verdict_that_accuses_nobody(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ended(error, monkeypatch)
    assert verdict(told) == "sandbox_error/referee_failed"
    assert type(error).__name__ in told["message"]
    assert "\n" not in told["message"]
    assert "Traceback" not in told["detail"]


@pytest.mark.parametrize(
    ("role", "kind", "expected"),
    [
        ("candidate", "died", "crashed/None"),
        ("candidate", "protocol", "integrity/forged_result"),
        ("reference", "died", "task_invalid/None"),
        ("eager", "timed_out", "task_invalid/timed_out"),
        ("eager", "no_room", "sandbox_error/no_room"),
        ("peaks", "died", "sandbox_error/died"),
    ],
)
def test_a_failure_that_nobody_expected_is_that_of_its_runner(
    role: str, kind: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "oom_kills", lambda: 0)
    assert verdict(ended(RunnerFailed(kind, "gone", role=role), monkeypatch)) == expected


@pytest.mark.parametrize(
    ("status", "role", "expected"),
    [
        (signal.SIGKILL, "candidate", "out_of_memory/None"),
        (signal.SIGKILL, "reference", "task_invalid/out_of_memory"),
        (7 << 8, "candidate", "crashed/None"),
        (7 << 8, "reference", "task_invalid/None"),
    ],
)
def test_only_a_process_that_was_killed_was_killed_for_memory(
    status: int, role: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts kills of the whole sandbox: one that ended with a status of its own is none of them.

    `status` is that of waitpid: the signal, or 256 times what the process exited with.
    """
    monkeypatch.setattr(errors, "oom_kills", lambda: 1)
    failure = errors.of_end(status, "")
    failure.role = role
    assert verdict(ended(failure, monkeypatch)) == expected


@pytest.mark.parametrize("error", [Finding("task_invalid", "the reference failed"), OSError(28, "No space left")])
def test_who_hoards_what_others_need_is_the_cause(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    hoarding = Finding("out_of_memory", "the candidate held all", "disk")
    assert verdict(ended(error, monkeypatch, hoarding)) == "out_of_memory/disk"


def test_who_was_wrong_is_wrong_whatever_it_hoards(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding("wrong_output", "wrong", "values")
    hoarding = Finding("out_of_memory", "the candidate held all", "disk")
    assert verdict(ended(found, monkeypatch, hoarding)) == "wrong_output/values"


def test_a_failure_while_looking_is_a_verdict_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict(ended(TypeError("x"), monkeypatch, OSError(5, "x"))) == "sandbox_error/referee_failed"


def test_a_failure_names_its_role() -> None:
    class Runner:
        role = "eager"

        @names_role
        def ask(self, role: str = "") -> None:
            raise RunnerFailed("died", "gone", role=role)

    for role, told in (("", "eager"), ("candidate", "candidate")):
        with pytest.raises(RunnerFailed) as caught:
            Runner().ask(role)
        assert caught.value.role == told


@pytest.mark.parametrize("fault", [RunnerFailed("died", "gone"), Finding("timed_out", "late"), KeyError("pid")])
def test_a_fault_while_looking_for_the_cause_changes_no_verdict(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(*_: object) -> None:
        raise fault

    monkeypatch.setattr("evaluator.referee.platforms.cpu.platform.CpuPlatform.explain", explain)
    assert verdict(ended(Finding("wrong_output", "wrong", "values"), monkeypatch)) == "wrong_output/values"


@given(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9).filter(lambda text: text != "exact")
)
def test_traits_that_a_task_makes_up_index_no_table_that_is_not_there(value: Any) -> None:
    made_up = dict.fromkeys(("kind", "terms", "narrowest", "unstable_ties"), value)
    assert tolerances.Tolerances(traits.Traits.from_json(made_up)).floor("float32") > 0


def test_only_what_is_freed_by_its_going_was_hoarded() -> None:
    nothing = {"disk": 0.1, "files": 0.0, "processes": 0.2, "shared_memory": 0.0}
    full = nothing | {"disk": 0.99}
    assert exhaustion.short(nothing) == []
    assert exhaustion.hoarded(nothing, nothing) is None
    assert exhaustion.short(full) == ["disk"]
    assert exhaustion.hoarded(full, full) is None, "a full disk of somebody else's"
    assert exhaustion.hoarded(full, nothing) == ("disk", "89% of the sandbox's space for files")
    many = nothing | {"processes": 0.9}
    assert exhaustion.hoarded(many, many | {"processes": 0.7}) is None, (
        "as many threads as anybody has on such a machine"
    )


def test_what_is_in_use_is_read(tmp_path: Any) -> None:
    used = exhaustion.used(str(tmp_path), 1 << 30, first_uid=1 << 40)
    assert set(used) == {"disk", "files", "processes", "shared_memory"}
    assert all(0.0 <= share <= 1.0 for share in used.values())
    assert used["shared_memory"] == 0.0


def test_a_sandbox_that_is_short_of_something_in_any_case_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"disk": 0.9, "files": 0.0, "processes": 0.0, "shared_memory": 0.0}
    monkeypatch.setattr(exhaustion, "used", lambda *_: full)
    pool: Any = SimpleNamespace(running=[], scratch="", memory_bytes=1)
    with pytest.raises(Finding, match="short of space for files") as caught:
        RunnerPool.check_hoarding(pool)
    assert caught.value.verdict == "sandbox_error"
