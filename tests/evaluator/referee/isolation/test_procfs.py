"""Stopping every process of a user, however it tries to go on."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from evaluator.referee.errors import RunnerFailed
from evaluator.referee.isolation import procfs
from evaluator.referee.isolation.handle import RunnerHandle, RunnerShared
from evaluator.referee.isolation.memory_kills import MemoryKills
from evaluator.referee.platforms.cpu import memory
from evaluator.referee.platforms.cpu.account import CpuAccount
from evaluator.referee.platforms.cpu.platform import CpuPlatform
from evaluator.referee.protocol.tensors import TensorRow

SPIN = "while True: pass"
# A leader that ends while another thread of it works on.
ZOMBIE_LEADER = """
import ctypes, threading
threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    running: list[subprocess.Popen[bytes]] = []

    def begin(source: str) -> int:
        running.append(subprocess.Popen([sys.executable, "-c", source], start_new_session=True))
        time.sleep(0.5)
        return running[-1].pid

    yield begin
    for process in running:
        process.kill()
        process.wait()


def runs(pid: int) -> bool:
    before = procfs.cpu_time_ns(pid)
    time.sleep(0.2)
    return procfs.cpu_time_ns(pid) - before > 10_000_000


def test_what_is_frozen_does_not_run_and_what_is_thawed_does(start) -> None:
    pid = start(SPIN)
    assert runs(pid)
    stopped = procfs.freeze(lambda: procfs.descendants([pid]))
    assert stopped == [pid]
    assert not runs(pid)
    procfs.thaw(stopped)
    assert runs(pid)


def test_a_process_whose_leader_has_ended_is_frozen_and_killed_like_any_other(start) -> None:
    pid = start(ZOMBIE_LEADER)
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    assert runs(pid)
    assert pid in procfs.pids_of_uid(os.getuid())
    assert procfs.freeze(lambda: procfs.descendants([pid])) == [pid]
    assert not runs(pid)
    assert procfs.kill_all(lambda: procfs.descendants([pid]))


def test_a_scan_during_which_something_forks_is_not_enough_where_all_can_be_signalled_at_once(
    start, monkeypatch
) -> None:
    pid, sent, forks = start(SPIN), [], []
    monkeypatch.setattr(procfs, "newest_pid", lambda: len(forks))  # nothing else forks, whatever other tests do

    def scan() -> list[int]:
        if not sent:
            forks.append("what forks and ends at once may be missed by a scan")
            return []
        return [pid]

    def at_once(number: int) -> bool:
        os.kill(pid, number)
        sent.append(number)
        return True

    assert procfs.freeze(scan, at_once=at_once) == [pid]
    assert sent == [signal.SIGSTOP]
    assert not runs(pid)


def test_what_only_stops_late_is_not_signalled_all_at_once(start, monkeypatch) -> None:
    """Sending to all at once takes processor time, which would be called out of turn."""
    pid, asked, stop = start(SPIN), [], procfs.stop

    def stop_late(pids: list[int]) -> None:
        asked.append(pids)
        if len(asked) > 5:
            stop(pids)

    monkeypatch.setattr(procfs, "stop", stop_late)
    monkeypatch.setattr(procfs, "newest_pid", lambda: 1)  # nothing forks, whatever other tests do
    assert procfs.freeze(lambda: [pid], at_once=lambda number: pytest.fail("signalled all")) == [pid]


def test_what_forks_faster_than_it_is_killed_is_killed_all_at_once() -> None:
    children: list[subprocess.Popen[bytes]] = []
    forking = True

    def scan() -> list[int]:
        if forking:
            children.append(subprocess.Popen(["sleep", "60"]))
        return [child.pid for child in children if child.poll() is None]

    def at_once(number: int) -> bool:
        nonlocal forking
        forking = False
        return True

    assert procfs.kill_all(scan, at_once=at_once)
    assert not forking
    assert [child.wait() for child in children] == [-signal.SIGKILL] * len(children)


def test_killed_processes_may_take_long_to_be_gone_on_a_busy_machine(start) -> None:
    pid, scans = start(SPIN), iter([True] * 5)  # a killed process that is still found is waited for
    assert procfs.kill_all(lambda: [pid] if next(scans, False) else [], timeout_s=0.0)
    assert not runs(pid)


def test_killed_processes_that_are_never_gone_are_told(start) -> None:
    pid = start(SPIN)
    assert not procfs.kill_all(lambda: [pid], dying_s=0.05)


def test_processes_that_are_started_faster_than_they_are_killed_are_told() -> None:
    children: list[subprocess.Popen[bytes]] = []

    def one_more() -> list[int]:
        children.append(subprocess.Popen(["sleep", "60"]))
        return [children[-1].pid]

    assert not procfs.kill_all(one_more, timeout_s=0.1)
    assert [child.wait() for child in children] == [-signal.SIGKILL] * len(children)


# As many threads as it is told, one more each time that it reads a line, all of which run.
THREADS = """
import sys, threading
all_there = threading.Event()
def work():
    all_there.wait()
    while True: pass
for _ in range({count} - 1):
    threading.Thread(target=work, daemon=True).start()
all_there.set()
for line in sys.stdin:
    threading.Thread(target=work, daemon=True).start()
    print(flush=True)
threading.Event().wait()
"""


def started(start: Callable[[str], int], count: int) -> int:
    """A process with so many threads, all of which run."""
    pid = start(THREADS.format(count=count))
    ends = time.monotonic() + 60
    while len([*Path(f"/proc/{pid}/task").iterdir()]) < count:
        assert time.monotonic() < ends
        time.sleep(0.05)
    return pid


@pytest.fixture
def watch() -> Iterator[procfs.ThreadWatch]:
    opened = procfs.ThreadWatch()
    yield opened
    opened.close()


@pytest.mark.parametrize("count", [1, 3, 80])  # of the last, not every thread has a file of its own
def test_who_watches_threads_sees_when_all_have_stopped(
    start: Callable[[str], int], watch: procfs.ThreadWatch, count: int
) -> None:
    pid = started(start, count) if count > 1 else start(SPIN)
    watch.watch([pid])
    assert not watch.wait_stopped(timeout_s=0.02), "it runs"
    procfs.stop([pid])
    assert watch.wait_stopped(timeout_s=10)
    assert not runs(pid)
    procfs.thaw([pid])
    time.sleep(0.05)
    assert not watch.wait_stopped(timeout_s=0.0), "it runs again"


def test_what_is_gone_counts_as_stopped(start: Callable[[str], int], watch: procfs.ThreadWatch) -> None:
    pid = start(SPIN)
    watch.watch([pid])
    os.kill(pid, signal.SIGKILL)
    assert watch.wait_stopped(timeout_s=10)
    os.waitpid(pid, 0)
    assert watch.wait_stopped(timeout_s=0.0), "of a process that nothing is left of"
    watch.watch([pid])
    assert watch.wait_stopped(timeout_s=0.0)


def test_a_new_thread_shows_in_the_newest_pid_and_is_watched_when_it_is_looked_for(watch: procfs.ThreadWatch) -> None:
    source = THREADS.format(count=2)
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None

        def one_more() -> None:
            process.stdin.write(b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            process.stdout.readline()  # type: ignore[union-attr]

        one_more()
        watch.watch([process.pid])
        newest = watch.newest_pid()
        assert newest == procfs.newest_pid()
        one_more()
        assert watch.newest_pid() != newest
        watch.watch([process.pid])
        assert len([*Path(f"/proc/{process.pid}/task").iterdir()]) == 4
        assert not watch.wait_stopped(timeout_s=0.0)
        procfs.stop([process.pid])
        assert watch.wait_stopped(timeout_s=10)
        process.kill()


def test_a_thread_that_has_the_number_of_one_that_is_gone_is_watched(
    start: Callable[[str], int], watch: procfs.ThreadWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, pid = start(SPIN), start(SPIN)
    folder = procfs._threads_of(gone)
    monkeypatch.setattr(procfs, "_threads_of", lambda pid: folder)
    watch.watch([pid])
    os.kill(gone, signal.SIGKILL)
    os.waitpid(gone, 0)
    assert watch.wait_stopped(timeout_s=0.0)
    # The number is given out again: what has the name of the old thread's folder is another thread now.
    opened = os.open
    monkeypatch.setattr(os, "open", lambda name, flags: opened(name.replace(str(gone), str(pid)), flags))
    watch.watch([pid])
    assert not watch.wait_stopped(timeout_s=0.02), "it runs"


def test_who_may_open_no_more_files_watches_all_the_same(
    start: Callable[[str], int], watch: procfs.ThreadWatch
) -> None:
    pid = started(start, 9)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 4, hard))  # noqa: PTH208
    try:
        watch.watch([pid])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not watch.wait_stopped(timeout_s=0.02)
    procfs.stop([pid])
    assert watch.wait_stopped(timeout_s=10)


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_files_of_threads_are_closed(start: Callable[[str], int]) -> None:
    before = open_files()
    many, one = started(start, 9), start(SPIN)
    watch = procfs.ThreadWatch()
    watch.watch([many, one])
    assert open_files() == before + 1 + 10
    watch.watch([one])
    assert open_files() == before + 1 + 1
    watch.close()
    assert open_files() == before


def test_a_fork_shows_in_the_newest_pid() -> None:
    before = procfs.newest_pid()
    subprocess.run(["true"], check=True)
    assert procfs.newest_pid() != before


def test_time_of_threads_is_counted_to_the_process(start) -> None:
    pid = start(ZOMBIE_LEADER)
    assert procfs.cpu_time_ns(pid) > 100_000_000


ENDED_THREAD = """
import threading, time
def work():
    while time.thread_time() < 0.2:
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()
time.sleep(60)
"""


def test_time_of_threads_that_have_ended_is_too(start) -> None:
    pid = start(ENDED_THREAD)
    deadline = time.monotonic() + 20
    while procfs.cpu_time_ns(pid) < 200_000_000 or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert procfs.cpu_time_ns(pid) > 200_000_000


def test_a_process_that_is_gone_has_no_time() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    assert procfs.cpu_time_ns(done.pid) == 0


class FakeAccount(CpuAccount):
    """An audit of a sandbox whose account the test writes."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.own = 0
        self.used: dict[int, int] = {}

    @property
    def possible(self) -> bool:
        return True

    def _accounts_ns(self) -> tuple[int, int]:
        return self.total, self.own

    def _used_ns(self, pid: int) -> int:
        return self.used.get(pid, 0)


def test_time_that_the_referee_and_the_runner_used_is_accounted_for() -> None:
    account = FakeAccount()
    account.begin()
    account.total, account.own = 5, 5
    account.begin_turn([7], whole_sandbox=False)
    account.total, account.own, account.used = 20, 6, {7: 14}
    account.stopped()
    account.end()
    assert account.unaccounted_s == 0


@pytest.mark.parametrize("whole_sandbox", [True, False])
def test_time_that_others_use_counts_except_in_a_candidates_own_turn(whole_sandbox: bool) -> None:
    account = FakeAccount()
    account.begin()
    account.begin_turn([7], whole_sandbox=whole_sandbox)
    account.total, account.used = 3_000_000_000, {7: 1_000_000_000}
    account.stopped()
    assert account.unaccounted_s == (0 if whole_sandbox else 2)
    account.total += 500_000_000  # while everything is stopped
    account.end()
    assert account.unaccounted_s == (0.5 if whole_sandbox else 2.5)
    account.total += 500_000_000  # between process sets, where runners are made
    account.begin()
    account.end()
    assert account.unaccounted_s == 0, "each set is judged by itself"


def test_time_of_what_works_beside_is_accounted_for_from_when_it_was_allowed() -> None:
    account = FakeAccount()
    account.used = {9: 60_000_000_000}  # what it used before is in no reading
    account.begin()
    account.allow([9])
    account.total, account.used = 2_000_000_000, {9: 61_000_000_000}
    account.begin_turn([7], whole_sandbox=False)
    assert account.unaccounted_s == 1, "a second was used by someone else"
    account.total, account.used = 3_000_000_000, {7: 1_000_000_000, 9: 61_000_000_000}
    account.stopped()
    account.allow([])
    account.total += 500_000_000  # it has been stopped for good
    account.end()
    assert account.unaccounted_s == 1.5


def test_one_whose_turn_is_over_is_accounted_for_no_more_and_one_born_beside_from_its_birth() -> None:
    account = FakeAccount()
    account.begin()
    account.begin_turn([7], whole_sandbox=False)
    account.total, account.used = 1_000_000_000, {7: 1_000_000_000}
    account.stopped()
    account.total, account.used = 2_000_000_000, {7: 2_000_000_000}  # it goes on
    account.begin_turn([8], whole_sandbox=False)
    account.stopped()
    assert account.unaccounted_s == 1
    account.total += 250_000_000
    account.used[10] = 250_000_000  # forked by what works beside, since the last reading
    account.allow([9, 10], born=[10])
    account.total += 250_000_000
    account.used[10] += 250_000_000
    account.end()
    assert account.unaccounted_s == 1


@pytest.mark.parametrize(("told", "seconds"), [("32768\n", 0.065536), ("4194304\n", 0.25), ("what?", 0.0), (None, 0.0)])
def test_process_ids_are_trusted_for_as_long_as_they_cannot_come_round(
    told: str | None, seconds: float, tmp_path: Path
) -> None:
    if told is not None:
        (tmp_path / "pid_max").write_text(told)
    assert procfs.no_wrap_s(tmp_path / "pid_max") == pytest.approx(seconds)


def stopped_runner(pid: int) -> RunnerHandle:
    """The hold on one process that has been stopped and used no time since."""
    os.kill(pid, signal.SIGSTOP)
    assert procfs.wait_stopped([pid], timeout_s=20.0)
    procfs.wait_off_processor([pid])
    handle = RunnerHandle.__new__(RunnerHandle)
    handle.role, handle.pid, handle.stopped, handle._pidfd = "candidate", pid, [pid], os.pidfd_open(pid)
    handle._used_ns = {pid: procfs.cpu_time_ns(pid)}
    handle._shared = cast(RunnerShared, SimpleNamespace(account=FakeAccount(), kills=MemoryKills()))
    handle._kills = 0
    return handle


def test_a_process_ends_when_its_last_thread_does(start: Callable[[str], int]) -> None:
    pid, headless = start(SPIN), start(ZOMBIE_LEADER)
    ends = time.monotonic() + 20
    while b" Z " not in Path(f"/proc/{headless}/stat").read_bytes():
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert not procfs.is_ending(pid)
    assert not procfs.is_ending(headless), "who hides its memory so has not ended"
    os.kill(pid, signal.SIGSTOP)
    assert not procfs.is_ending(pid)
    for each in (pid, headless):
        os.kill(each, signal.SIGKILL)
        assert procfs.is_ending(each), "at once"
        os.waitpid(each, 0)
        assert procfs.is_ending(each)


def test_what_went_on_after_it_had_been_stopped_is_refused(start: Callable[[str], int]) -> None:
    handle = stopped_runner(pid := start(SPIN))
    time.sleep(0.1)
    handle.see_still()
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)
    with pytest.raises(RunnerFailed) as caught:
        handle.see_still()
    assert (caught.value.kind, caught.value.role) == ("out_of_turn", "candidate")
    os.close(handle._pidfd)


@pytest.mark.parametrize("stopped_again", [False, True])
def test_what_went_on_before_its_turn_is_not_let_go(start: Callable[[str], int], stopped_again: bool) -> None:
    handle = stopped_runner(pid := start(SPIN))
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.1)
    if stopped_again:  # as if nothing had been
        os.kill(pid, signal.SIGSTOP)
        assert procfs.wait_stopped([pid], timeout_s=20.0)
    with pytest.raises(RunnerFailed, match="went on before it was their turn") as caught:
        handle._turn(1.0)
    assert caught.value.kind == "out_of_turn"
    os.close(handle._pidfd)


def test_what_went_on_while_the_referee_got_ready_for_its_turn_is_not_let_go(start: Callable[[str], int]) -> None:
    handle = stopped_runner(pid := start(SPIN))

    def before() -> None:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
        assert procfs.wait_stopped([pid], timeout_s=20.0)

    with pytest.raises(RunnerFailed, match="went on before it was their turn"):
        handle._turn(1.0, before=before)
    os.close(handle._pidfd)


def test_nothing_is_looked_at_between_what_comes_before_a_turn_and_its_beginning(
    start: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = stopped_runner(start(SPIN))
    done: list[str] = []
    is_stopped = procfs.is_stopped
    monkeypatch.setattr(procfs, "is_stopped", lambda pid: [done.append("looked"), is_stopped(pid)][1])
    monkeypatch.setattr(procfs, "thaw", lambda pids: done.append("continued"))
    monkeypatch.setattr(handle, "_await", lambda *_: _over())
    with pytest.raises(KeyError, match="over"):
        handle._turn(1.0, before=lambda: done.append("ready"))
    assert done == ["looked", "ready", "continued"]
    os.close(handle._pidfd)


def _over() -> bytes:
    raise KeyError("over")


TOUCHES: dict[str, Callable[[RunnerHandle], object]] = {
    "its memory is read": lambda handle: handle.read(ROW),
    "its memory is written to": lambda handle: handle.flip(ROW, [1]),
    "it is seen to stand still": lambda handle: handle.see_still(),
}
ROW = TensorRow(0x1000, "float32", (2, 2), (2, 1))


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES.keys())
def test_a_process_that_ended_while_it_was_stopped_is_told_as_ended(
    touch: Callable[[RunnerHandle], object], start: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = stopped_runner(pid := start(SPIN))
    handle.platform, handle._log = CpuPlatform(0), os.memfd_create("log")
    handle._used_ns = {pid: -1_000_000}  # what is killed while it is stopped runs again until its end
    monkeypatch.setattr(handle, "_reap", lambda wait_s: signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RunnerFailed, match="ended by SIGKILL") as caught:
        touch(handle)
    assert (caught.value.kind, caught.value.role) == ("died", "candidate")
    os.close(handle._pidfd)
    os.close(handle._log)


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES.keys())
def test_only_one_that_lives_is_accused(
    touch: Callable[[RunnerHandle], object], start: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = stopped_runner(pid := start(SPIN))
    handle.platform, handle._log = CpuPlatform(0), os.memfd_create("log")
    handle._used_ns = {pid: -1_000_000}
    with pytest.raises(RunnerFailed) as caught:
        touch(handle)
    assert caught.value.kind in ("unreadable", "out_of_turn")
    os.close(handle._pidfd)
    os.close(handle._log)


HOLDS_MEMORY = """
import ctypes, mmap, sys
kept = mmap.mmap(-1, 4096)
kept[:8] = bytes(range(8))
print(ctypes.addressof(ctypes.c_char.from_buffer(kept)), flush=True)
sys.stdin.read()
print(list(kept[:8]))
"""


@pytest.mark.parametrize(("times", "left"), [(1, [0, 1, 0x57, 0x57, 4, 5, 0x53, 0x53]), (2, list(range(8)))])
def test_elements_of_another_process_are_flipped_and_flipped_back(times: int, left: list[int]) -> None:
    command = [sys.executable, "-c", HOLDS_MEMORY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        address = int(child.stdout.readline())
        for _ in range(times):
            memory.flip_memory(child.pid, [address + 6, address + 2], b"\x55\x54")
        with pytest.raises(memory.ForeignMemoryError, match="2 places"):
            memory.flip_memory(child.pid, [address, 4096], b"\x55\x55")
        child.stdin.close()
        assert child.stdout.read().strip() == str(left)
