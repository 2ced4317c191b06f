"""The build cache: files built by a baseline for a task, or by a candidate.

They are kept between evaluations as opaque bytes. The referee returns the bytes and takes them as input. They are only
ever unpacked in a baseline's runner of the same task, or in a runner of the same candidate.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluator.platforms import Device
from evaluator.referee_process import harness_hash
from tasks.outcomes import candidate_hash
from tasks.task import Task

_MAX_BYTES = 64 * 1024 * 1024
_KEEP_FILES = 2048
_KEEP_BYTES = 1024 * 1024 * 1024
_BASE64 = re.compile(rb"[A-Za-z0-9+/=]*")


@dataclass(frozen=True)
class BuildCache:
    """A folder with one file for each key, which stands for a task or a candidate, on one device and sandbox."""

    folder: Path

    def get(self, key: str) -> str:
        """The bytes of a key in base64; empty if there are none."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            with contextlib.suppress(OSError):  # in a read-only folder
                os.utime(path)  # what has not been asked for longest is removed first
            if len(data) <= _MAX_BYTES and _BASE64.fullmatch(data):
                return data.decode()
        return ""

    def put(self, key: str, text: str) -> None:
        """Keep the bytes of a key. On a full disk or in a read-only folder they are not kept, and are built again."""
        if not text or len(text) > _MAX_BYTES:
            return
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "w") as file:
                file.write(text)
            Path(name).replace(self._path(key))
            kept = sorted(self.folder.glob("*.b64"), key=lambda path: path.stat().st_mtime, reverse=True)
            total = 0
            for number, old in enumerate(kept):
                total += old.stat().st_size
                if number >= _KEEP_FILES or total > _KEEP_BYTES:
                    old.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.b64"


def baseline_key(
    name: str, task: Task, sandbox: Mapping[str, str], device: Device, *, shape_group: int | None = None
) -> str:
    """The key of what a baseline has built of a task for its inputs, or for those of one of its shape groups.

    `name` is the baseline's, `sandbox` the sandbox's description.
    """
    group = "" if shape_group is None else f" of shape group {shape_group}"
    return f"baseline {name}{group}\n{_place(task, sandbox, device)}"


def candidate_key(task: Task, candidate_source: str, sandbox: Mapping[str, str], device: Device) -> str:
    """The key of the files that a candidate has built."""
    return f"{candidate_hash(candidate_source)}\n{_place(task, sandbox, device)}"


def _place(task: Task, sandbox: Mapping[str, str], device: Device) -> str:
    """The part of a key that stands for the referee, the task, the sandbox's image and the device."""
    return "\n".join((harness_hash(), task.source_hash, *sorted(map(str, sandbox.items())), device.describe()))
