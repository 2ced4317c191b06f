"""Runs of recorded launches that are made again, and what they leave in memory."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ....protocol.framing import Message

if TYPE_CHECKING:
    from ...main import Runner


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        what: `forward` and the other orders, `configuration N`, or the name of a check.
        found: `` (nothing), `fault`, `race`, `out_of_bounds`, `died`, `timed_out` or `not_run`.
        text: what it says of that.
        seconds: how long it ran.
    """

    what: str
    found: str
    text: str
    seconds: float


@dataclass(frozen=True)
class RunLimit:
    """How long a run may take: in time of processors, so that it ends no sooner where others use them, too.

    Attributes:
        cpu_s: the most time of processors.
        until: the latest end, by `time.monotonic`.
    """

    cpu_s: float
    until: float

    def is_over(self, pid: int, began: float) -> bool:
        """Whether a process that began then has to be ended. It gets at most four times its limit of time."""
        now = time.monotonic()
        return now > min(self.until, began + 4 * self.cpu_s) or cpu_seconds(pid) > self.cpu_s

    @property
    def told(self) -> str:
        """What is said of a run that was ended."""
        return f"no end within {self.cpu_s:g} s of processor time"


def cpu_seconds(pid: int) -> float:
    """The time of processors that a process has used, with its children that have ended; 0 for one that is not there.

    By `/proc/PID/stat` (man 5 proc: fields 14 to 17, in ticks).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def held(
    runner: "Runner", places: Sequence[tuple[int, int]], memory: dict[str, dict[tuple[int, int], bytes]]
) -> Message:
    """Reveal what the memory of outputs holds after each run that wrote all of them.

    Args:
        runner: the runner that answers.
        places: address and bytes of each output.
        memory: by run, the bytes at each of these.
    """
    tensors = {
        order: [torch.frombuffer(bytearray(left[place]), dtype=torch.uint8) for place in places if left.get(place)]
        for order, left in memory.items()
        if all(left.get(place) for place in places)
    }
    return {
        "orders": list(tensors),
        "tree": runner.reveal([each for values in tensors.values() for each in values])["tree"],
    }
