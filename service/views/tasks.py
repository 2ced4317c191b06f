"""The views of tasks: the tasks of the built-in suites, imported ones, and submitted ones."""

from dataclasses import dataclass

from db.errors import NotInStore
from db.evaluations import tasks
from db.jobs import jobs
from db.records import TaskHead, TaskRecord
from db.store import Store
from service.tasks import find_task, known_task_heads
from service.views.jobs import JobLine, job_lines
from tasks.source_kernel import SourceKernel, source_kernel_of, without_source_kernel
from tasks.suites import list_suites
from tasks.task import LOCAL_SUITE, Task, TaskError

PAGE = 100


@dataclass(frozen=True)
class TaskLine:
    """A task in a list. `jobs` counts the jobs on its present source; `solved`, those with a passed candidate."""

    suite: str
    name: str
    category: str
    dtype: str
    source_hash: str
    builtin: bool
    jobs: int
    solved: int


@dataclass(frozen=True)
class TaskList:
    """A page of tasks, and all suites. `more` says whether another page follows."""

    lines: tuple[TaskLine, ...]
    suites: tuple[str, ...]
    more: bool


@dataclass(frozen=True)
class TaskView:
    """A task with one of its sources and the jobs on that source.

    `op_source` is the source as it is shown, and `source_kernel` the kernel that it brings, which is shown beside it.
    `named` says whether the task's name stands for this source now, so that it can be submitted by name. `versions`
    holds the hashes of all its sources.
    """

    suite: str
    name: str
    category: str
    dtype: str
    source: str
    op_source: str
    source_kernel: SourceKernel | None
    source_hash: str
    named: bool
    versions: tuple[str, ...]
    jobs: tuple[JobLine, ...]


def list_stored(store: Store, *, suite: str | None, before: int | None, limit: int) -> list[TaskHead]:
    """All sources that jobs were submitted for, newest first. `suite` and `before` (a lower id) are conditions."""
    with store.read() as session:
        return tasks.list_tasks(session, suite=suite, before=before, limit=limit)


def get_task(store: Store, suite: str, name: str, source_hash: str | None = None) -> Task | TaskRecord:
    """A task with its source.

    Args:
        store: The store.
        suite: The task's suite.
        name: The task's name.
        source_hash: The hash of one of its sources. The default is the source that the name stands for; in the suite
            `local`, the source that was submitted last.

    Raises:
        NotInStore: There is no such task, or it has no such source.
    """
    if suite != LOCAL_SUITE:
        try:
            current = find_task(f"{suite}/{name}", store=store, files=False)
        except TaskError as error:
            raise NotInStore(str(error)) from error
        if source_hash in (None, current.source_hash):
            return current
    with store.read() as session:
        if source_hash is None:
            found = tasks.find_current(session, suite, name)
        else:
            found = tasks.find_source(session, suite, name, source_hash)
    if found is None:
        raise NotInStore(f"task {suite}/{name} is not known; GET /api/v1/tasks lists those that are")
    return found


def task_list(store: Store, *, suite: str | None, page: int = 1) -> TaskList:
    """A page of tasks by suite and name: first the built-in and the imported tasks, then the submitted ones."""
    known_here = known_task_heads(store)
    with store.read() as session:
        stored = tasks.list_task_counts(session, suite=suite, limit=PAGE * page + 1, offset=0)
    counted = {(each.task.suite, each.task.name): each for each in stored}
    lines = []
    for task in known_here if suite is None else [task for task in known_here if task.suite == suite]:
        known = counted.pop((task.suite, task.name), None)
        same = known is not None and known.task.source_hash == task.source_hash
        lines.append(_line(task, known.jobs if known and same else 0, known.passed if known and same else 0))
    lines += [
        TaskLine(t.suite, t.name, t.category, t.dtype, t.source_hash, False, each.jobs, each.passed)
        for each in counted.values()
        if (t := each.task)
    ]
    suites = tuple(sorted({task.suite for task in known_here} | {line.suite for line in lines} | {LOCAL_SUITE}))
    first = PAGE * (page - 1)
    return TaskList(tuple(lines[first : first + PAGE]), suites, len(lines) > first + PAGE)


def task_view(store: Store, suite: str, name: str, source_hash: str | None = None) -> TaskView:
    """A task with the source of the given hash, or with its present source.

    Raises:
        NotInStore: there is no task of this name, or none with this source.
    """
    present = _present(store, suite, name)
    with store.read() as session:
        hashes = tasks.list_source_hashes(session, suite, name)
        if present is not None and present.source_hash not in hashes:
            hashes.insert(0, present.source_hash)
        chosen = source_hash or (present.source_hash if present is not None else next(iter(hashes), ""))
        kept = tasks.find_source(session, suite, name, chosen)
        found = jobs.list_jobs(session, task=f"{suite}/{name}", source_hash=chosen, limit=25)
    named = present is not None and present.source_hash == chosen
    task = kept.to_task() if kept is not None else present if named else None
    if task is None:
        raise NotInStore(f"task {suite[:100]}/{name[:100]} is not known here; the list of tasks shows those that are")
    if chosen not in hashes:  # older than the sources that the store lists
        hashes.append(chosen)
    return TaskView(
        suite,
        name,
        task.category,
        task.dtype,
        task.source,
        without_source_kernel(task.source),
        source_kernel_of(task.source),
        chosen,
        named,
        tuple(hashes),
        job_lines(store, found),
    )


def _present(store: Store, suite: str, name: str) -> Task | None:
    """The task that a name stands for now; None for a submitted op, whose name stands for no single source."""
    try:
        return find_task(f"{suite}/{name}", store=store, files=False)
    except TaskError:
        return None


def _line(task: Task | TaskHead, job_count: int, solved: int) -> TaskLine:
    builtin = task.suite in list_suites()
    return TaskLine(task.suite, task.name, task.category, task.dtype, task.source_hash, builtin, job_count, solved)
