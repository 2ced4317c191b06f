"""Reads from the store what a new job is told of earlier ones, and finds in its events what it was told.

Every job may be read by every user (docs/access.md), but a prompt leaves for a model's provider. So the kernels in it
are those of the user's own jobs, and those for ops of shared suites. Lessons hold no code and come from all jobs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from agents.builtin.candidate_file import without_runtime
from agents.builtin.compiler import describe_feature, features_of_candidate
from agents.lessons import JudgedCandidate, distil, features_of
from agents.llm.models import is_builtin
from agents.memory import (
    MAX_KERNEL_CHARS,
    MAX_KERNELS,
    MAX_LESSONS,
    NO_MEMORY,
    KnownKernel,
    KnownLesson,
    Memory,
    MemoryMode,
)
from agents.prompting.builder import shorten
from agents.prompting.prompt_pack import PromptPack
from agents.protocols import Event
from db.evaluations import proven, results
from db.evaluations.proven import TaskSource
from db.records import JudgedRecord, RankedKernel
from db.types import utc_now
from tasks.likeness import Traits, likeness, rarity, traits_of
from tasks.outcomes import Verdict, clock_of, is_reliable
from tasks.restrict import split_ref
from tasks.task import LOCAL_SUITE, REGION_SUITE, Task

MEMORY = "memory"
"""The option of a job that says what it is told of earlier jobs, and its event that holds what it was told."""

MAX_CITED = 8  # ids of evaluations in a line
MIN_LIKENESS = 0.15
OTHER_DEVICE = 0.7  # factor on the likeness of ops of which one was measured on another device
_SUITE_NUMBER = re.compile(r"^[0-9]+_+(?=.)")
_OWN_SUITES = (LOCAL_SUITE, REGION_SUITE)


def told_memory(events: Iterable[Event]) -> Memory | None:
    """What a job was told when it began; None if it has not begun.

    A job that was begun by a version without memory was told nothing.
    """
    begun = False
    for event in events:
        if event.kind == MEMORY:
            return Memory.from_json(event.data)
        begun = begun or event.kind == "job_started"
    return NO_MEMORY if begun else None


@dataclass(frozen=True)
class ToldMemory:
    """What a job was told of earlier ones, and which of the evaluations that this rests on were taken back since."""

    memory: Memory = NO_MEMORY
    retracted: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, without the sources of the kernels: these are other jobs' candidates."""
        return {**without_sources(self.memory.to_json()), "retracted": sorted(self.retracted)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "ToldMemory":
        """The inverse of `to_json`; the sources are empty."""
        kernels = [{**each, "source": ""} for each in data["kernels"]]
        return ToldMemory(Memory.from_json({**data, "kernels": kernels}), frozenset(data.get("retracted", ())))

    @property
    def lines(self) -> tuple[str, ...]:
        """The kernels and lessons, each in one line with the ids of its evaluations."""
        return (
            *(f"kernel for {each.task}{self._cited(each.evaluation_id)}" for each in self.memory.kernels),
            *(f"lesson: {each.text}{self._cited(*each.evidence)}" for each in self.memory.lessons),
        )

    def _cited(self, *ids: str) -> str:
        shown = [f"{each}, retracted since" if each in self.retracted else each for each in ids[:MAX_CITED]]
        more = f" and {len(ids) - MAX_CITED} more" if len(ids) > MAX_CITED else ""
        return f" [{'; '.join(shown)}{more}]"


NOTHING_TOLD = ToldMemory()


def read_told(session: Session, events: Iterable[Event]) -> ToldMemory:
    """What a job was told, from its events."""
    told = told_memory(events) or NO_MEMORY
    return ToldMemory(told, results.retracted_among(session, sorted(told.evidence))) if told else NOTHING_TOLD


def without_sources(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a `memory` event without the sources of its kernels, whose hashes say which they are."""
    kernels = data.get("kernels")
    if not isinstance(kernels, list | tuple):
        return dict(data)
    kept = [{k: v for k, v in each.items() if k != "source"} for each in kernels if isinstance(each, Mapping)]
    return {**data, "kernels": kept}


def memory_counts(data: Mapping[str, Any]) -> str:
    """What the data of a `memory` event hold, in a few words: `2 kernels, 5 lessons`."""
    counts = ((len(data.get(f"{what}s") or ()), what) for what in ("kernel", "lesson"))
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)


def recall(
    session: Session, task: Task, *, mode: MemoryMode, platform: str, device: str, user: str, prompts: PromptPack
) -> Memory:
    """What the store knows that may help a job.

    Args:
        session: a transaction.
        task: the job's op.
        mode: which ops may be told of.
        platform: the job's.
        device: the name of the job's device, as evaluations have it.
        user: whose job it is.
        prompts: the platform's features.
    """
    if mode is MemoryMode.OFF:
        return NO_MEMORY
    own = traits_of(task.source, task.dtype)
    ranked = [each for each in proven.list_ranked(session, platform) if _may_show(each, user)]
    judged = proven.list_judged(session, platform, device)
    task_ids = {each.task_id for each in ranked} | {each.task_id for each in judged}
    stored = proven.list_task_sources(session, task_ids)
    traits = {task_id: traits_of(each.source, each.dtype) for task_id, each in stored.items()}
    namesakes = {task_id for task_id, each in stored.items() if _are_namesakes(task, each)}
    ops = _Ops(own, traits, frozenset(namesakes), mode)
    kernels = _kernels(session, ranked, ops, device)
    lessons = _lessons(session, judged, ops, prompts)
    return Memory(mode, kernels, lessons, utc_now().isoformat(timespec="seconds"))


@dataclass(frozen=True)
class _Ops:
    """The job's op and the stored ones, by the ids of their tasks. `namesakes` are those that have the job's name."""

    own: Traits
    stored: dict[int, Traits]
    namesakes: frozenset[int]
    mode: MemoryMode

    def is_own(self, task_id: int) -> bool:
        """Whether a task is the job's own op, perhaps with other sizes."""
        return self.stored[task_id].code == self.own.code

    def wanted(self, task_id: int) -> bool:
        """Whether the job may be told of a task."""
        if self.mode is MemoryMode.ALL:
            return task_id in self.stored
        return task_id in self.stored and not self.is_own(task_id) and task_id not in self.namesakes

    def likenesses(self) -> dict[int, float]:
        """How alike each task is to the job's op."""
        weights = rarity([self.own, *self.stored.values()])
        return {task_id: likeness(self.own, traits, weights) for task_id, traits in self.stored.items()}


def _are_namesakes(task: Task, stored: TaskSource) -> bool:
    """Whether two tasks are one op by their names, as `19_ReLU` of several suites.

    Users name their own ops as they like, so the names of two of those say nothing.
    """
    shared = any(split_ref(suite)[0] not in _OWN_SUITES for suite in (task.suite, stored.suite))
    return shared and _op_name(task.name) == _op_name(stored.name)


def _op_name(name: str) -> str:
    """A task's name without the number that a suite gave it."""
    return _SUITE_NUMBER.sub("", name).casefold()


def _may_show(kernel: RankedKernel, user: str) -> bool:
    return kernel.user == user or split_ref(kernel.suite)[0] not in _OWN_SUITES


def _kernels(session: Session, ranked: Sequence[RankedKernel], ops: _Ops, device: str) -> tuple[KnownKernel, ...]:
    """The best kernels of the most similar ops, one an op, the most similar last."""
    alike = ops.likenesses()

    def worth(kernel: RankedKernel) -> tuple[bool, float, float]:
        same_device = 1.0 if kernel.device == device else OTHER_DEVICE
        return (ops.is_own(kernel.task_id), alike[kernel.task_id] * same_device, kernel.speedup)

    useful = [
        each
        for each in ranked
        if ops.wanted(each.task_id) and "custom_kernel" in each.tags and alike[each.task_id] >= MIN_LIKENESS
    ]
    best: dict[str, RankedKernel] = {}
    for each in sorted(useful, key=lambda kernel: (worth(kernel), kernel.evaluation_id), reverse=True):
        best.setdefault(ops.stored[each.task_id].code, each)
    chosen = list(best.values())[:MAX_KERNELS]
    sources = proven.list_sources(session, {(each.job_id, each.candidate_hash) for each in chosen})
    return tuple(
        _known(each, sources[each.job_id, each.candidate_hash], alike[each.task_id], ops.is_own(each.task_id))
        for each in reversed(chosen)
        if (each.job_id, each.candidate_hash) in sources
    )


def _known(kernel: RankedKernel, source: str, alike: float, is_own: bool) -> KnownKernel:
    shown = shorten(without_runtime(source), MAX_KERNEL_CHARS)
    return KnownKernel(
        task=kernel.task,
        same_op=is_own,
        likeness=round(alike, 3),
        speedup=kernel.speedup,
        low=kernel.speedup_low,
        high=kernel.speedup_high,
        device=kernel.device,
        model=kernel.model,
        evaluation_id=kernel.evaluation_id,
        job_id=kernel.job_id,
        candidate_hash=kernel.candidate_hash,
        source=shown,
        shortened=shown != source,
        timed=clock_of(kernel.tags).note,
    )


def _lessons(
    session: Session, judged: Sequence[JudgedRecord], ops: _Ops, prompts: PromptPack
) -> tuple[KnownLesson, ...]:
    """The lessons of the evaluations on the job's device."""
    alike = ops.likenesses()
    useful = [
        each
        for each in judged
        if ops.wanted(each.task_id) and (each.verdict != Verdict.PASSED or is_reliable(each.tags))
    ]
    builtin = {each.job_id for each in useful if is_builtin(each.model or "")}
    keys = {(each.job_id, each.candidate_hash) for each in useful}
    sources = proven.list_sources(session, {key for key in keys if key[0] in builtin}, head=True)
    sources |= proven.list_sources(session, {key for key in keys if key[0] not in builtin})
    features = {
        key: features_of_candidate(source) if key[0] in builtin else features_of(source, prompts.features)
        for key, source in sources.items()
    }
    found = distil(
        [
            _judged(each, features[each.job_id, each.candidate_hash], ops, alike[each.task_id] >= MIN_LIKENESS)
            for each in useful
            if (each.job_id, each.candidate_hash) in features
        ],
        lambda name: prompts.features[name].says if name in prompts.features else describe_feature(name),
    )
    return tuple(found[:MAX_LESSONS])


def _judged(record: JudgedRecord, features: frozenset[str], ops: _Ops, alike: bool) -> JudgedCandidate:
    champion = record.champion or {}
    speedup = champion.get("speedup") or {}
    return JudgedCandidate(
        evaluation_id=record.evaluation_id,
        job_id=record.job_id,
        op=ops.stored[record.task_id].code,
        candidate_hash=record.candidate_hash,
        features=features,
        verdict=record.verdict,
        bound=record.bound,
        champion_hash=champion.get("candidate"),
        gain=speedup.get("value"),
        decision=champion.get("decision"),
        alike=alike,
    )
