"""The phases of an evaluation: what the referee's lines of progress say of them, and how long they took."""

from collections.abc import Mapping
from dataclasses import dataclass

QUEUED = "queued"
WAITING = "waiting"
STARTING = "starting"
TIMING = "timing"
PROFILING = "profiling"


@dataclass(frozen=True)
class Phase:
    """A phase.

    Attributes:
        name: its name.
        doing: what is done in it, in words.
        lines: how the referee's lines of progress begin in it.
        stages: the stages of an evaluation's `cost_s` that belong to it.
    """

    name: str
    doing: str
    lines: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()


PHASES = (
    Phase(QUEUED, "waiting in the queue for the device"),
    Phase(WAITING, "waiting for the device", ("waiting for the device",)),
    Phase("searching", "the built-in compiler is at work on the device", ("at work on the device",)),
    Phase(
        STARTING,
        "starting, running the reference",
        ("the device is free", "running the reference", "checking the source kernel"),
        ("start", "import", "reference", "source_kernel", "inputs"),
    ),
    Phase("building", "building the candidate", ("building the candidate",), ("build",)),
    Phase("checking", "checking outputs", ("checking outputs",), ("correctness",)),
    Phase(
        "screening",
        "screening without the device",
        ("checking for races", "compiling for GPUs", "looking for the cause"),
        ("screening",),
    ),
    Phase("baselines", "checking baselines", ("checking the baseline",), ("baselines",)),
    Phase(TIMING, "timing", ("timing,",), ("timing", "limits")),
    Phase("varying", "trying other inputs", ("trying other inputs",), ("neighbours",)),
    Phase(PROFILING, "profiling", ("profile:",), ("profile",)),
)
"""All phases, in their order. In the first two nothing runs yet."""

BEFORE = (QUEUED, WAITING)
"""The phases in which the device is another's."""

_DOING = {phase.name: phase.doing for phase in PHASES}


def phase_of_line(line: str) -> str | None:
    """The phase that begins with, or goes on in, a line of progress; None: the line tells of none."""
    return next((phase.name for phase in PHASES if line.startswith(phase.lines)), None)


def doing(phase: str) -> str:
    """What is done in a phase, in words; of a phase of another version its name."""
    return _DOING.get(phase, phase)


def phase_seconds(cost_s: Mapping[str, float]) -> dict[str, float]:
    """How long each phase of an evaluation took, by its `cost_s`; phases that it did not have are left out."""
    found = {phase.name: [cost_s[name] for name in phase.stages if name in cost_s] for phase in PHASES}
    return {name: sum(parts) for name, parts in found.items() if parts}
