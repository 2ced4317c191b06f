"""Tasks of the built-in suites and of the store: finding, checking and importing them."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from db.evaluations import tasks as stored
from db.records import TaskHead
from db.store import Store
from evaluator.task_check import CHECK_EFFORT, TaskCheck, check_task
from service.cancellation import Cancelled, CancelToken
from service.database import open_store
from service.device_lock import WaitCancelled, hold_device, lock_paths
from service.errors import BadRequest
from service.evaluation_context import WAITING, open_platform, open_sandbox
from service.jobs.persistence import save_task
from service.settings import Settings
from tasks import load
from tasks.importers import KINDS, read_clone
from tasks.metadata import nearest
from tasks.restrict import restrict, split_ref
from tasks.suites import list_suites, load_suite
from tasks.task import LOCAL_SUITE, Task, TaskError
from tasks.text import task_error


class HasSuite(Protocol):
    """An object that belongs to a suite and has a name in it."""

    @property
    def suite(self) -> str:
        """The suite's name."""
        ...

    @property
    def name(self) -> str:
        """Its own name."""
        ...


SomeTask = TypeVar("SomeTask", bound=HasSuite)


def known_tasks(store: Store) -> list[Task]:
    """All tasks of the built-in suites, then the imported tasks, each with its present source."""
    built_in = [task for name in list_suites() for task in load_suite(name).tasks]
    with store.read() as session:
        kept = stored.list_current(session, excluding=(*list_suites(), LOCAL_SUITE))
    return _without_restricted(built_in + [record.to_task() for record in kept])


def known_task_heads(store: Store) -> list[Task | TaskHead]:
    """The tasks of `known_tasks`, but imported tasks without their sources."""
    built_in = [task for name in list_suites() for task in load_suite(name).tasks]
    with store.read() as session:
        heads = stored.list_current_heads(session, excluding=(*list_suites(), LOCAL_SUITE))
    return _without_restricted([*built_in, *heads])


def _without_restricted(found: Sequence[SomeTask]) -> list[SomeTask]:
    """These tasks without those that jobs on a domain have stored beside the whole task (`tasks.restrict`)."""
    ids = {f"{task.suite}/{task.name}" for task in found}

    def beside_whole(task: SomeTask) -> bool:
        whole, domain = split_ref(f"{task.suite}/{task.name}")
        return domain is not None and whole in ids

    return [task for task in found if not beside_whole(task)]


def list_tasks(store: Store, suite: str | None = None) -> list[Task]:
    """All tasks, or those of one suite.

    Raises:
        TaskError: there is no such suite.
    """
    return filter_by_suite(known_tasks(store), suite)


def filter_by_suite(found: Sequence[SomeTask], suite: str | None) -> list[SomeTask]:
    """All of these tasks, or those of one suite.

    Raises:
        TaskError: there is no such suite.
    """
    if suite is None:
        return list(found)
    suites = list(dict.fromkeys(task.suite for task in found))
    if suite not in suites:
        close = nearest(suite, suites)
        remedy = f"did you mean {close}?" if close else f"use one of: {', '.join(suites)}"
        raise task_error(f"suite {suite[:100]}", "no such suite", remedy)
    return [task for task in found if task.suite == suite]


def find_task(ref: str, *, store: Store, files: bool = True) -> Task:
    """The task that `ref` names: the path of a `.py` file, or suite/name of a built-in or imported task.

    A path that exists takes precedence over a suite of the same name. Of an imported task, the last import counts.
    `suite.finite/name` is the task on finite inputs (`tasks.restrict`).

    Args:
        ref: the path or name.
        store: the store.
        files: whether `ref` may be a path.

    Raises:
        TaskError: there is no such task, or it is not valid.
    """
    if files and load.names_file(ref):
        return load.find_task(ref)
    whole, domain = split_ref(ref)
    if domain is not None:
        with contextlib.suppress(TaskError):  # it may have been imported on this domain alone
            return restrict(find_task(whole, store=store, files=False), domain)
    suite, _, name = ref.partition("/")
    if suite in list_suites():
        for task in load_suite(suite).tasks:
            if task.name == name:
                return task
    elif suite != LOCAL_SUITE:
        with store.read() as session:
            record = stored.find_current(session, suite[:255], name[:255])
        if record is not None:
            return record.to_task()
    raise unknown_task(ref, known_task_heads(store), files=files)


def find_ref(ref: str, settings: Settings) -> Task:
    """`find_task` that opens the store only if `ref` names neither a file nor a built-in task.

    Raises:
        TaskError: there is no such task, or it is not valid.
    """
    if load.names_file(ref) or split_ref(ref)[0] in (
        task.id for name in list_suites() for task in load_suite(name).tasks
    ):
        return load.find_task(ref)
    store = open_store(settings)
    try:
        return find_task(ref, store=store)
    finally:
        store.close()


def check(ref: str, *, settings: Settings, on_progress: Callable[[str], None], cancel: CancelToken) -> TaskCheck:
    """Run a task's own code in a sandbox and say whether it can be judged.

    Raises:
        TaskError: there is no such task, or it is not valid as it is written.
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before the end.
    """
    (result,) = check_tasks([find_ref(ref, settings)], settings=settings, on_progress=on_progress, cancel=cancel)
    return result


def check_tasks(
    tasks: Iterable[Task], *, settings: Settings, on_progress: Callable[[str], None], cancel: CancelToken
) -> Iterator[TaskCheck]:
    """Check one task after the other, each in a sandbox of its own, and yield each result at once.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before the end.
    """
    platform = open_platform(settings.platform, settings.device)
    locks = lock_paths(settings.lock_dir, platform.exclusive_resources(settings.device))
    effort = replace(CHECK_EFFORT, memory_mb=settings.memory_mb)
    with open_sandbox(settings, own_code_only=True) as sandbox:
        for task in tasks:
            with (
                _still_waiting_is_stopped(),
                hold_device(locks, on_wait=lambda: on_progress(WAITING), cancel=cancel.event),
            ):
                result = check_task(
                    task,
                    sandbox=sandbox,
                    platform=platform,
                    device=settings.device,
                    effort=effort,
                    on_progress=on_progress,
                    cancel=cancel.event,
                )
            if cancel.requested():
                raise Cancelled
            yield result


@contextlib.contextmanager
def _still_waiting_is_stopped() -> Iterator[None]:
    try:
        yield
    except WaitCancelled as waiting:
        raise Cancelled from waiting


def unknown_task(ref: str, known: Iterable[Task | TaskHead], *, files: bool) -> TaskError:
    """The error for a name that no task has. It suggests the task of `known` with the nearest name."""
    ids = [f"{task.suite}/{task.name}" for task in known]
    close = nearest(ref, ids) or next((task_id for task_id in ids if task_id.partition("/")[2] == ref), None)
    other = (
        "name a .py file, or a task of `kernelwright tasks list`" if files else "`kernelwright tasks list` shows all"
    )
    what = "no such task or file" if files else "no such task"
    return task_error(ref[:200] or "task", what, f"did you mean {close}?" if close else other)


Status = Literal["imported", "changed", "unchanged", "refused"]
STATUSES: tuple[Status, ...] = ("imported", "changed", "unchanged", "refused")

TOO_SHORT_MS = 0.2
"""Two exchanges that do no work take 0.1 to 0.2 ms. An op that is hardly slower gets no rank (docs/timing.md)."""


@dataclass(frozen=True)
class ImportResult:
    """The result of importing one file of a clone."""

    where: str
    status: Status
    task: Task | None = None
    problem: str = ""


@dataclass(frozen=True)
class ImportCheck:
    """The check of an imported task. `problems` say why it cannot be used; `doubts`, why passing it proves little."""

    task: Task
    check: TaskCheck
    problems: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def degenerate(self) -> bool:
        """Whether passing it would prove little or nothing."""
        return bool(self.problems or self.doubts)


def import_clone(kind: str, root: Path, *, store: Store, domain: str | None = None) -> list[ImportResult]:
    """Store the tasks of a clone, on a domain if one is given, and compare each with the stored task of the same name.

    A changed task is stored beside its earlier source, which keeps its results. From then on the task's name stands for
    the new source.

    Raises:
        BadRequest: there is no such kind of clone.
        TaskError: the folder is no such clone.
    """
    if kind not in KINDS:
        raise BadRequest(f"tasks import {kind[:80]}: unknown; there is: {', '.join(KINDS)}")
    found = read_clone(kind, root)
    done: list[ImportResult] = []
    seen: dict[str, str] = {}
    with store.write() as session:
        for each in found:
            task, problem = each.task, each.problem
            try:
                task = None if task is None else restrict(task, domain)
            except TaskError as error:
                task, problem = None, str(error)
            if task is None:
                done.append(ImportResult(each.where, "refused", problem=problem))
            elif task.id in seen:
                done.append(ImportResult(each.where, "refused", problem=f"has the same name as {seen[task.id]}"))
            else:
                seen[task.id] = each.where
                before = stored.find_current(session, task.suite, task.name)
                task_id = save_task(session, task)
                if before is None:
                    status: Status = "imported"
                elif before.source_hash == task.source_hash:
                    status = "unchanged"
                else:
                    status = "changed"
                    stored.make_current(session, task_id)
                done.append(ImportResult(each.where, status, task))
    return done


def check_imported(
    tasks: Sequence[Task], *, settings: Settings, on_progress: Callable[[str], None], cancel: CancelToken
) -> Iterator[ImportCheck]:
    """Run each task in a sandbox and say whether passing it would prove anything.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before the end.
    """
    for task, check in zip(
        tasks, check_tasks(tasks, settings=settings, on_progress=on_progress, cancel=cancel), strict=True
    ):
        doubts = list(check.warnings)
        if check.eager_ms is not None and check.eager_ms < TOO_SHORT_MS:
            doubts.append(f"too small to time: one call takes {check.eager_ms:.3f} ms, hand-over included")
        yield ImportCheck(task, check, tuple(f"{each.code}: {each.message}" for each in check.problems), tuple(doubts))
