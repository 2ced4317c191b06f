"""What checks of tasks have found out, kept on this host, so that checking many tasks can go on where it stopped.

A finding holds for a source, a device, a sandbox, its memory, and the referee's rules. It is one small JSON file, which
is replaced in one step, so a command that is killed leaves whole files.
"""

import contextlib
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaluator.device_files import read_file, write_file
from evaluator.platforms import Platform
from evaluator.referee_process import harness_hash
from evaluator.task_check import Problem, TaskCheck
from sandbox.base import Sandbox
from service.settings import Settings
from tasks.outcomes import Verdict
from tasks.task import Task

_FORM = 1
_PASSING = frozenset({Verdict.SANDBOX_ERROR.value, Verdict.TIMED_OUT.value})
"""Codes of problems that may be the machine's, and gone the next time."""


@dataclass(frozen=True)
class TaskFindings:
    """The findings that hold for one device, sandbox, memory and harness: a folder with a file for each source."""

    folder: Path

    @classmethod
    def of(cls, settings: Settings, platform: Platform, sandbox: Sandbox, memory_mb: int) -> "TaskFindings":
        """Those of this host for a platform's device in a sandbox with so much memory, in MiB."""
        holds_for = {
            "form": _FORM,
            "device": platform.device(settings.device).describe(),
            "platform": platform.name,
            "sandbox": sandbox.describe(),
            "memory_mb": memory_mb,
            "harness": harness_hash(),
        }
        key = hashlib.sha256(json.dumps(holds_for, sort_keys=True).encode()).hexdigest()[:32]
        return cls(settings.data_dir / "task_checks" / key)

    def get(self, task: Task) -> TaskCheck | None:
        """The finding on a task's source; None if there is none that can be read."""
        with contextlib.suppress(TypeError, KeyError, ValueError):
            return replace(_check(read_file(self._path(task))), task=task.id)
        return None

    def put(self, task: Task, check: TaskCheck) -> None:
        """Keep a finding, unless it may be the machine's. On a full disk it is found out again the next time."""
        if not any(problem.code in _PASSING for problem in check.problems):
            write_file(self._path(task), check.to_json())

    def _path(self, task: Task) -> Path:
        return self.folder / f"{task.source_hash}.json"


def _check(content: dict[str, Any]) -> TaskCheck:
    """A check from its JSON.

    Raises:
        TypeError, KeyError: this is none.
    """
    return TaskCheck(
        task=content["task"],
        ok=content["ok"],
        problems=tuple(Problem(**problem) for problem in content["problems"]),
        warnings=tuple(content["warnings"]),
        inputs=tuple(content["inputs"]),
        outputs=tuple(content["outputs"]),
        parameters=tuple(content["parameters"]),
        eager_ms=content["eager_ms"],
        memory_mb=content["memory_mb"],
        need_mb=content["need_mb"],
        cost_s=content["cost_s"],
    )
