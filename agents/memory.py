"""What earlier jobs have proven and a job is told: kernels for similar ops, and lessons. It is kept with the job.

The service reads them from the store before the job's first prompt. From then on the job has this record alone, so that
its prompts stay the same when it is resumed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from agents.protocols import JSON

MAX_KERNELS = 2
MAX_KERNEL_CHARS = 12_000  # of one kernel in a prompt
MAX_LESSONS = 10
SHOWN_EVIDENCE = 3  # ids of a lesson in prompts; the job's record has more


class MemoryMode(StrEnum):
    """What a job is told of earlier jobs."""

    OFF = "off"  # nothing
    SIMILAR = "similar"  # kernels for other ops, and lessons from jobs on other ops
    ALL = "all"  # those for this op, too


@dataclass(frozen=True)
class KnownKernel:
    """A proven kernel for a similar op.

    Attributes:
        task: the op, as `suite/name`.
        same_op: whether it is the job's own op, perhaps with other sizes.
        likeness: of the two ops, from 0 to 1.
        speedup, low, high: over eager, with the 95 % interval.
        evaluation_id, job_id, candidate_hash: what the figures rest on.
        source: as it is shown. `shortened` says whether anything is left out.
        timed: what the figures are if they are no times (`tasks.outcomes.Clock.note`).
    """

    task: str
    same_op: bool
    likeness: float
    speedup: float
    low: float
    high: float
    device: str
    model: str
    evaluation_id: str
    job_id: int
    candidate_hash: str
    source: str
    shortened: bool
    timed: str = ""


@dataclass(frozen=True)
class KnownLesson:
    """What a way to write kernels has gained or cost, by paired trials and verdicts of earlier jobs.

    Attributes:
        feature: its name; a variation of builtin/compiler has the variation's.
        says: what it is, in a few words.
        bound: what limits the ops that it was tried on (memory, cache, compute); None: not known.
        gain: how many times as fast kernels were with it, a geometric mean over jobs; None: it was refused.
        lowest, highest: of the jobs' means.
        verdict: of `gain` None, the verdict of candidates that it was added to.
        jobs: those in which two candidates differed in it alone.
        faster, slower: those of them in which it won, and lost; for a refusal `slower` counts the jobs with one.
        alike: jobs on ops that are similar to this job's.
        ops: different ops among them.
        evidence: ids of the evaluations that it rests on.
    """

    feature: str
    says: str
    bound: str | None
    gain: float | None
    lowest: float | None
    highest: float | None
    verdict: str | None
    jobs: int
    faster: int
    slower: int
    alike: int
    ops: int
    evidence: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lesson as a sentence."""
        on = f"{self.ops} op{'' if self.ops == 1 else 's'}"
        on = f"on {on}" if self.bound is None else f"on {on} bound by {self.bound}"
        if self.gain is None or self.lowest is None or self.highest is None:
            return f"{self.says}: {self.verdict} in {self.slower} of {self.jobs} jobs in which it was added, {on}"
        how = f"{self.gain:.2f} times as fast ({self.lowest:.2f} to {self.highest:.2f})"
        won = f"faster in {self.faster}, slower in {self.slower} of {self.jobs} jobs"
        return f"{self.says}: {how}, {won}, {on}"


@dataclass(frozen=True)
class Memory:
    """What a job is told. `read_at` is when it was read from the store, in ISO form."""

    mode: MemoryMode = MemoryMode.OFF
    kernels: tuple[KnownKernel, ...] = ()
    lessons: tuple[KnownLesson, ...] = ()
    read_at: str = ""

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.kernels or self.lessons)

    @property
    def evidence(self) -> frozenset[str]:
        """The ids of all evaluations that it rests on."""
        own = {kernel.evaluation_id for kernel in self.kernels}
        return frozenset(own.union(*(lesson.evidence for lesson in self.lessons)))

    def to_json(self) -> dict[str, JSON]:
        """All fields as plain JSON values."""
        return {
            "mode": self.mode.value,
            "read_at": self.read_at,
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "lessons": [{**asdict(lesson), "evidence": list(lesson.evidence)} for lesson in self.lessons],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Memory":
        """The inverse of `to_json`. Unknown keys are ignored.

        Raises:
            KeyError, TypeError, ValueError: `to_json` did not write it.
        """
        lessons = (_known(KnownLesson, each) for each in data["lessons"])
        return Memory(
            MemoryMode(data["mode"]),
            tuple(KnownKernel(**_known(KnownKernel, each)) for each in data["kernels"]),
            tuple(KnownLesson(**{**each, "evidence": tuple(each["evidence"])}) for each in lessons),
            str(data.get("read_at", "")),
        )


NO_MEMORY = Memory()


def kernels_text(kernels: Sequence[KnownKernel]) -> str:
    """The kernels as prompts show them, the most useful last."""
    return "\n\n".join(
        f"# Kernel {number} of {len(kernels)}: {_about(kernel)}\n{kernel.source.rstrip()}"
        for number, kernel in enumerate(kernels, start=1)
    )


def lessons_json(lessons: Sequence[KnownLesson]) -> list[JSON]:
    """The lessons as prompts show them, one object each. `times_as_fast` is left out of a refusal."""
    return [
        {
            "feature": lesson.feature,
            **({} if lesson.bound is None else {"bound": lesson.bound}),
            **({} if lesson.gain is None else {"times_as_fast": round(lesson.gain, 3)}),
            "text": lesson.text,
            "evidence": [each[:12] for each in lesson.evidence[:SHOWN_EVIDENCE]],
        }
        for lesson in lessons
    ]


def gains_of(told: object, bound: str | None) -> dict[str, float]:
    """What features gained by lessons as prompts show them: of ops with this bound, or the least of all bounds.

    Args:
        told: what `lessons_json` gave. It may come from a prompt, so any content is read.
        bound: what limits the op; None: not known yet.
    """
    found: dict[str, list[float]] = {}
    for lesson in told if isinstance(told, Sequence) and not isinstance(told, str) else ():
        if not isinstance(lesson, Mapping) or bound not in (None, lesson.get("bound")):
            continue
        gain = lesson.get("times_as_fast")
        if isinstance(gain, int | float) and not isinstance(gain, bool) and 0.01 <= gain <= 100:
            found.setdefault(str(lesson.get("feature")), []).append(float(gain))
    return {feature: min(gains) for feature, gains in found.items()}


def _about(kernel: KnownKernel) -> str:
    what = "this very op" if kernel.same_op else f"another op, {kernel.task} (likeness {kernel.likeness:.2f})"
    speed = f"{kernel.speedup:.2f} times as fast as eager ({kernel.low:.2f} to {kernel.high:.2f}) on {kernel.device}"
    speed += f", {kernel.timed}" if kernel.timed else ""
    cut = ", shortened: this is not the whole file" if kernel.shortened else ""
    about = f"for {what}, {speed}, evaluation {kernel.evaluation_id[:12]}{cut}"
    return "".join(char if char.isprintable() else " " for char in about)


def _known(kind: type[KnownKernel] | type[KnownLesson], data: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
