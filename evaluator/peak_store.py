"""The peak rates of devices: what each has been seen to do at best, kept on this host between evaluations.

The referee measures the points that a task needs (`referee/protocol/peaks.py`) until several evaluations have done so,
and again when a candidate beats one. Interference only makes a peak look lower, so the highest rate stays.
"""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.device_files import file_of, read_file, today, write_file
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
        points, date = self._read(device, sandbox), today()
        for name, rate in measured.items():
            if not _is_rate(rate):
                continue
            old = points.get(name, {"rate": 0.0, "times": 0, "raised_on": date})
            raised_on = date if rate > old["rate"] else old["raised_on"]
            rate = max(float(rate), old["rate"])
            points[name] = {"rate": rate, "times": old["times"] + 1, "raised_on": raised_on, "measured_on": date}
        content = {"device": device.describe(), "points": dict(sorted(points.items()))}
        write_file(self._path(device, sandbox), content)

    def _read(self, device: Device, sandbox: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """The points of a file. What cannot be read is as if it were not there."""
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            points = read_file(self._path(device, sandbox))["points"]
            return {
                str(name): {**point, "rate": float(point["rate"]), "times": int(point["times"])}
                for name, point in points.items()
                if _is_rate(point["rate"]) and point["raised_on"]
            }
        return {}

    def _path(self, device: Device, sandbox: Mapping[str, str]) -> Path:
        return file_of(self.folder, _FORM, device, sandbox)


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
