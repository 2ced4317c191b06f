"""Files that the host keeps for each device and sandbox: what was measured of the device there."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluator.platforms import Device


def file_of(folder: Path, form: int, device: Device, sandbox: Mapping[str, str]) -> Path:
    """The file of a device in a sandbox. `form` is the number of the file's form, and of how it is measured."""
    key = "\n".join((str(form), device.describe(), *sorted(map(str, sandbox.items()))))
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def read_file(path: Path) -> dict[str, Any]:
    """The content of a file. What cannot be read is as if it were not there: it is empty."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}


def write_file(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step. On a full disk or in a read-only folder nothing is kept."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        Path(name).replace(path)


def today() -> str:
    """The date that is kept with what was measured."""
    return datetime.now(UTC).strftime("%Y-%m-%d")
