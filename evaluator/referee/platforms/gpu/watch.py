"""What the referee sees of the GPU while calls are timed: clocks, heat, what holds clocks down, who else computes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...protocol.nvml import NvmlError, State, disturbs, opened, reasons_text, strangers
from ..base import InterferenceMeter


@dataclass(frozen=True)
class Seen:
    """One look: the device's state, and the pids of those who have a context there (None: NVML does not tell)."""

    state: State
    users: tuple[int, ...] | None


Look = Callable[[], Seen | None]


def look_at(uuid: str) -> Seen | None:
    """A look at a GPU; None where NVML is not there."""
    try:
        with opened() as nvml:
            state = nvml.state(uuid)
            try:
                users: tuple[int, ...] | None = tuple(each.pid for each in nvml.users(uuid))
            except NvmlError:
                users = None
            return Seen(state, users)
    except NvmlError:
        return None


@dataclass
class GpuMeter:
    """See `base.InterferenceMeter`: the device is looked at where an interval begins and ends.

    Attributes:
        host: the meter of the host's processor, on which launches depend.
        look: looks at the device.
        before: who computed on it before the evaluation began.
        ours: the pids of the evaluation's own processes.
        running: whether an interval has begun and not ended.
    """

    host: InterferenceMeter
    look: Look
    before: tuple[int, ...]
    ours: Callable[[], list[int]]
    running: bool = False
    seen: list[Seen] = field(default_factory=list)
    others: set[int] = field(default_factory=set)

    def begin(self) -> None:
        """An interval begins."""
        self._look()
        self.host.begin()
        self.running = True

    def end(self) -> None:
        """The interval ends."""
        self.running = False
        self.host.end()
        self._look()

    def is_noisy(self) -> bool:
        """Whether others computed on the device, heat or power held its clocks down, or the host was too busy."""
        held = any(disturbs(each.state.reasons) for each in self.seen)
        return bool(self.others) or held or self.host.is_noisy()

    def facts(self) -> dict[str, Any]:
        """Figures for the profile."""
        return {**self.host.facts(), "gpu": facts_of(self.seen, sorted(self.others))}

    def _look(self) -> None:
        found = self.look()
        if found is not None:
            self.seen.append(found)
            self.others.update(strangers(self.before, found.users or (), self.ours()))


def facts_of(seen: list[Seen], others: list[int]) -> dict[str, Any]:
    """What several looks come to: lowest and highest figures, all reasons for low clocks, and who else computed."""
    found: dict[str, Any] = {"looks": len(seen)}
    for name in ("clock_mhz", "memory_clock_mhz", "temperature_c", "power_w"):
        values = [value for each in seen if (value := getattr(each.state, name)) is not None]
        found[name] = [min(values), max(values)] if values else None
    reasons = 0
    for each in seen:
        reasons |= each.state.reasons
    found["clocks_held_by"] = reasons_text(reasons)
    told = [each for each in seen if each.users is not None]
    found["others"] = others if told else None
    return found
