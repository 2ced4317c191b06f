"""Tasks: which there are, in the built-in suites and in the store, and whether one can be judged."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from db import tasks as stored
from db.records import TaskRecord
from db.store import Store
from evaluator.check import CHECK_EFFORT, TaskCheck, check_task
from service.settings import Settings
from service.stopping import Stop
from service.store import open_store
from service.turns import StillWaiting, device_lock, turn
from service.wiring import WAITING, Stopped, open_platform, open_sandbox
from tasks import load
from tasks.metadata import nearest
from tasks.suites import list_suites, load_suite
from tasks.task import LOCAL_SUITE, Task, TaskError
from tasks.text import complaint


class InSuite(Protocol):
    """Whatever belongs to a suite."""

    @property
    def suite(self) -> str:
        """The suite's name."""
        ...


SomeTask = TypeVar("SomeTask", bound=InSuite)


def known_tasks(store: Store) -> list[Task]:
    """All tasks of the built-in suites, then those that were imported, each in its present form."""
    built_in = [task for name in list_suites() for task in load_suite(name).tasks]
    with store.read() as session:
        kept = stored.list_current(session, but=(*list_suites(), LOCAL_SUITE))
    return built_in + [task_of_record(record) for record in kept]


def list_tasks(store: Store, suite: str | None = None) -> list[Task]:
    """All tasks, or those of one suite.

    Raises:
        TaskError: there is no such suite.
    """
    return of_suite(known_tasks(store), suite)


def of_suite(found: Sequence[SomeTask], suite: str | None) -> list[SomeTask]:
    """Of these tasks all, or those of one suite.

    Raises:
        TaskError: there is no such suite.
    """
    if suite is None:
        return list(found)
    suites = list(dict.fromkeys(task.suite for task in found))
    if suite not in suites:
        close = nearest(suite, suites)
        remedy = f"did you mean {close}?" if close else f"use one of: {', '.join(suites)}"
        raise complaint(f"suite {suite[:100]}", "no such suite", remedy)
    return [task for task in found if task.suite == suite]


def find_task(ref: str, *, store: Store, files: bool = True) -> Task:
    """The task that `ref` names: the path of a `.py` file (only where `files`), or suite/name, built-in or imported.

    A path that exists wins over a suite of the same name. Of an imported task, the last import counts.

    Raises:
        TaskError: there is no such task, or it is not valid.
    """
    if files and load.names_file(ref):
        return load.find_task(ref)
    suite, _, name = ref.partition("/")
    if suite in list_suites():
        for task in load_suite(suite).tasks:
            if task.name == name:
                return task
    elif suite != LOCAL_SUITE:
        with store.read() as session:
            record = stored.find_current(session, suite[:255], name[:255])
        if record is not None:
            return task_of_record(record)
    raise unknown_task(ref, known_tasks(store), files=files)


def find_ref(ref: str, settings: Settings) -> Task:
    """As `find_task`; the store is opened for what is neither a file nor built in alone.

    Raises:
        TaskError: there is no such task, or it is not valid.
    """
    if load.names_file(ref) or ref in (task.id for name in list_suites() for task in load_suite(name).tasks):
        return load.find_task(ref)
    store = open_store(settings)
    try:
        return find_task(ref, store=store)
    finally:
        store.close()


def task_of_record(record: TaskRecord) -> Task:
    """A task from the store."""
    return Task(
        name=record.name, source=record.source, suite=record.suite, category=record.category, dtype=record.dtype
    )


def check(ref: str, *, settings: Settings, step: Callable[[str], None], stop: Stop) -> TaskCheck:
    """Run a task's own code in a sandbox and say whether it can be judged.

    Raises:
        TaskError: there is no such task, or it is not valid as it is written.
        SandboxUnavailable: there is no sandbox to work with.
        Stopped: a stop was requested before the end.
    """
    (result,) = check_tasks([find_ref(ref, settings)], settings=settings, step=step, stop=stop)
    return result


def check_tasks(
    tasks: Iterable[Task], *, settings: Settings, step: Callable[[str], None], stop: Stop
) -> Iterator[TaskCheck]:
    """Check one task after the other, each in a sandbox of its own; each result comes as soon as it is there.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
        Stopped: a stop was requested before the end.
    """
    platform = open_platform(settings.platform)
    lock = device_lock(settings.lock_dir, platform.name, settings.device)
    effort = replace(CHECK_EFFORT, memory_mb=settings.memory_mb)
    with open_sandbox(settings, own_code_only=True) as sandbox:
        for task in tasks:
            with (
                _still_waiting_is_stopped(),
                turn(lock, on_wait=lambda: step(WAITING), cancel=stop.event),
            ):
                result = check_task(task, sandbox=sandbox, effort=effort, on_progress=step, cancel=stop.event)
            if stop.requested():
                raise Stopped
            yield result


@contextlib.contextmanager
def _still_waiting_is_stopped() -> Iterator[None]:
    try:
        yield
    except StillWaiting as waiting:
        raise Stopped from waiting


def unknown_task(ref: str, known: Iterable[Task], *, files: bool) -> TaskError:
    """What to say of a name that is no task's, with one of `known` that may have been meant."""
    ids = [task.id for task in known]
    close = nearest(ref, ids) or next((task_id for task_id in ids if task_id.partition("/")[2] == ref), None)
    other = (
        "name a .py file, or a task of `kernelwright tasks list`" if files else "`kernelwright tasks list` shows all"
    )
    what = "no such task or file" if files else "no such task"
    return complaint(ref[:200] or "task", what, f"did you mean {close}?" if close else other)
