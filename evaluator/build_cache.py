"""What building made, kept between evaluations so that it need not be built each time.

torch.compile's kernels of a task, and what a candidate that builds slowly has built. The referee hands the bytes out
and back in; they are only ever unpacked in a baseline runner of the same task, or in one of the same candidate.
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
_KEEP_FILES = 256
_KEEP_BYTES = 1024 * 1024 * 1024
_BASE64 = re.compile(rb"[A-Za-z0-9+/=]*")


@dataclass(frozen=True)
class BuildCache:
    """A folder of such bytes, one file for each task, or candidate and task, on one device and sandbox."""

    folder: Path

    def get(self, key: str) -> str:
        """What was kept, or an empty string."""
        with contextlib.suppress(OSError):
            data = self._path(key).read_bytes()
            if len(data) <= _MAX_BYTES and _BASE64.fullmatch(data):
                return data.decode()
        return ""

    def put(self, key: str, text: str) -> None:
        """Keep it; a full disk or a read-only folder costs a compilation next time, nothing else."""
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


def baseline_key(task: Task, sandbox: Mapping[str, str], device: Device) -> str:
    """What torch.compile's kernels of a task are kept under; `sandbox` as it describes itself."""
    return f"baseline\n{_place(task, sandbox, device)}"


def candidate_key(task: Task, candidate_source: str, sandbox: Mapping[str, str], device: Device) -> str:
    """What a candidate has built is kept under."""
    return f"{candidate_hash(candidate_source)}\n{_place(task, sandbox, device)}"


def _place(task: Task, sandbox: Mapping[str, str], device: Device) -> str:
    """What was built is for one task, one image and one processor, under one referee."""
    return "\n".join((harness_hash(), task.source_hash, *sorted(map(str, sandbox.items())), device.describe()))
