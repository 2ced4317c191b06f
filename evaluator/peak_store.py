"""The peak rates of devices: what each has been seen to do at best, kept on this host between evaluations.

The referee measures the points that a task needs (`referee/protocol/peaks.py`) until several evaluations have done so,
and again when a candidate beats one. Interference only makes a peak look lower, so the highest rate stays.
"""

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluator.platforms import Device

_FORM = 1  # of the file, and of how the points are measured


@dataclass(frozen=True)
class PeakStore:
    """A folder with one JSON file for each device and sandbox: the rate of each point, how often and when measured."""

    folder: Path

    def get(self, device: Device, sandbox: Mapping[str, str]) -> dict[str, tuple[float, int]]:
        """The highest rate of each point, and the number of evaluations that measured it. `sandbox` describes it."""
        points = self._read(device, sandbox)
        return {name: (point["rate"], point["times"]) for name, point in points.items()}

    def add(self, device: Device, sandbox: Mapping[str, str], measured: Mapping[str, float]) -> None:
        """Add what one evaluation has measured. On a full disk or in a read-only folder it is measured again."""
        points, today = self._read(device, sandbox), datetime.now(UTC).strftime("%Y-%m-%d")
        for name, rate in measured.items():
            if not _is_rate(rate):
                continue
            old = points.get(name, {"rate": 0.0, "times": 0, "raised_on": today})
            raised_on = today if rate > old["rate"] else old["raised_on"]
            rate = max(float(rate), old["rate"])
            points[name] = {"rate": rate, "times": old["times"] + 1, "raised_on": raised_on, "measured_on": today}
        content = {"device": device.describe(), "points": dict(sorted(points.items()))}
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            Path(name).replace(self._path(device, sandbox))

    def _read(self, device: Device, sandbox: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """The points of a file. What cannot be read is as if it were not there."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            points = json.loads(self._path(device, sandbox).read_text(encoding="utf-8"))["points"]
            return {
                str(name): {**point, "rate": float(point["rate"]), "times": int(point["times"])}
                for name, point in points.items()
                if _is_rate(point["rate"]) and point["raised_on"]
            }
        return {}

    def _path(self, device: Device, sandbox: Mapping[str, str]) -> Path:
        key = "\n".join((str(_FORM), device.describe(), *sorted(map(str, sandbox.items()))))
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
