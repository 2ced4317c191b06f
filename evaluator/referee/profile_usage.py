"""What the kernel counts about a stopped process, read from outside: no claim of the process itself."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Processor time by thread (seconds), page faults so far, memory now and at most (bytes)."""

    threads_s: dict[int, float]
    minor_faults: int
    major_faults: int
    memory_bytes: int
    peak_memory_bytes: int


def read(pid: int) -> Usage:
    """The present figures of a process.

    Raises:
        OSError: it is gone.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory = dict.fromkeys(("VmRSS", "VmHWM"), 0)
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in memory:
            memory[key] = int(value.split()[0]) << 10
    return Usage(_threads(pid), int(fields[7]), int(fields[9]), memory["VmRSS"], memory["VmHWM"])


def _threads(pid: int) -> dict[int, float]:
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            found[int(name)] = _thread_s(Path(f"/proc/{pid}/task/{name}"))
    return found


def _thread_s(folder: Path) -> float:
    """To the nanosecond where the scheduler keeps it, else in ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_threads(before: Usage, after: Usage, seconds: float) -> list[float]:
    """Share of the time that each thread ran, for threads that ran at least 2 % of it, busiest first."""
    shares = [(spent - before.threads_s.get(thread, 0.0)) / seconds for thread, spent in after.threads_s.items()]
    return sorted((min(1.0, share) for share in shares if share >= 0.02), reverse=True)
