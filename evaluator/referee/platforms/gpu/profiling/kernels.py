"""Kernels of a call with what was launched, and what compilers made of them, out of a runner's answers.

The runner tells them, so their form is checked and nothing in them is believed.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from ....protocol.untrusted import number, rows, text

SHOWN = 12
_MOST_ROWS = 2000
_TOLD = ("registers_per_thread", "shared_bytes", "estimated_occupancy_pct", "blocks_per_sm", "warps_per_sm")
_FUNCTION = re.compile(r"\s*Function (.{1,1000}?):\s*$")
_USAGE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d{1,9})\b")
_USAGE_KEYS = {"REG": "registers", "STACK": "stack_bytes", "SHARED": "shared_bytes", "LOCAL": "local_bytes"}


def read_launches(told: object) -> list[dict[str, Any]]:
    """Of each kernel of a call by name, the longest first: share, microseconds, launches, and its longest launch.

    Raises:
        ValueError: it has another form.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, time_us, *details, grid, block in rows(told, width=4 + len(_TOLD), limit=_MOST_ROWS):
        time_us = number(time_us)
        known = found.setdefault(text(name, 120), {"launches": 0, "time_us": 0.0, "longest_us": -1.0, "launch": {}})
        known["launches"] += 1
        known["time_us"] += time_us
        if time_us > known["longest_us"]:
            launch: dict[str, Any] = {
                key: number(value) for key, value in zip(_TOLD, details, strict=True) if value is not None
            }
            launch |= {key: _extent(value) for key, value in (("grid", grid), ("block", block)) if value is not None}
            known.update(longest_us=time_us, launch=launch)
    total = math.fsum(each["time_us"] for each in found.values())
    longest = sorted(found.items(), key=lambda item: -item[1]["time_us"])
    return [
        {
            "kernel": name,
            "share": round(each["time_us"] / total, 4) if total else 0.0,
            "time_us": round(each["time_us"], 3),
            "launches": each["launches"],
            **each["launch"],
        }
        for name, each in longest[:SHOWN]
    ]


def _extent(value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("no extent of a grid or block")
    return [int(number(each)) for each in value]


def read_triton(told: object) -> list[dict[str, Any]]:
    """Of each kernel that Triton compiled: registers, spilled bytes, shared bytes, warps, stages, as far as told.

    Raises:
        ValueError: it has another form.
    """
    found = []
    for name, registers, spilled, shared, warps, stages in rows(told, width=6, limit=100):
        values = {
            "registers": registers,
            "spilled_bytes": None if spilled is None else number(spilled) * 4,  # Triton counts words
            "shared_bytes": shared,
            "warps": warps,
            "stages": stages,
        }
        counted = {key: int(number(value)) for key, value in values.items() if value is not None}
        found.append({"kernel": text(name, 120), "compiler": "triton", **counted})
    return found


def read_usage(told: object) -> list[dict[str, Any]]:
    """Of each kernel in the text of `cuobjdump --dump-resource-usage`: registers, stack, local and shared bytes.

    Of several machine codes of one kernel, for several architectures, the last is told.

    Raises:
        ValueError: it is no text.
    """
    if not isinstance(told, str):
        raise ValueError("no text of resources")
    found: dict[str, dict[str, Any]] = {}
    kernel = None
    for line in told.splitlines()[:20_000]:
        if match := _FUNCTION.match(line[:1200]):
            kernel = text(match[1].removeprefix("void "), 120)
        elif kernel is not None and (usage := _USAGE.findall(line[:1200])):
            values = {_USAGE_KEYS[key]: int(value) for key, value in usage}
            found[kernel] = {"kernel": kernel, "compiler": "nvcc", **values}
            kernel = None
    return list(found.values())[:100]


def those_that_ran(compiled: Sequence[dict[str, Any]], launches: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most 12 compiled kernels; first those with the name and the registers of one that was launched.

    An autotuner compiles many and launches one.
    """

    def rank(kernel: dict[str, Any]) -> int:
        named = [each for each in launches if _plain(each["kernel"]) == _plain(kernel["kernel"])]
        if any(each.get("registers_per_thread") == kernel.get("registers") for each in named):
            return 0
        return 1 if named else 2

    return sorted(compiled, key=rank)[:SHOWN]


def _plain(name: str) -> str:
    return name.removeprefix("void ").partition("(")[0].partition("<")[0].strip()
