"""The tasks of a server: which there are, one with its source, and whether source text is one to it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import BadRequest
from service.remote import Remote
from tasks.task import Task

_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class TaskLine:
    """A task of a server without its source. `id` is suite/name, as of a `Task`."""

    id: str
    suite: str
    name: str
    category: str
    dtype: str
    source_hash: str


def list_tasks_there(remote: Remote) -> list[TaskLine]:
    """All tasks of the server's suites, built in or imported."""
    return [_line(each) for each in remote.pages("/tasks", "tasks", {})]


def show_task_there(remote: Remote, ref: str) -> Task:
    """A task of the server's with its source, by suite/name.

    Raises:
        BadRequest: the server knows none of this name.
    """
    if _REF.fullmatch(ref) is None:
        raise BadRequest(f"{ref[:200] or 'task'}: no such task or file; name a .py file, or a task as suite/name")
    found = remote.json("GET", f"/tasks/{ref}")
    return Task(
        name=found["name"],
        source=found["source"],
        suite=found["suite"],
        category=found["category"],
        dtype=found["dtype"],
    )


def check_source_there(remote: Remote, source: str, name: str) -> str | None:
    """What is wrong with an op as far as reading it tells the server; None where nothing is."""
    found: Mapping[str, Any] = remote.json("POST", "/tasks/check", json={"source": source, "name": name})
    return None if found["ok"] else str(found["message"])


def _line(found: Mapping[str, Any]) -> TaskLine:
    return TaskLine(
        id=found["task"],
        suite=found["suite"],
        name=found["name"],
        category=found["category"],
        dtype=found["dtype"],
        source_hash=found["source_hash"],
    )
