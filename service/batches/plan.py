"""Plans a batch: the jobs that its spec asks for, each with its task and settings. Nothing is stored."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from db.store import Store
from service.batches.spec import MAX_JOBS, BatchSpec, settings_for
from service.errors import BadRequest
from service.jobs.spec import for_provider
from service.settings import Settings, read_key
from service.submissions.enqueue import check_submission
from service.tasks import known_tasks, unknown_task
from service.translation import check_origin, check_reference
from tasks.load import find_task as find_file
from tasks.load import names_file
from tasks.restrict import restrict, split_ref
from tasks.source_kernel import NAME, source_kernel_of
from tasks.task import Task, TaskError
from tasks.text import task_error
from tasks.translate import with_source_kernel

MAX_SUGGESTED = 5  # unknown names for which the nearest task is searched, because the search takes a while
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class PlannedJob:
    """A job that is to be queued, with the digest of the weights that it works with, if any."""

    task: Task
    settings: Settings
    sample: int
    weights: str | None = None


@dataclass(frozen=True)
class BatchPlan:
    """The jobs of a batch, ordered by sample so that each task has an early result, and refused tasks with reasons."""

    jobs: tuple[PlannedJob, ...]
    refused: tuple[tuple[str, str], ...]


def plan_batch(spec: BatchSpec, *, settings: Settings, store: Store, files: bool) -> BatchPlan:
    """The jobs that a spec asks for.

    Raises:
        BadRequest: a model, platform or option is not available, no task can be used, or there are too many jobs.
    """
    if not files and (spec.job.api_key_file or any(choice.api_key_file for choice in spec.choices)):
        raise BadRequest("api_key_file: names a file of this machine, which only its own users may; leave it out")
    tasks, weights, refused = _resolve(spec, store, files=files)
    combinations = [
        settings_for(spec, choice, name, settings if files else for_provider(settings, choice.name))
        for choice in spec.choices
        for name in spec.platforms
    ]
    if spec.whole_models and (spec.domain is not None or spec.translate_from is not None):
        raise BadRequest("whole_models: goes neither with domain nor with translate_from; leave these out")
    if spec.translate_from is not None:
        for each in combinations:
            check_origin(each, spec.translate_from)
    if not tasks:
        ref, reason = refused[0]
        raise BadRequest(f"tasks: none can be used; {ref}: {reason.removeprefix(f'{ref}: ')}")
    if len(set(spec.platforms)) < len(spec.platforms) or len({each.name for each in spec.choices}) < len(spec.choices):
        raise BadRequest("models, platforms: one is named twice; name each once and ask for more samples")
    count = len(tasks) * len(combinations) * spec.samples
    if count > MAX_JOBS:
        raise BadRequest(f"tasks, models, platforms, samples: make {count} jobs, more than {MAX_JOBS}; split the batch")
    for each in combinations:
        first = next((task for task in tasks if not _not_judged(task, each.platform)), None)
        if first is not None:
            check_submission(first, each, spec.priority, whole_model=spec.whole_models)
        if files and each.api_key_file is not None:  # other users learn nothing about the server's files
            read_key(each.api_key_file)
    cannot = {(task, name): why for task in tasks for name in spec.platforms if (why := _not_judged(task, name))}
    jobs = tuple(
        PlannedJob(task, each, sample, weights.get((task.id, task.source_hash)))
        for sample in range(1, spec.samples + 1)
        for task in tasks
        for each in combinations
        if (task, each.platform) not in cannot
    )
    refused += [(task.id, why) for (task, _), why in cannot.items()]
    if not jobs:
        ref, reason = refused[-1]
        raise BadRequest(f"tasks: none can be used; {reason}")
    return BatchPlan(jobs, tuple(refused))


def _not_judged(task: Task, platform: str) -> str:
    """Why candidates for a task cannot be judged on a platform; empty if they can."""
    try:
        check_reference(task, platform)
    except BadRequest as error:
        return str(error)
    return ""


def _resolve(
    spec: BatchSpec, store: Store, *, files: bool
) -> tuple[list[Task], dict[tuple[str, str], str], list[tuple[str, str]]]:
    """The tasks that the spec names, each once and in order; their weights; and the names of no task, with reasons."""
    known = known_tasks(store)
    named = {task.id: task for task in reversed(known)}
    found: dict[tuple[str, str], Task] = {}
    weights: dict[tuple[str, str], str] = {}
    refused: list[tuple[str, str]] = []
    for ref in dict.fromkeys(spec.tasks):
        matching = list(_matching(ref, known))
        if not matching:
            try:
                matching = [_named(ref, named, files=files, suggest=len(refused) < MAX_SUGGESTED)]
            except TaskError as error:
                refused.append((ref[:200], str(error)))
        for whole in matching:
            try:
                task = _with_kernel(restrict(whole, spec.domain), spec.translate_from)
            except TaskError as error:
                refused.append((whole.id, str(error)))
            else:
                found.setdefault((task.id, task.source_hash), task)
                if ref in spec.weights:
                    weights.setdefault((task.id, task.source_hash), spec.weights[ref])
    return list(found.values()), weights, refused


def _with_kernel(task: Task, platform: str | None) -> Task:
    """The task, if it brings a kernel of the platform that jobs translate from; any task for None.

    Raises:
        TaskError: it brings none, or one of another platform.
    """
    if platform is not None and source_kernel_of(task.source) is None:
        remedy = f"write the kernel into the op, or translate it alone: optimize --from {platform[:32]} --source FILE"
        raise task_error(task.id, f"brings no {NAME} to translate from {platform[:32]}", remedy)
    return with_source_kernel(task, platform=platform, kernel=None)


def _named(ref: str, known: Mapping[str, Task], *, files: bool, suggest: bool) -> Task:
    """The task in a file, or the known task of this name. Unlike `service.tasks.find_task`, it loads no list."""
    if files and names_file(ref):
        return find_file(ref)
    whole, domain = split_ref(ref)
    if domain is not None and whole in known:
        return restrict(known[whole], domain)
    if ref not in known:
        raise unknown_task(ref, known.values() if suggest else (), files=files)
    return known[ref]


def _matching(ref: str, known: list[Task]) -> Iterator[Task]:
    """The known tasks of the suite that `ref` names, or that match it as a pattern; none for anything else."""
    if _PATTERN.search(ref):
        yield from (task for task in known if fnmatchcase(task.id, ref) or fnmatchcase(task.suite, ref))
    elif "/" not in ref:
        yield from (task for task in known if task.suite == ref)
        whole, domain = split_ref(ref)
        if domain is not None:
            yield from (restrict(task, domain) for task in known if task.suite == whole)
