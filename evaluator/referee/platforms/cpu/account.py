"""Whether anything ran while it should have been stopped: the processor time of the whole sandbox, fully accounted for.

A stopped process might be made to go on (by a timer that continues it, by children that are never caught, by threads
that outlive their leader). However it is done, it shows in the kernel's account of the sandbox: in any stretch of time,
what the sandbox used must be what the referee used, what one runner used while it was its turn, and what the
reference used that makes inputs between turns. The account includes processes that have ended since, a process's clock
its ended threads. The kernel charges a running thread at its ticks, so it may lag by some of them.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...isolation.procfs import cpu_time_ns

_ACCOUNTS = (
    (Path("/sys/fs/cgroup/cpuacct/cpuacct.usage"), "", 1),  # control groups, version 1
    (Path("/sys/fs/cgroup/cpu.stat"), "usage_usec ", 1000),  # version 2
)


@dataclass
class CpuAccount:
    """Sums up processor time that nobody may have used since `begin`.

    Works for one thread of the referee, that which made it.
    """

    unaccounted_s: float = 0.0
    running: bool = False
    _account: int | None = None
    _own: int | None = None
    _prefix: bytes = b""
    _scale: int = 1
    _last: tuple[int, int] = (0, 0)
    _spent: dict[int, int] = field(default_factory=dict)  # nanoseconds of those accounted for from now on
    _whole_sandbox: bool = False
    _allowed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Find the sandbox's account; without one, nothing is audited."""
        for path, prefix, scale in _ACCOUNTS:
            with contextlib.suppress(OSError):
                self._account = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._prefix, self._scale = prefix.encode(), scale
                break
        with contextlib.suppress(OSError):
            self._own = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def possible(self) -> bool:
        """Whether this sandbox has an account that can be read."""
        return self._account is not None and self._own is not None

    def begin(self) -> None:
        """From here on everything is stopped but the referee and what it allows, except in turns.

        What was unaccounted for before is forgotten: too little in one stretch must not hide too much in another.
        """
        self.unaccounted_s = 0.0
        self.running = self.possible
        if self.running:
            self._charge(self._allowed)

    def allow(self, pids: list[int], *, born: Iterable[int] = ()) -> None:
        """What these use is accounted for, whoever's turn it is, until others are named. Said while all are stopped.

        `born`: those among them that were forked by them since the last reading, whose whole life is accounted for.
        """
        self._allowed = list(pids)
        if self.running:
            self.unaccounted_s += self._charge(self._allowed) - sum(map(self._used_ns, born)) / 1e9

    def begin_turn(self, pids: list[int], *, whole_sandbox: bool) -> None:
        """A runner's turn begins. `whole_sandbox`: whatever it starts may run, too (a candidate's own turn)."""
        if self.running:
            self._whole_sandbox = whole_sandbox
            self.unaccounted_s += self._charge({*pids, *self._allowed})

    def stopped(self) -> None:
        """The turn is over and everything stopped again."""
        if self.running:
            # The same reading for everyone, lest it make calls of one side shorter than those of the other.
            unaccounted_s = self._charge(self._allowed)
            if not self._whole_sandbox:
                self.unaccounted_s += unaccounted_s

    def end(self) -> None:
        """Others may run again."""
        if self.running:
            self.unaccounted_s += self._charge(())
        self.running = False

    def _charge(self, pids: Iterable[int]) -> float:
        """Seconds that the sandbox has used since the last reading, but for the referee and those read now and then.

        From here on, these processes' time is accounted for.
        """
        total, own = self._accounts_ns()
        wanted = set(pids)
        now = {pid: self._used_ns(pid) for pid in wanted | self._spent.keys()}
        used = total - self._last[0] - (own - self._last[1])
        used -= sum(max(0, now[pid] - spent) for pid, spent in self._spent.items())  # an ended process counts as 0
        self._last = total, own
        self._spent = {pid: now[pid] for pid in wanted}
        return used / 1e9

    def _accounts_ns(self) -> tuple[int, int]:
        """Processor time of the sandbox and of the referee's thread."""
        assert self._account is not None and self._own is not None
        text = os.pread(self._account, 4096, 0)
        start = text.index(self._prefix) + len(self._prefix)
        return int(text[start:].split(None, 1)[0]) * self._scale, int(os.pread(self._own, 64, 0).split()[0])

    def _used_ns(self, pid: int) -> int:
        return cpu_time_ns(pid)
