"""An evaluation ends with a verdict whatever happens; only evidence passes, and nobody is accused without it."""

import errno
import os
import signal
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.referee import errors, evaluate
from evaluator.referee.correctness import tolerances
from evaluator.referee.errors import Finding, RunnerFailed, names_role
from evaluator.referee.isolation import exhaustion, handle
from evaluator.referee.isolation.memory_kills import MemoryKills, used_bytes
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
        self.kills = MemoryKills()
        self.need = SimpleNamespace(input_bytes=0)
        self.kernel_built = ""

    def check_hoarding(self, *, ending: bool) -> None:
        assert ending, "the candidate ends in any case, so it is seen what that frees"
        if self.hoarding is not None:
            raise self.hoarding

    def stop_all(self) -> None:
        self.stopped = True


def ended(
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
    hoarding: Exception | None = None,
    *,
    in_turns: str = "",
    beside: str = "",
) -> dict[str, Any]:
    """The report on an evaluation that ended so, where memory had run out in, or beside, a turn of these roles."""

    def examine(self: evaluate.Evaluation) -> Finding:
        for role, noted in ((in_turns, self.pool.kills.in_turns), (beside, self.pool.kills.beside)):
            noted.update([role] if role else [])
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
        ("candidate", "no_room", "sandbox_error/no_room"),
        ("compile", "died", "sandbox_error/baseline_lost"),
        ("peaks", "died", "sandbox_error/died"),
    ],
)
def test_a_failure_that_nobody_expected_is_that_of_its_runner(
    role: str, kind: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict(ended(RunnerFailed(kind, "gone", role=role), monkeypatch)) == expected


@pytest.mark.parametrize(
    ("status", "memory_ran_out", "role", "expected"),
    [
        (signal.SIGKILL, True, "candidate", "out_of_memory/None"),
        (signal.SIGKILL, True, "reference", "task_invalid/out_of_memory"),
        (signal.SIGKILL, True, "compile", "sandbox_error/baseline_lost"),
        (None, True, "candidate", "out_of_memory/None"),
        (None, True, "eager", "task_invalid/out_of_memory"),
        (signal.SIGKILL, False, "candidate", "crashed/None"),
        (signal.SIGKILL, False, "reference", "task_invalid/None"),
        (None, False, "candidate", "crashed/None"),
        (signal.SIGSEGV, True, "candidate", "crashed/None"),
        (signal.SIGSEGV, True, "reference", "task_invalid/None"),
        (7 << 8, True, "candidate", "crashed/None"),
        (7 << 8, True, "reference", "task_invalid/None"),
    ],
)
def test_only_a_process_that_was_killed_was_killed_for_memory(
    status: int | None, memory_ran_out: bool, role: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts kills of the whole sandbox: one that ended in a way of its own is none of them.

    `status` is that of waitpid: the signal, or 256 times what the process exited with; None if nobody knows it.
    """
    failure = errors.of_end(status, "", memory_ran_out=memory_ran_out)
    failure.role = role
    assert verdict(ended(failure, monkeypatch)) == expected


def test_a_kill_before_a_runner_was_last_seen_alive_says_nothing_of_its_end() -> None:
    kills = MemoryKills()
    kills._file, kills._before = os.memfd_create("count"), 3
    os.pwrite(kills._file, b"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 0)
    assert kills.count() == 0
    os.pwrite(kills._file, b"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 0)
    assert kills.count() == 2
    assert kills.note_turn("candidate", before=2) == 2
    assert not kills.in_turns
    with kills.others_run():
        kills.note_turn("candidate", before=1)
    assert not kills.in_turns, "another may have taken the memory"
    assert kills.beside == {"candidate": 1}
    kills.note_turn("candidate", before=1)
    assert kills.in_turns == {"candidate": 1}
    os.close(kills._file)


class Holding:
    """A pool's parts that looking for who took the memory needs; `held` is what the candidate holds."""

    def __init__(self, kills: int, in_turn_of: str, held: int) -> None:
        self.kills = SimpleNamespace(count=lambda: kills, in_turns=Counter([in_turn_of] if in_turn_of else []))
        self.platform = SimpleNamespace(held_bytes=lambda handle: held)
        self.running = [SimpleNamespace(role="candidate"), SimpleNamespace(role="eager")]
        self.request = Request("cpu", "")
        self.state = (None, [])
        self.input_bytes = self.output_bytes = 1 << 20
        self.kept_bytes = 0
        self.may_hold_bytes = lambda eager: RunnerPool.may_hold_bytes(self, eager)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kills", "in_turn_of", "held_mb", "expected"),
    [
        (0, "", 4000, None),  # there was memory enough
        (1, "", 100, None),
        (1, "reference", 100, None),
        (1, "", 4000, "out_of_memory/memory"),
        (1, "candidate", 100, "out_of_memory/memory"),
        (1, "champion", 100, "sandbox_error/out_of_memory"),
    ],
)
def test_whose_memory_left_too_little_for_others(
    kills: int, in_turn_of: str, held_mb: int, expected: str | None
) -> None:
    pool: Any = Holding(kills, in_turn_of, held_mb << 20)
    found = None
    try:
        RunnerPool._check_memory(pool, ending=False)
    except Finding as finding:
        found = f"{finding.verdict}/{finding.code}"
    assert found == expected


def test_outputs_that_a_candidate_was_told_to_keep_are_no_hoard() -> None:
    pool: Any = Holding(1, "reference", 4000 << 20)
    pool.kept_bytes = 4000 << 20
    RunnerPool._check_memory(pool, ending=False)
    pool.kept_bytes = 1000 << 20
    with pytest.raises(Finding, match="the candidate held 4000 MiB"):
        RunnerPool._check_memory(pool, ending=False)


def test_memory_that_only_a_candidates_end_frees_is_held_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in memory that is not mapped is in no process's account."""
    pool: Any = Holding(1, "reference", 100 << 20)
    used = {"bytes": 5000 << 20}
    monkeypatch.setattr("evaluator.referee.pool.runner_pool.used_bytes", lambda: used["bytes"])

    def stop(*handles: Any) -> None:
        assert [handle.role for handle in handles] == ["candidate"]
        used["bytes"] = 600 << 20

    pool.stop = stop
    RunnerPool._check_memory(pool, ending=False)
    with pytest.raises(Finding, match="the candidate held 4400 MiB") as found:
        RunnerPool._check_memory(pool, ending=True)
    assert (found.value.verdict, found.value.code) == ("out_of_memory", "memory")


def test_what_the_sandbox_uses_grows_with_a_file_in_memory_that_nobody_has_mapped() -> None:
    before = used_bytes()
    if not before:
        pytest.skip("the kernel does not tell what this process's control group uses")
    file = os.memfd_create("hoard")
    try:
        for _ in range(64):
            os.write(file, b"x" * (1 << 20))
        assert used_bytes() - before > 32 << 20
    finally:
        os.close(file)


def test_a_task_is_not_blamed_for_memory_that_ran_out_while_the_candidate_ran_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = Finding("task_invalid", "the reference failed in a call: no memory", "out_of_memory")
    assert verdict(ended(error, monkeypatch)) == "task_invalid/out_of_memory"
    assert verdict(ended(error, monkeypatch, beside="candidate")) == "sandbox_error/out_of_memory"
    assert verdict(ended(error, monkeypatch, beside="eager")) == "task_invalid/out_of_memory"


def test_a_candidate_is_not_blamed_for_memory_that_ran_out_in_the_champions_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = Finding("out_of_memory", "a timed call: the kernel killed the process")
    assert verdict(ended(error, monkeypatch)) == "out_of_memory/None"
    assert verdict(ended(error, monkeypatch, in_turns="champion")) == "sandbox_error/out_of_memory"
    assert verdict(ended(error, monkeypatch, in_turns="candidate")) == "out_of_memory/None"


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


def test_a_process_that_closes_its_connection_and_lives_forges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = errors.of_closed("a double close")
    failure.role = "candidate"
    assert verdict(ended(failure, monkeypatch)) == "crashed/None"


@pytest.mark.parametrize(
    ("number", "raised"),
    [
        (errno.ESRCH, "unreadable"),
        (errno.EFAULT, "unreadable"),
        (errno.EMFILE, None),
        (errno.ENOMEM, None),
        (errno.EACCES, None),
    ],
)
def test_only_what_is_said_of_a_living_runner_accuses_it(number: int, raised: str | None) -> None:
    class Handle:
        def _refuse_if_ended(self) -> None: ...

        @handle._or_its_end
        def look(self) -> None:
            raise OSError(number, "x")

    with pytest.raises(RunnerFailed if raised else OSError) as found:
        Handle().look()
    assert getattr(found.value, "kind", None) == raised


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
    used = exhaustion.used(str(tmp_path), 1 << 30, 1 << 40, exhaustion.Room.of(str(tmp_path)))
    assert set(used) == {"disk", "files", "processes", "shared_memory"}
    assert all(0.0 <= share <= 1.0 for share in used.values())
    assert used["shared_memory"] == 0.0


def test_a_disk_that_others_had_filled_before_is_not_short(tmp_path: Any) -> None:
    """Where a sandbox has no file system of its own, most of the host's disk may be in use."""
    now = exhaustion.Room.of(str(tmp_path))
    used = exhaustion.used(str(tmp_path), 1 << 30, 1 << 40, now)
    assert used["disk"] < 0.01 and used["files"] < 0.01 and exhaustion.short(used) == []
    used = exhaustion.used(str(tmp_path), 1 << 30, 1 << 40, exhaustion.Room(10 * now.free_bytes, 10 * now.free_files))
    assert used["disk"] == pytest.approx(0.9, abs=0.01) and "disk" in exhaustion.short(used)


def test_a_sandbox_that_is_short_of_something_in_any_case_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"disk": 0.9, "files": 0.0, "processes": 0.0, "shared_memory": 0.0}
    monkeypatch.setattr(exhaustion, "used", lambda *_: full)
    pool: Any = SimpleNamespace(running=[], scratch="", memory_bytes=1, room=None, _check_memory=lambda ending: None)
    with pytest.raises(Finding, match="short of space for files") as caught:
        RunnerPool.check_hoarding(pool)
    assert caught.value.verdict == "sandbox_error"
