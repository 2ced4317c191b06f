"""Instructions and simulated cache misses of one call, by valgrind's callgrind.

The runner sits under valgrind from its start, uninstrumented; client requests (magic instructions that valgrind alone
understands) switch instrumentation on around the call, because under instrumentation importing torch takes minutes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..runner.profiling.stack_sampler import OWN, compile_library

EVENTS = ("Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_ROWS = 8
_LEAST_SHARE = 0.001  # of all instructions, for a row of its own
_OUTPUT = "count.out"

# Valgrind 3.19 knows no AVX-512 and none of the other extensions named here, and computes each element of a fused
# multiply-add in a function of its own, 100 times as slow as a product and a sum.
BUILD_FLAGS = (
    "-g1", "-ffp-contract=off", "-mno-avx512f", "-mno-avxvnni", "-mno-gfni", "-mno-vaes", "-mno-vpclmulqdq",
)  # fmt: skip
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # valgrind runs one thread at a time, and waiting ones would be counted
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX",
    "ONEDNN_MAX_CPU_ISA": "AVX",
}
NOT_INHERITED = (
    "OMP_PROC_BIND", "OMP_PLACES", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_",
)  # fmt: skip

_REQUESTS = r"""
#include <valgrind/callgrind.h>
extern "C" void start() { CALLGRIND_START_INSTRUMENTATION; }
extern "C" void zero() { CALLGRIND_ZERO_STATS; }
extern "C" void dump() { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""


def build_requests(folder: Path) -> Any:
    """The client requests as functions `start`, `zero` and `dump`.

    Raises:
        OSError: there is no compiler.
        subprocess.CalledProcessError: valgrind's headers are missing.
    """
    return compile_library(folder, "requests", _REQUESTS)


@dataclass(frozen=True)
class Cache:
    """A cache as it is simulated: callgrind wants a power of two of sets."""

    size_bytes: int
    ways: int
    line_bytes: int = 64

    def option(self) -> str:
        """As valgrind's options want it."""
        return f"{self.size_bytes},{self.ways},{self.line_bytes}"

    def to_json(self) -> dict[str, int]:
        """As the profile names it."""
        return {"kib": self.size_bytes >> 10, "ways": self.ways, "line_bytes": self.line_bytes}


def caches() -> dict[str, Cache]:
    """The simulated caches I1, D1 and LL: those of this processor, each rounded down to a power of two of sets."""
    found = {"I1": Cache(32 << 10, 8), "D1": Cache(32 << 10, 8), "LL": Cache(32 << 20, 16)}
    deepest = 0
    for index in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size, ways, line = (
                (index / name).read_text().strip()
                for name in ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
            )
            cache = rounded(int(size.rstrip("K")) << 10, int(ways), int(line))
        except (OSError, ValueError):
            continue
        if level == "1":
            found["I1" if kind == "Instruction" else "D1"] = cache
        elif int(level) > deepest:
            deepest = int(level)
            found["LL"] = cache
    return found


def rounded(size_bytes: int, ways: int, line_bytes: int) -> Cache:
    """The largest cache of so many ways, at most `size_bytes` large, whose number of sets is a power of two.

    Raises:
        ValueError: no cache at all.
    """
    sets = size_bytes // (max(1, ways) * line_bytes)
    if sets < 1:
        raise ValueError(f"cache: {size_bytes} bytes in {ways} ways of {line_bytes}")
    return Cache((1 << sets.bit_length() - 1) * max(1, ways) * line_bytes, max(1, ways), line_bytes)


def command(folder: Path) -> list[str]:
    """What the interpreter's command line is put behind."""
    simulated = [f"--{name}={cache.option()}" for name, cache in caches().items()]
    return [
        "valgrind", "--tool=callgrind", "-q", "--vgdb=no", "--instr-atstart=no", "--cache-sim=yes",
        f"--callgrind-out-file={folder / _OUTPUT}", *simulated,
    ]  # fmt: skip


def output(folder: Path) -> Path:
    """Where callgrind writes its first dump."""
    return folder / f"{_OUTPUT}.1"


@dataclass
class Counts:
    """What a dump says: totals, and by function and by line of the candidate's own objects."""

    total: list[int] = field(default_factory=lambda: [0] * len(EVENTS))
    by_kind: Counter[str] = field(default_factory=Counter)  # instructions
    own: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    own_calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    lines: Counter[tuple[str, int]] = field(default_factory=Counter)  # instructions

    def functions(self) -> list[dict[str, Any]]:
        """The candidate's own functions with the most instructions, by file and name."""
        whole = max(1, self.total[0])
        ranked = sorted(self.own.items(), key=lambda item: -item[1][0])[:_ROWS]
        ranked = [item for item in ranked if item[1][0] >= _LEAST_SHARE * whole]
        return [
            {
                "function": name,
                "object": where.rpartition("/")[2],
                "calls_from_outside": self.own_calls[where, name],
                "instructions": costs[0],
                "instructions_share": round(costs[0] / whole, 4),
                "data_accesses": costs[1] + costs[2],
                "l1_misses": costs[4] + costs[5],
                "last_level_misses": costs[7] + costs[8],
            }
            for (where, name), costs in ranked
        ]

    def hot_lines(self) -> list[dict[str, Any]]:
        """The lines of source with the most instructions, also of functions that were inlined elsewhere."""
        whole = max(1, self.total[0])
        return [
            {"at": f"{file.rpartition('/')[2]}:{line}", "instructions_share": round(spent / whole, 4)}
            for (file, line), spent in self.lines.most_common(_ROWS)
            if line > 0 and spent >= _LEAST_SHARE * whole
        ]


def parse(text: str, kind_of: Any) -> Counts:
    """Read callgrind's format (valgrind's manual, "Callgrind Format Specification"), as far as callgrind writes it.

    Lines that are none of that format are passed over: a candidate may have written them.
    """
    counts = Counts()
    names: dict[tuple[str, str], str] = {}
    where = function = file = ""
    target_object = target = ""
    order = list(range(len(EVENTS)))
    line_number = 0
    skip_next = False
    for line in text.splitlines():
        if not line:
            continue
        first = line[0]
        if first.isdigit() or first in "+-*":
            fields = line.split()
            line_number = _position(fields[0], line_number)
            if skip_next:
                skip_next = False
                continue
            costs = [_count(value) for value in fields[1:]]
            _add(counts, kind_of(where), (where, function), (file, line_number), costs, order)
            continue
        key, equals, value = line.partition("=")
        if not equals:
            if line.startswith("events: "):
                order = [EVENTS.index(name) if name in EVENTS else -1 for name in line.split()[1:]]
            continue
        if key == "ob":
            where = _name(names, "ob", value)
        elif key == "cob":
            target_object = _name(names, "ob", value)
        elif key in ("fl", "fi", "fe"):
            file = _name(names, "fl", value)
        elif key in ("cfi", "cfl"):
            _name(names, "fl", value)
        elif key == "fn":
            function = _name(names, "fn", value)
            target_object = where
        elif key == "cfn":
            target = _name(names, "fn", value)
        elif key == "calls":
            skip_next = True
            called = target_object or where
            if called != where and kind_of(called) == OWN:
                counts.own_calls[called, target] += _count(value.partition(" ")[0])
            target_object = where
    return counts


def _add(
    counts: Counts, kind: str, function: tuple[str, str], line: tuple[str, int], costs: list[int], order: list[int]
) -> None:
    row = counts.own.setdefault(function, [0] * len(EVENTS)) if kind == OWN else None
    for event, cost in _pairs(order, costs):
        counts.total[event] += cost
        if row is not None:
            row[event] += cost
        if event == 0:
            counts.by_kind[kind] += cost
            if row is not None:
                counts.lines[line] += cost


def _pairs(order: list[int], costs: list[int]) -> Iterator[tuple[int, int]]:
    return ((event, cost) for event, cost in zip(order, costs, strict=False) if event >= 0)


def _count(text: str) -> int:
    """A count as callgrind writes it; 0 for what none is."""
    return int(text) if len(text) < 19 and text.isascii() and text.isdigit() else 0


def _position(text: str, before: int) -> int:
    """A line number, absolute or relative to the one before."""
    if text == "*":
        return before
    try:
        return before + int(text) if text[0] in "+-" else int(text)
    except ValueError:
        return before


def _name(names: dict[tuple[str, str], str], space: str, value: str) -> str:
    """Resolve `(7) name`, or `(7)` for a name given before."""
    number, closing, name = value.partition(")")
    if not number.startswith("(") or not closing:
        return value
    if name.strip():
        names[space, number] = name.strip()
    return names.get((space, number), "?")
