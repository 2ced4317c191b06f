"""Import the tasks of a clone into the store, and say which of them would prove nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from db import tasks as stored
from db.store import Store
from evaluator.check import TaskCheck
from service.errors import BadRequest
from service.keeping import keep_task
from service.settings import Settings
from service.stopping import Stop
from service.tasks import check_tasks
from tasks.importers import KINDS, read_clone
from tasks.task import Task

Status = Literal["imported", "changed", "unchanged", "refused"]
STATUSES: tuple[Status, ...] = ("imported", "changed", "unchanged", "refused")

TOO_SHORT_MS = 0.2
"""Two questions that ask for nothing take 0.1 to 0.2 ms: what is hardly slower gets no rank (docs/timing.md)."""


@dataclass(frozen=True)
class Imported:
    """What became of a file of the clone."""

    where: str
    status: Status
    task: Task | None = None
    problem: str = ""


@dataclass(frozen=True)
class Judged:
    """What the sandbox says of an imported task: why it cannot be used, and why it proves little."""

    task: Task
    check: TaskCheck
    problems: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def degenerate(self) -> bool:
        """Whether passing it would prove little or nothing."""
        return bool(self.problems or self.doubts)


def import_clone(kind: str, root: Path, *, store: Store) -> list[Imported]:
    """Store the tasks of a clone; each that is there already is compared with what is stored.

    A changed task is stored beside its earlier form, which keeps its results; its name means the new one from now on.

    Raises:
        BadRequest: there is no such kind of clone.
        TaskError: the folder is no such clone.
    """
    if kind not in KINDS:
        raise BadRequest(f"tasks import {kind[:80]}: unknown; there is: {', '.join(KINDS)}")
    found = read_clone(kind, root)
    done: list[Imported] = []
    seen: dict[str, str] = {}
    with store.write() as session:
        for each in found:
            task = each.task
            if task is None:
                done.append(Imported(each.where, "refused", problem=each.problem))
            elif task.id in seen:
                done.append(Imported(each.where, "refused", problem=f"has the same name as {seen[task.id]}"))
            else:
                seen[task.id] = each.where
                before = stored.find_current(session, task.suite, task.name)
                task_id = keep_task(session, task)
                if before is None:
                    status: Status = "imported"
                elif before.source_hash == task.source_hash:
                    status = "unchanged"
                else:
                    status = "changed"
                    stored.make_current(session, task_id)
                done.append(Imported(each.where, status, task))
    return done


def check_imported(
    tasks: Sequence[Task], *, settings: Settings, step: Callable[[str], None], stop: Stop
) -> Iterator[Judged]:
    """Run each task in a sandbox and say whether passing it would prove anything.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
        Stopped: a stop was requested before the end.
    """
    for task, check in zip(tasks, check_tasks(tasks, settings=settings, step=step, stop=stop), strict=True):
        doubts = list(check.warnings)
        if check.eager_ms is not None and check.eager_ms < TOO_SHORT_MS:
            doubts.append(f"too small to time: one call takes {check.eager_ms:.3f} ms, hand-over included")
        yield Judged(task, check, tuple(f"{each.code}: {each.message}" for each in check.problems), tuple(doubts))
