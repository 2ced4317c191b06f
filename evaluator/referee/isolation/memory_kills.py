"""How often the kernel has killed a process of this sandbox because its memory was used up, and in whose turn.

The kernel keeps a count for the control group (cgroups(7)). It does not tell whom it killed: often the largest process,
whoever asked for memory.
"""

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_KEY = b"oom_kill "


def _files(name: str, name_1: str) -> Iterator[Path]:
    """Where a file of the group's may lie: in the group's own folder, or at the top, which in a container is its own.

    Args:
        name: its name in version 2 of control groups.
        name_1: its name in version 1.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield _MOUNT / path.lstrip("/") / name
            elif "memory" in controllers.split(","):
                yield _MOUNT / "memory" / path.lstrip("/") / name_1
    yield _MOUNT / name
    yield _MOUNT / "memory" / name_1


def used_bytes() -> int:
    """The memory of this sandbox that no process can be asked to do without: that of processes, and shared memory.

    Files in memory count whoever has them open, mapped or not. 0 where the kernel does not tell.
    """
    for path in _files("memory.stat", "memory.stat"):
        with contextlib.suppress(OSError, ValueError):
            found = {name: int(number) for name, number in map(str.split, path.read_text().splitlines())}
            anonymous = found.get("anon", found.get("total_rss"))  # versions 2 and 1
            if anonymous is not None:
                return anonymous + found.get("total_shmem", found.get("shmem", 0))
    return 0


@dataclass
class MemoryKills:
    """The kills since this was made.

    Attributes:
        in_turns: how many there were in turns of each role, while nothing else ran.
        beside: how many there were in turns of each role while others ran beside it, so that they say nothing of it.
    """

    in_turns: Counter[str] = field(default_factory=Counter)
    beside: Counter[str] = field(default_factory=Counter)
    _others: int = 0  # how many threads have others run beside whoever's turn it is
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _file: int | None = None
    _before: int = 0

    def __post_init__(self) -> None:
        """Find the count; without one, no kill is ever seen."""
        for name in _files("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                self._file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
                if _KEY in os.pread(self._file, 4096, 0):
                    break
                os.close(self._file)
                self._file = None
        self._before = self._read()

    def count(self) -> int:
        """How many there have been."""
        return self._read() - self._before

    def note_turn(self, role: str, before: int) -> int:
        """Note a turn of this role's that has ended, before which there had been so many kills; how many there are."""
        now = self.count()
        if now > before:
            (self.beside if self._others else self.in_turns)[role] += now - before
        return now

    @contextlib.contextmanager
    def others_run(self) -> Iterator[None]:
        """A context in which others run beside whoever's turn it is, so that a kill says nothing of the turn."""
        with self._lock:
            self._others += 1
        try:
            yield
        finally:
            with self._lock:
                self._others -= 1

    def _read(self) -> int:
        if self._file is None:
            return 0
        text = os.pread(self._file, 4096, 0)
        at = text.find(b"\n" + _KEY) + 1
        return int(text[at + len(_KEY) :].split(None, 1)[0]) if at or text.startswith(_KEY) else 0
