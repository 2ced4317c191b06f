"""Built-in suites: one folder of op files each, read as data and never imported."""

from dataclasses import dataclass
from importlib.resources import files

from tasks.build import task_from_source
from tasks.metadata import nearest
from tasks.task import Task
from tasks.text import task_error


@dataclass(frozen=True)
class Suite:
    """A named set of tasks, in the order of their names."""

    name: str
    tasks: tuple[Task, ...]


def list_suites() -> tuple[str, ...]:
    """Name the built-in suites, sorted."""
    return tuple(
        sorted(entry.name for entry in files(__name__).iterdir() if entry.is_dir() and entry.name[0] not in "._")
    )


def load_suite(name: str) -> Suite:
    """Load a built-in suite.

    Raises:
        TaskError: there is no such suite.
    """
    known = list_suites()
    if name not in known:
        close = nearest(name, known)
        remedy = f"did you mean {close}?" if close else f"use one of: {', '.join(known)}"
        raise task_error(f"suite {name[:100]}", "no such suite", remedy)
    sources = sorted(
        (entry for entry in (files(__name__) / name).iterdir() if entry.name.endswith(".py")), key=lambda e: e.name
    )
    return Suite(
        name=name,
        tasks=tuple(
            task_from_source(
                entry.read_bytes(), name=entry.name.removesuffix(".py"), suite=name, where=f"{name}/{entry.name}"
            )
            for entry in sources
        ),
    )
