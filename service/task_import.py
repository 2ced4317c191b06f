"""Imports the tasks of a benchmark's clone, as they are or scaled down to a limit, and checks what was imported."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from sqlalchemy.orm import Session

from db.evaluations import tasks as stored
from db.store import Store
from evaluator.sizes import MeasuringCancelled, MeasuringFailed
from evaluator.task_check import TaskCheck
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest
from service.evaluation_context import open_sandbox
from service.fitting import FitResult, fit_tasks
from service.jobs.persistence import save_task
from service.settings import Settings
from service.tasks import check_tasks
from tasks.fit import RULE, Limit, fitted_of, fitted_suite
from tasks.importers import KINDS, ClonedFile, read_clone
from tasks.restrict import restrict, restricted_ref
from tasks.task import Task, TaskError
from tasks.text import task_error

Status = Literal["imported", "changed", "unchanged", "refused"]
STATUSES: tuple[Status, ...] = ("imported", "changed", "unchanged", "refused")

TOO_SHORT_MS = 0.2
"""Two exchanges that do no work take 0.1 to 0.2 ms. An op that is hardly slower gets no rank (docs/timing.md)."""


@dataclass(frozen=True)
class Selection:
    """Which tasks of a clone are meant, and what their suites are called.

    Attributes:
        suite: takes the place of the clone's kind in the names of suites, so that two versions stand side by side.
        only: names and patterns of tasks or suites, as the clone has them; none: all tasks.
        domain: the domain on which tasks are asked for (`tasks.restrict`).
    """

    suite: str | None = None
    only: tuple[str, ...] = ()
    domain: str | None = None

    def of(self, kind: str, root: Path) -> list[ClonedFile]:
        """The files of a clone that are meant.

        Raises:
            BadRequest: there is no such kind of clone.
            TaskError: the folder is no such clone, or nothing in it is meant.
        """
        if kind not in KINDS:
            raise BadRequest(f"tasks import {kind[:80]}: unknown; there is: {', '.join(KINDS)}")
        found = read_clone(kind, root, suite=self.suite)
        for pattern in self.only:
            if not any(_means(pattern, each) for each in found):
                suites = ", ".join(dict.fromkeys(each.suite for each in found if each.suite))
                what = f"names none of the {len(found)} files of {root}"
                raise task_error(f"--only {pattern[:80]}", what, f"name a task as suite/name, or one of: {suites}")
        return [each for each in found if not self.only or any(_means(pattern, each) for pattern in self.only)]


def _means(pattern: str, file: ClonedFile) -> bool:
    """Whether a pattern names a file: as suite, suite/name, name, or path in the clone."""
    return any(fnmatchcase(name, pattern) for name in (file.suite, f"{file.suite}/{file.name}", file.name, file.where))


@dataclass(frozen=True)
class ImportResult:
    """The result of importing one file of a clone. `fit` says how it was scaled down, if that was asked for now."""

    where: str
    status: Status
    task: Task | None = None
    problem: str = ""
    fit: FitResult | None = None


@dataclass(frozen=True)
class ImportCheck:
    """The check of an imported task. `problems` say why it cannot be used; `doubts`, why passing it proves little.

    `kept` says that it was checked earlier.
    """

    task: Task
    check: TaskCheck
    problems: tuple[str, ...]
    doubts: tuple[str, ...]
    kept: bool = False

    @property
    def degenerate(self) -> bool:
        """Whether passing it would prove little or nothing."""
        return bool(self.problems or self.doubts)


def import_clone(kind: str, root: Path, *, store: Store, selection: Selection = Selection()) -> list[ImportResult]:
    """Store the tasks of a clone, and compare each with the stored task of the same name.

    A changed task is stored beside its earlier source, which keeps its results. From then on the task's name stands for
    the new source.

    Raises:
        BadRequest: there is no such kind of clone.
        TaskError: the folder is no such clone, or nothing in it is meant.
    """
    found = _unique(selection.of(kind, root))
    with store.write() as session:
        return [_store(session, each, each.task, selection.domain) for each in found]


def import_fitted(
    kind: str,
    root: Path,
    limit: Limit,
    *,
    store: Store,
    settings: Settings,
    selection: Selection = Selection(),
    on_progress: Callable[[int, int], None],
    cancel: CancelToken,
) -> Iterator[list[ImportResult]]:
    """Store the tasks of a clone, scaled down to a limit (`tasks.fit`), some at a time, in suites of their own.

    A variant that the store has of the same source, limit and rule is left as it is, so a command that was stopped goes
    on where it was. `on_progress` is called with how many tasks of how many are done.

    Raises:
        BadRequest: there is no such kind of clone, or its tasks cannot be scaled down.
        TaskError: the folder is no such clone, or nothing in it is meant.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before the end.
    """
    if kind == "hpctranscompile":
        raise BadRequest("--fit: the kernels of hpctranscompile are written for the sizes of their ops; leave it out")
    files = _unique(selection.of(kind, root))
    with store.read() as session:
        known = {
            each.where: _known_variant(session, each.task, limit, selection.domain)
            for each in files
            if each.task is not None
        }
    yield [
        ImportResult(each.where, "refused", problem=each.problem)
        if each.task is None
        else ImportResult(each.where, "unchanged", known[each.where])
        for each in files
        if known.get(each.where) is not None or each.task is None
    ]
    waiting = [(each, each.task) for each in files if each.task is not None and known[each.where] is None]
    if not waiting:
        return
    with open_sandbox(settings, own_code_only=True) as sandbox, _cancelled():
        tried = fit_tasks(
            [task for _, task in waiting],
            limit,
            sandbox=sandbox,
            memory_mb=settings.memory_mb,
            on_progress=lambda count: on_progress(count, len(waiting)),
            cancel=cancel.event,
        )
        place = 0
        for results in tried:
            with store.write() as session:
                stored_now = [
                    _store(session, each, result.variant, selection.domain, problem=result.problem, fit=result)
                    for (each, _), result in zip(waiting[place:], results, strict=False)
                ]
            place += len(results)
            yield stored_now


@contextlib.contextmanager
def _cancelled() -> Iterator[None]:
    """Measuring that was cancelled, or that failed for want of a sandbox, is told in the service's words."""
    try:
        yield
    except MeasuringCancelled as cancelled:
        raise Cancelled from cancelled
    except MeasuringFailed as failure:
        raise SandboxUnavailable(
            f"{failure}.", "Try `kernelwright doctor`, or allow more KERNELWRIGHT_MEMORY_MB."
        ) from None


def _known_variant(session: Session, task: Task, limit: Limit, domain: str | None) -> Task | None:
    """The variant of a task that the store has by the present rule; None if it must be made."""
    suite, _, name = restricted_ref(f"{fitted_suite(task.suite, limit)}/{task.name}", domain).partition("/")
    record = stored.find_current(session, suite, name)
    fitted = None if record is None else fitted_of(record.source)
    if record is None or fitted is None or (fitted.source_hash, fitted.rule) != (task.source_hash, RULE):
        return None
    return record.to_task()


def _unique(found: Sequence[ClonedFile]) -> list[ClonedFile]:
    """The files, those refused whose task has the name of an earlier one."""
    seen: dict[str, str] = {}
    result: list[ClonedFile] = []
    for each in found:
        if each.task is not None and each.task.id in seen:
            each = replace(each, task=None, problem=f"has the same name as {seen[each.task.id]}")
        elif each.task is not None:
            seen[each.task.id] = each.where
        result.append(each)
    return result


def _store(
    session: Session,
    file: ClonedFile,
    task: Task | None,
    domain: str | None,
    *,
    problem: str = "",
    fit: FitResult | None = None,
) -> ImportResult:
    """Store a task of the clone and make it the current one of its name."""
    try:
        task = None if task is None else restrict(task, domain)
    except TaskError as error:
        task, problem = None, str(error)
    if task is None:
        return ImportResult(file.where, "refused", problem=problem or file.problem, fit=fit)
    before = stored.find_current(session, task.suite, task.name)
    task_id = save_task(session, task)
    if before is None:
        return ImportResult(file.where, "imported", task, fit=fit)
    if before.source_hash == task.source_hash:
        return ImportResult(file.where, "unchanged", task, fit=fit)
    stored.make_current(session, task_id)
    return ImportResult(file.where, "changed", task, fit=fit)


def check_imported(
    tasks: Sequence[Task],
    *,
    settings: Settings,
    on_progress: Callable[[str], None],
    cancel: CancelToken,
    again: bool = False,
) -> Iterator[ImportCheck]:
    """Run each task in a sandbox and say whether passing it would prove anything.

    Findings are kept on this host, and what was found out earlier is not found out again unless `again` says so.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before the end.
    """
    checked = check_tasks(tasks, settings=settings, on_progress=on_progress, cancel=cancel, keep=True, again=again)
    for task, each in zip(tasks, checked, strict=True):
        check = each.check
        doubts = list(check.warnings)
        if check.eager_ms is not None and check.eager_ms < TOO_SHORT_MS:
            doubts.append(f"too small to time: one call takes {check.eager_ms:.3f} ms, hand-over included")
        problems = tuple(f"{problem.code}: {problem.message}" for problem in check.problems)
        yield ImportCheck(task, check, problems, tuple(doubts), each.kept)
