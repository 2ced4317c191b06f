"""Tasks of the built-in suites and of the store: finding and checking them."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from db.evaluations import tasks as stored
from db.records import TaskHead
from db.store import Store
from evaluator.task_check import CHECK_EFFORT, TaskCheck, check_task
from service.cancellation import Cancelled, CancelToken
from service.database import open_store
from service.device_lock import WaitCancelled, hold_device, lock_paths
from service.evaluation_context import WAITING, open_platform, open_sandbox
from service.settings import Settings
from service.task_findings import TaskFindings
from tasks import load
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
    return result.check


@dataclass(frozen=True)
class Checked:
    """The check of a task, and whether it was made earlier and kept."""

    check: TaskCheck
    kept: bool = False


def check_tasks(
    tasks: Iterable[Task],
    *,
    settings: Settings,
    on_progress: Callable[[str], None],
    cancel: CancelToken,
    keep: bool = False,
    again: bool = False,
) -> Iterator[Checked]:
    """Check one task after the other, each in a sandbox of its own, and yield each result at once.

    Args:
        tasks: the tasks.
        settings: the platform, sandbox and memory.
        on_progress: called with a few words on what is done.
        cancel: ends it.
        keep: whether findings are kept on this host (`service.task_findings`), and kept ones are not found out again.
        again: whether all are found out again, nevertheless.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
        Cancelled: cancellation was requested before the end.
    """
    platform = open_platform(settings.platform, settings.device)
    locks = lock_paths(settings.lock_dir, platform.exclusive_resources(settings.device))
    effort = replace(CHECK_EFFORT, memory_mb=settings.memory_mb)
    with open_sandbox(settings, own_code_only=True) as sandbox:
        findings = TaskFindings.of(settings, platform, sandbox, effort.memory_mb) if keep else None
        for task in tasks:
            known = None if findings is None or again else findings.get(task)
            if known is not None:
                yield Checked(known, kept=True)
                continue
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
            if findings is not None:
                findings.put(task, result)
            yield Checked(result)


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
