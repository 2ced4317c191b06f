"""What a runner holds: memory that was there when it was forked does not count until it is written to."""

import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from evaluator.referee.platforms.cpu import memory

MB = 1 << 20
INHERITED = bytearray(b"\1") * (64 * MB)
SLACK = 12 * MB  # what Python itself writes to


@contextmanager
def forked(work: Callable[[], object]) -> Iterator[int]:
    """A child that does some work, keeps what it returns, and waits."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            kept = work()
            os.write(tell, b"1" if kept is not None else b"0")
            while True:
                signal.pause()
        os._exit(0)
    try:
        assert os.read(told, 1) == b"1"
        yield pid
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(told)
        os.close(tell)


def filled(size: int = 64 * MB) -> bytearray:
    return bytearray(b"\2") * size


def overwritten() -> bytearray:
    for place in range(0, len(INHERITED), 4096):
        INHERITED[place] = 3
    return INHERITED


def mapped_twice() -> list[mmap.mmap]:
    """Memory that looks shared, since two mappings of one process have it."""
    file = os.memfd_create("twice")
    os.ftruncate(file, 64 * MB)
    first, second = mmap.mmap(file, 64 * MB), mmap.mmap(file, 64 * MB)
    for place in range(0, 64 * MB, 4096):
        first[place] = second[place] = 1
    return [first, second]


@pytest.mark.parametrize(
    ("work", "held_mb"),
    [(lambda: 0, 0), (lambda: sum(INHERITED[::4096]), 0), (filled, 64), (overwritten, 64), (mapped_twice, 64)],
    ids=["nothing", "read", "filled", "overwritten", "mapped twice"],
)
def test_a_process_holds_what_it_has_written_since_it_was_forked(work: Callable[[], object], held_mb: int) -> None:
    with forked(lambda: 0) as idle, forked(work) as pid:
        held = memory.held_bytes([pid]) - memory.held_bytes([idle])
        assert held_mb * MB - SLACK <= held <= held_mb * MB + SLACK


@pytest.mark.parametrize(
    ("shares", "private", "shared_memory", "held"), [(90, 66, 64, 90), (200, 66, 64, 130), (200, 2, 64, 66)]
)
def test_the_lower_of_two_bounds_counts(
    monkeypatch: pytest.MonkeyPatch, shares: int, private: int, shared_memory: int, held: int
) -> None:
    """Shared memory that is mapped once is private as well, which the second bound counts twice."""
    rollup = {"Pss": shares, "Private_Dirty": private, "Private_Clean": 0, "Pss_Shmem": shared_memory, "Pss_File": 0}
    monkeypatch.setattr(memory, "_rollup", lambda pid: rollup)
    assert memory.held_bytes([1]) == held


def test_what_processes_of_one_runner_share_counts_once() -> None:
    def with_child() -> object:
        kept = filled()
        told, tell = os.pipe()
        if os.fork() == 0:
            os.write(tell, b"1")
            while os.getppid() != 1:
                time.sleep(0.05)
            os._exit(0)
        os.read(told, 1)
        return kept

    with forked(lambda: 0) as idle, forked(with_child) as pid:
        members = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
        assert len(members) == 2
        alone = memory.held_bytes([idle, members[0]]) - memory.held_bytes([idle, idle])
        assert alone <= 32 * MB + SLACK, "half of what it shares with its child"
        held = memory.held_bytes(members) - memory.held_bytes([idle, idle])
        assert 64 * MB - SLACK <= held <= 64 * MB + SLACK


def test_a_process_that_is_gone_holds_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert memory.held_bytes([pid]) == 0


def test_a_process_that_has_ended_and_is_not_reaped_holds_nothing_and_changes_nothing_for_others() -> None:
    with forked(lambda: 0) as idle:
        before = memory.held_bytes([idle, idle])
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert memory.held_bytes([pid]) == 0
            assert memory.held_bytes([idle, idle, pid]) <= before + SLACK
        finally:
            os.waitpid(pid, 0)


def test_where_the_kernel_tells_no_shares_it_is_all_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_rollup", lambda pid: None)
    assert memory.held_bytes([os.getpid()]) > len(INHERITED)
