"""Hardware counters by Nsight Compute: which are asked for, and what its table tells of them.

The table comes from the candidate's process, so its form is checked and nothing in it is believed.
"""

import csv
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol.untrusted import number, text

QUESTIONS = ("occupancy", "memory", "compute", "stalls")
LAUNCHES = 40
"""The most kernels of a call that are watched."""

TIME = "gpu__time_duration.sum"
_MOST_ROWS, _MOST_COLUMNS, _MOST_LINE = LAUNCHES + 8, 64, 20_000
_BY_KERNEL = 4
_NAME_COLUMN, _ID_COLUMN = "Kernel Name", "ID"
_NUMBER = re.compile(r"(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_MISSING = re.compile(r"Failed to find metric (?:regex:\^)?([A-Za-z0-9_]{1,120})")
_REFUSED = "ERR_NVGPUCTRPERM"
_TO_NS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIXED = re.compile(r"([KMGT])(?:byte|inst|cycle|sector)")
_PERMISSION = (
    "the driver permits counters to administrators alone (ERR_NVGPUCTRPERM), and no process of a sandbox is one: load "
    "the kernel's module nvidia with NVreg_RestrictProfilingToAdminUsers=0"
)


@dataclass(frozen=True)
class Metric:
    """One figure.

    Attributes:
        names: what Nsight Compute calls it; the first that it knows is asked for, because names differ by version and
            by architecture.
        question: which of `QUESTIONS` it is part of the answer to.
        over: what is told of several kernels: their `sum`, the `mean` by their time, or that of the `longest`.
    """

    names: tuple[str, ...]
    question: str
    over: str = "mean"


def _stall(reason: str) -> Metric:
    return Metric((f"smsp__warp_issue_stalled_{reason}_per_warp_active.pct",), "stalls")


_ACTIVE, _ELAPSED = ".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"
# The 24 that a Judge gave better advice on than on all of them (CudaForge, arXiv 2511.01884).
METRICS = (
    Metric(("sm__warps_active" + _ACTIVE,), "occupancy"),
    Metric(("launch__registers_per_thread",), "occupancy", "longest"),
    Metric(("launch__occupancy_limit_registers",), "occupancy", "longest"),
    Metric(("launch__occupancy_limit_shared_mem",), "occupancy", "longest"),
    Metric(("launch__occupancy_limit_blocks",), "occupancy", "longest"),
    Metric(("dram__throughput" + _ELAPSED,), "memory"),
    Metric(("gpu__dram_throughput" + _ELAPSED,), "memory"),
    Metric(("dram__bytes.sum.per_second",), "memory"),
    Metric(("dram__bytes_read.sum", "dram__bytes_op_read.sum"), "memory", "sum"),
    Metric(("dram__bytes_write.sum", "dram__bytes_op_write.sum"), "memory", "sum"),
    Metric(("lts__throughput" + _ELAPSED,), "memory"),
    Metric(("lts__t_sector_hit_rate.pct",), "memory"),
    Metric(("l1tex__throughput" + _ACTIVE,), "memory"),
    Metric(("l1tex__t_sector_hit_rate.pct",), "memory"),
    Metric(("sm__inst_executed_pipe_tensor" + _ACTIVE, "sm__pipe_tensor_cycles_active" + _ACTIVE), "compute"),
    Metric(("sm__inst_executed_pipe_fp32" + _ACTIVE, "sm__inst_executed_pipe_fma" + _ACTIVE), "compute"),
    Metric(("sm__inst_executed.sum",), "compute", "sum"),
    Metric(("sm__cycles_active.avg",), "compute", "sum"),
    Metric(("smsp__sass_average_branch_targets_threads_uniform.pct",), "compute"),
    _stall("long_scoreboard"),
    _stall("memory_dependency"),
    _stall("short_scoreboard"),
    _stall("barrier"),
    _stall("branch_resolving"),
)

_OF_LAUNCHES = "launch__"
COLLECTIONS = ("profiling", "launch", "occupancy")
"""Where Nsight Compute lists metrics of the hardware, and of launches; not all versions have the last."""

WORDS = tuple(sorted({name.split(".")[0] for metric in METRICS for name in metric.names}))
"""What lines of its lists begin with that matter here."""


def query(collection: str) -> list[str]:
    """The arguments by which Nsight Compute lists the metrics of this GPU."""
    return ["--query-metrics", "--query-metrics-collection", collection]


@dataclass(frozen=True)
class Chosen:
    """The metrics to ask for, and the first names of those that this version does not know here."""

    asked: Mapping[str, Metric]
    unknown: tuple[str, ...]


def choose(known: Collection[str], *, listed: Collection[str]) -> Chosen:
    """Choose among names of each metric.

    Args:
        known: the names, without suffix, that were listed.
        listed: the collections that were listed at all. Without a list, the first name is tried.
    """
    asked: dict[str, Metric] = {}
    unknown = []
    for metric in METRICS:
        of_launch = metric.names[0].startswith(_OF_LAUNCHES)
        is_listed = not {"launch", "occupancy"}.isdisjoint(listed) if of_launch else "profiling" in listed
        found = next((name for name in metric.names if name.split(".")[0] in known), None)
        if found is None and is_listed:
            unknown.append(metric.names[0])
        else:
            asked[found or metric.names[0]] = metric
    return Chosen(asked, tuple(unknown))


def without(chosen: Chosen, log: str) -> Chosen:
    """The same without what Nsight Compute says it does not find; the same object if it says so of nothing."""
    missing = set(_MISSING.findall(log))
    left = {name: metric for name, metric in chosen.asked.items() if name.split(".")[0] not in missing}
    if len(left) == len(chosen.asked):
        return chosen
    gone = (metric.names[0] for name, metric in chosen.asked.items() if name not in left)
    return Chosen(left, (*chosen.unknown, *gone))


def arguments(asked: Collection[str]) -> list[str]:
    """Those by which Nsight Compute measures these metrics of a program's marked part, with cold caches."""
    return [
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--clock-control", "none"),  # locking clocks needs rights, and calls are timed without
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--launch-count", str(LAUNCHES)),
        *("--metrics", ",".join((TIME, *asked))),
    ]


def listed_names(lines: str) -> set[str]:
    """The names at the beginnings of lines, without suffix."""
    return set(re.findall(r'^[ "]*([a-z0-9]+__[A-Za-z0-9_]+)', lines, re.MULTILINE))


def version(log: str) -> str:
    """The version that it tells of itself; empty if it tells none."""
    match = re.search(r"^Version (\S{1,40})", log, re.MULTILINE)
    return text(match[1], 40) if match else ""


@dataclass(frozen=True)
class Launch:
    """One kernel that was watched: its name, its nanoseconds (None: not told), and the metrics that were told."""

    kernel: str
    time_ns: float | None
    values: Mapping[str, float]


def parse(log: str, asked: Collection[str]) -> list[Launch]:
    """Read Nsight Compute's table (`--csv --page raw`): a line of names, a line of units, a line for each launch.

    Lines before the table are passed over, and so are lines of another width, such as the last of a table that was cut.

    Raises:
        ValueError: there is no table of these metrics.
    """
    columns: list[str] = []
    units: list[str] = []
    found: list[Launch] = []
    for line in log.split("\n"):
        if line.startswith("==") or len(line) > _MOST_LINE:
            continue
        cells = _cells(line)
        if not columns:
            if cells[:1] == [_ID_COLUMN] and _NAME_COLUMN in cells and len(cells) <= _MOST_COLUMNS:
                columns = cells
                if len(set(columns)) != len(columns):
                    raise ValueError("a table with two columns of one name")
            continue
        if len(cells) != len(columns) or len(found) >= _MOST_ROWS:
            continue
        if not units and not cells[0]:
            units = cells
            continue
        row = dict(zip(columns, cells, strict=True))
        unit_of = dict(zip(columns, units or [""] * len(columns), strict=True))
        time_ns = _value(row.get(TIME), _TO_NS.get(unit_of.get(TIME, ""), 0.0))
        values = {
            name: value
            for name in asked
            if (value := _value(row.get(name), _factor(unit_of.get(name, "")))) is not None
        }
        if values or time_ns:
            found.append(Launch(text(row[_NAME_COLUMN], 120), time_ns or None, values))
    if not found:
        raise ValueError("no table of metrics")
    return found


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _value(cell: str | None, factor: float) -> float | None:
    """The number of a cell; None where it holds none, as Nsight Compute's `n/a`."""
    if cell is None or len(cell) > 40 or _NUMBER.fullmatch(cell) is None:
        return None
    try:
        return number(float(cell.replace(",", "")) * factor)
    except ValueError:
        return None


def _factor(unit: str) -> float:
    match = _PREFIXED.match(unit)
    return _PREFIXES[match[1]] if match else 1.0


def fold(launches: Sequence[Launch], asked: Mapping[str, Metric]) -> dict[str, Any]:
    """The figures of a whole call by question, and of its longest kernels by name."""
    names = list(dict.fromkeys(each.kernel for each in launches))
    groups = {name: [each for each in launches if each.kernel == name] for name in names}
    total_ns = math.fsum(each.time_ns or 0.0 for each in launches)
    longest = sorted(names, key=lambda name: -math.fsum(each.time_ns or 0.0 for each in groups[name]))
    whole = _folded(launches, asked)
    return {
        "launches": len(launches),
        "time_us": number(total_ns / 1e3) if total_ns else None,
        **{
            question: {name: whole[name] for name in asked if asked[name].question == question and name in whole}
            for question in QUESTIONS
        },
        "by_kernel": [
            {
                "kernel": name,
                "launches": len(groups[name]),
                "share": number(math.fsum(each.time_ns or 0.0 for each in groups[name]) / total_ns)
                if total_ns
                else None,
                "metrics": _folded(groups[name], asked),
            }
            for name in longest[:_BY_KERNEL]
        ],
    }


def _folded(launches: Sequence[Launch], asked: Mapping[str, Metric]) -> dict[str, float]:
    found = {}
    for name, metric in asked.items():
        told = [(each.time_ns or 0.0, each.values[name]) for each in launches if name in each.values]
        if told:
            found[name] = number(_OVER[metric.over](told))
    return found


def _mean(told: Sequence[tuple[float, float]]) -> float:
    whole = math.fsum(time for time, _ in told)
    if whole <= 0:
        return math.fsum(value for _, value in told) / len(told)
    return math.fsum(time * value for time, value in told) / whole


_OVER: Mapping[str, Callable[[Sequence[tuple[float, float]]], float]] = {
    "sum": lambda told: min(1e18, math.fsum(value for _, value in told)),
    "mean": _mean,
    "longest": lambda told: max(told, key=lambda each: each[0])[1],
}


def reason(*, log: str, errors: str, status: object, timeout_s: float) -> str:
    """Why there is no table, as a line for people."""
    if status is None:
        return f"Nsight Compute did not end within {timeout_s:.0f} s"
    if _REFUSED in log or _REFUSED in errors:
        return _PERMISSION
    if said := re.search(r"^==ERROR==(.{1,400})", log, re.MULTILINE):
        return f"Nsight Compute: {text(said[1], 240)}"
    if "No kernels were profiled" in log:
        return "Nsight Compute saw no kernel in the call"
    last = text((errors.strip().splitlines() or [""])[-1], 200)
    return f"Nsight Compute told no table (status {text(status, 20)})" + (f": {last}" if last else "")
