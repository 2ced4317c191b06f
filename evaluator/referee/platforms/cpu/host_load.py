"""How busy everything else kept this machine while something was timed."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...isolation.procfs import descendants
from .proc_stat import TICKS_A_S, busy_s

NOISY_CORES = 0.25  # kept busy by others while calls were timed


@dataclass
class LoadMeter:
    """Sums up intervals between `begin` and `end`.

    /proc/stat counts the whole machine, container or not; what this evaluation's own processes used is taken off.
    """

    wall_s: float = 0.0
    others_s: float = 0.0
    known: bool = True
    _start: tuple[float, float] | None = None

    def begin(self) -> None:
        """An interval begins."""
        self._start = (time.monotonic(), self._others())

    def end(self) -> None:
        """It ends."""
        assert self._start is not None
        self.wall_s += time.monotonic() - self._start[0]
        self.others_s += self._others() - self._start[1]

    def others_cores(self) -> float | None:
        """How many cores others kept busy on average; None where that cannot be told."""
        if not self.known or self.wall_s <= 0:
            return None
        return max(0.0, self.others_s / self.wall_s)

    def is_noisy(self) -> bool:
        """Whether others kept more than a quarter of a core busy."""
        others = self.others_cores()
        return others is not None and others > NOISY_CORES

    def facts(self) -> dict[str, Any]:
        """How many cores others kept busy; None where that cannot be told."""
        others = self.others_cores()
        return {"others_cores_busy": None if others is None else round(others, 2)}

    def _others(self) -> float:
        busy = busy_s()
        if busy is None:
            self.known = False
            return 0.0
        return busy - own_s()


def own_s() -> float:
    """Processor time of this process and everything below it, those that have ended included."""
    total = 0
    for pid in descendants([os.getpid()]):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS_A_S
