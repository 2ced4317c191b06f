"""Figures of a device for those who write kernels for it: measured once in each sandbox, and kept on this host."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.device_files import file_of, read_file, today, write_file
from evaluator.platforms import Device, Platform
from evaluator.referee_process import run_referee
from sandbox.base import Limits, Sandbox

LIMITS = Limits(wall_s=90.0, memory_mb=4096, disk_mb=256)

_FORM = 1  # of the file, and of what is measured and how


@dataclass(frozen=True)
class DeviceFigures:
    """The figures as the platform's referee gives them, and the date on which they were measured."""

    values: Mapping[str, Any]
    sandbox: str
    measured_on: str


@dataclass(frozen=True)
class FigureStore:
    """A folder with one JSON file for each device and sandbox. To have a device measured anew, delete its file."""

    folder: Path

    def get(self, device: Device, sandbox: Mapping[str, str]) -> DeviceFigures | None:
        """What is kept of a device in a sandbox, which is described; None: nothing is."""
        return _figures(read_file(file_of(self.folder, _FORM, device, sandbox)))

    def put(self, device: Device, sandbox: Mapping[str, str], values: Mapping[str, Any]) -> None:
        """Keep figures that were measured today."""
        content = {"device": device.describe(), "form": _FORM, "sandbox": sandbox.get("name", "")}
        path = file_of(self.folder, _FORM, device, sandbox)
        write_file(path, {**content, "measured_on": today(), "figures": dict(values)})

    def known(self, device: Device) -> list[DeviceFigures]:
        """What is kept of a device in any sandbox, newest first."""
        contents = [read_file(path) for path in sorted(self.folder.glob("*.json"))]
        own = [each for each in contents if (each.get("device"), each.get("form")) == (device.describe(), _FORM)]
        found = [figures for each in own if (figures := _figures(each)) is not None]
        return sorted(found, key=lambda figures: figures.measured_on, reverse=True)


def measure_device(
    platform: Platform,
    device: int,
    sandbox: Sandbox,
    *,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Measure a device of this host in a sandbox; empty where the platform has nothing to measure.

    Raises:
        HarnessFailed: it could not be measured, or was cancelled.
        SandboxUnavailable: there is no sandbox to measure in.
    """
    if not platform.measurable:
        return {}
    found = run_referee(
        "device",
        platform,
        {"task_source": "", "memory_mb": LIMITS.memory_mb, "baselines": []},
        device=device,
        sandbox=sandbox,
        limits=LIMITS,
        on_progress=on_progress,
        cancel=cancel,
    )
    return dict(found["figures"])


def _figures(content: Mapping[str, Any]) -> DeviceFigures | None:
    values, sandbox, date = (content.get(name) for name in ("figures", "sandbox", "measured_on"))
    if not isinstance(values, dict) or not values or not isinstance(date, str):
        return None
    return DeviceFigures(values, str(sandbox), date)
