"""What torch.compile made of a task, kept between evaluations so that its baseline need not be compiled each time.

The referee hands out the bytes and takes them back; they are only ever unpacked in a baseline runner of the same task.
"""

import contextlib
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

_MAX_BYTES = 64 * 1024 * 1024
_KEEP_FILES = 256
_BASE64 = re.compile(rb"[A-Za-z0-9+/=]*")


@dataclass(frozen=True)
class CompileCache:
    """A folder of such bytes, one file for each task and sandbox."""

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
            for old in kept[_KEEP_FILES:]:
                old.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.b64"
