"""Scales tasks down until they fit a limit: the rule of `tasks.fit`, with each step tried in a sandbox."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from evaluator.sizes import CallSizes, Ladder, Measured, measure_sizes
from sandbox.base import Sandbox
from tasks.fit import (
    MAX_STEPS,
    Constant,
    Limit,
    Step,
    Way,
    constants_of,
    halvings,
    variant,
    variant_of_cases,
    with_values,
)
from tasks.shape_cases import cases_of
from tasks.task import Task, TaskError

AT_ONCE = 24
"""Tasks that are measured in one sandbox. What is found out of them is kept together."""


@dataclass(frozen=True)
class FitResult:
    """What came of a task: its variant, or why there is none.

    Attributes:
        task: the task.
        variant: its variant in the suite of the limit.
        problem: why there is none.
        before: what a call of the task touches; for a task with cases, the largest of them.
        after: what a call of the variant touches, likewise.
    """

    task: Task
    variant: Task | None
    problem: str
    before: CallSizes | None
    after: CallSizes | None


def fit_tasks(
    tasks: Sequence[Task],
    limit: Limit,
    *,
    sandbox: Sandbox,
    memory_mb: int,
    on_progress: Callable[[int], None],
    cancel: threading.Event | None = None,
) -> Iterator[list[FitResult]]:
    """Scale tasks down, some at a time. `on_progress` is called with the number of tasks that are done.

    Raises:
        MeasuringFailed, MeasuringCancelled, SandboxUnavailable: as `measure_sizes`.
    """
    for first in range(0, len(tasks), AT_ONCE):
        walks = [_Walk(task, limit) for task in tasks[first : first + AT_ONCE]]
        while waiting := [walk for walk in walks if walk.result is None]:
            told = partial(_tell, on_progress, first + len(walks) - len(waiting))
            measured = measure_sizes(
                [walk.ladder() for walk in waiting],
                sandbox=sandbox,
                limit_bytes=limit.limit_bytes,
                memory_mb=memory_mb,
                on_progress=told,
                cancel=cancel,
            )
            for walk, found in zip(waiting, measured, strict=True):
                walk.take(found)
        yield [walk.result for walk in walks if walk.result is not None]


def _tell(on_progress: Callable[[int], None], ended: int, count: int) -> None:
    on_progress(ended + count)


@dataclass
class _Walk:
    """One task on its way down: which constants have which values, and which are left alone from here on."""

    task: Task
    limit: Limit
    constants: tuple[Constant, ...] = ()
    values: dict[Constant, int] = field(default_factory=dict)
    left_alone: frozenset[Constant] = frozenset()
    way: Way = "together"
    before: CallSizes | None = None
    failed: list[str] = field(default_factory=list)  # names of constants with less of which it fails or is no smaller
    last_failure: str = ""
    result: FitResult | None = None

    def __post_init__(self) -> None:
        self.cases = cases_of(self.task.source)
        self.constants = () if self.cases else constants_of(self.task.source)
        self.values = {each: each.value for each in self.constants}
        self._steps: list[Step] = []

    def ladder(self) -> Ladder:
        """What is to be measured next: the task as it is now, and each further step of the rule."""
        if self.cases:
            return Ladder((self.task.source,), groups=True)
        self._steps = list(islice(halvings(self.constants, self.values, self.left_alone, self.way), MAX_STEPS))
        states = [self.values, *(values for _, values in self._steps)]
        return Ladder(tuple(self._source(state) for state in states))

    def take(self, found: Measured) -> None:
        """Take what was measured: the task is done, or goes on from where a step did not help."""
        if self.cases:
            self._take_cases(found)
            return
        if not found.sizes or found.sizes[0].inputs is None:
            why = found.error or (found.sizes[0].error if found.sizes else "") or "nothing was told"
            self._refuse(f"its inputs cannot be made in a sandbox: {why}")
            return
        now = found.sizes[0]
        self.before = self.before or now
        if self._fits(now):
            self._finish(now)
            return
        for (halved, values), sizes in zip(self._steps, found.sizes[1:], strict=False):
            failed = sizes.inputs is None or (sizes.outputs is None and (now.outputs is not None or self._small(sizes)))
            if failed or not _is_less(sizes, now):
                self.last_failure = sizes.error if failed else self.last_failure
                self._leave_alone(halved)
                return
            now, self.values = sizes, values
            if self._fits(now):
                self._finish(now)
                return
        error = found.error if len(found.sizes) <= len(self._steps) else ""
        if self.left_alone and self.way != "alike" and not error:
            self.way, self.left_alone = "alike", frozenset()
        else:
            self._give_up(now, error)

    def _leave_alone(self, halved: tuple[Constant, ...]) -> None:
        """Go on without a step that did not help: its constants apart from each other, or none of them."""
        self.failed += [each.name for each in halved if each.name not in self.failed]
        if self.way == "together" and len({self.values[each] for each in halved}) > 1:
            self.way = "apart"
        else:
            self.left_alone |= frozenset(halved)

    def _take_cases(self, found: Measured) -> None:
        known = [each for each in found.sizes if each.moved is not None]
        self.before = max(known, key=lambda each: each.moved or 0, default=None)
        kept = [number for number, each in enumerate(found.sizes) if self._fits(each)]
        if not kept:
            errors = [each.error for each in found.sizes if each.error]
            least = min((each.moved or 0 for each in known), default=None)
            why = found.error or (errors[0] if errors else f"a call of the smallest moves {_mb(least)}")
            self._refuse(f"none of its {len(self.cases)} cases fits: {why}")
            return
        after = max((found.sizes[number] for number in kept), key=lambda each: each.moved or 0)
        self._build(lambda: variant_of_cases(self.task, self.limit, kept), after)

    def _finish(self, after: CallSizes) -> None:
        self._build(lambda: variant(self.task, self.limit, self.values), after)

    def _build(self, build: Callable[[], Task], after: CallSizes) -> None:
        try:
            self.result = FitResult(self.task, build(), "", self.before, after)
        except TaskError as error:
            self._refuse(str(error).removeprefix(f"{self.task.id}: "))

    def _give_up(self, now: CallSizes, error: str) -> None:
        if now.moved is None and self._small(now):
            self._refuse(f"fails in a sandbox: {now.error}")
            return
        size = f"its inputs have {_mb(now.inputs)}" if now.moved is None else f"a call moves {_mb(now.moved)}"
        if error:
            why = error
        elif not self.constants:
            why = "no integer at the top level of its file sets their sizes"
        else:
            least = ", ".join(f"{each.name} {self.values[each]}" for each in self.constants)
            why = f"the rule goes no further down than {least}"
        if self.failed and not error:
            told = f" ({self.last_failure})" if self.last_failure else ""
            why += f"; less of {', '.join(self.failed)} fails or does not help{told}"
        self._refuse(f"{size}, and {why}")

    def _refuse(self, problem: str) -> None:
        self.result = FitResult(self.task, None, problem, self.before, None)

    def _source(self, values: dict[Constant, int]) -> str:
        changed = {each: value for each, value in values.items() if value != each.value}
        return with_values(self.task.source, changed) if changed else self.task.source

    def _fits(self, sizes: CallSizes) -> bool:
        return sizes.moved is not None and sizes.moved <= self.limit.limit_bytes

    def _small(self, sizes: CallSizes) -> bool:
        """Whether the inputs alone would fit, so that the op was called with real tensors if need be."""
        return sizes.inputs is not None and sizes.inputs <= self.limit.limit_bytes


def _is_less(sizes: CallSizes, before: CallSizes) -> bool:
    if sizes.moved is not None and before.moved is not None:
        return sizes.moved < before.moved
    return sizes.inputs is not None and before.inputs is not None and sizes.inputs < before.inputs


def _mb(count: int | None) -> str:
    return "an unknown size" if count is None else f"{count / 1e6:,.0f} MB"
