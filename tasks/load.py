"""Loads tasks from files and from the built-in suites."""

import re
from pathlib import Path

from tasks.build import task_from_source
from tasks.metadata import nearest
from tasks.restrict import restrict, split_ref
from tasks.suites import list_suites, load_suite
from tasks.task import Task
from tasks.text import read_source, task_error

__all__ = ["find_task", "load_task", "name_of", "names_file", "task_from_source"]


def load_task(path: Path, *, name: str | None = None) -> Task:
    """Load an op from a `.py` file. Its name is the file's, with `_` for each character that a name may not hold.

    Raises:
        TaskError: the file cannot be read or holds no valid op.
    """
    return task_from_source(read_source(path), name=name or name_of(path), where=str(path))


def name_of(path: Path) -> str:
    """The name of an op in this file."""
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem)[:100]
    return re.sub(r"^[.-]", "_", stem) or "op"


def find_task(ref: str) -> Task:
    """Find the task that `ref` names: the path of a `.py` file, or `suite/name` of a built-in suite (`tasks.restrict`).

    A path that exists takes precedence over a suite of the same name.

    Raises:
        TaskError: there is no such file or task, or it is not valid.
    """
    if names_file(ref):
        return load_task(Path(ref))
    whole, domain = split_ref(ref)
    if domain is not None:
        return restrict(find_task(whole), domain)
    suite, _, name = ref.partition("/")
    if suite not in list_suites():
        raise _unknown(ref)
    for task in load_suite(suite).tasks:
        if task.name == name:
            return task
    raise _unknown(ref)


def names_file(ref: str) -> bool:
    """Whether `ref` names a file: it ends in `.py`, or a file of this name exists."""
    return ref.endswith(".py") or (ref != "" and _exists(Path(ref)))


def _unknown(ref: str) -> Exception:
    ids = [task.id for suite in list_suites() for task in load_suite(suite).tasks]
    close = nearest(ref, ids) or next((task_id for task_id in ids if task_id.partition("/")[2] == ref), None)
    remedy = f"did you mean {close}?" if close else "name a .py file, or a task of `kernelwright tasks list`"
    return task_error(ref[:200] or "task", "no such task or file", remedy)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
