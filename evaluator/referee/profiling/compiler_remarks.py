"""What g++ says about the loops of the candidate's own C++: a shim on PATH asks for it, and here it is condensed.

The shim only adds options, so whatever builds by `g++` (a candidate's own command, load_inline, TorchInductor) is seen.
"""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..protocol.untrusted import text

COMPILERS = ("g++", "c++", "gcc", "cc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-g++")
_MAX_LOOPS = 20
_REMARK = re.compile(
    r"^(?P<file>[^:\n]{1,400}):(?P<line>\d{1,7}):\d+: (?P<kind>optimized|missed):(?P<step> +)(?P<words>.*)$"
)
_WIDTH = re.compile(r"loop vectorized using (\d+) byte vectors")
_FOREIGN = re.compile(r"^/usr/|/site-packages/|/dist-packages/|/torch/include/|/precompiled_headers/|/cpp_prefix")
_MAX_REASONS = 2
_OUTER_SHARE = 0.1
_OUTER = "an outer loop"
# What g++ says on the way to giving a loop up, the telling ones first; everything else it says follows from these.
_REASONS = (
    ("multiple nested loops", _OUTER),
    ("loop nest containing", _OUTER),
    ("possible dependence between data-refs", "an iteration may need what an earlier one wrote"),
    ("function is not vectorizable", "it calls a function that has no vector form"),
    ("control flow in loop", "it branches or has more than one way out"),
    ("number of iterations cannot be computed", "its number of iterations is not known before it runs"),
    ("number of times the loop body executes", "its number of iterations is not known before it runs"),
    ("complicated access pattern", "it reaches memory in no fixed pattern"),
    ("not suitable for gather", "it reaches memory in no fixed pattern"),
    ("not suitable for scatter", "it writes memory in no fixed pattern"),
    ("will not create alias checks", "its pointers may point to the same memory"),
    ("number of versioning for alias run-time tests exceeds", "its pointers may point to the same memory"),
    ("unsupported use in stmt", "a value is carried from iteration to iteration in an unknown way"),
    ("relevant stmt not supported", "an operation in it has no vector form"),
    ("not profitable", "g++ takes vectors to be slower here"),
    ("never profitable", "g++ takes vectors to be slower here"),
)


def shim(compiler: str, folder: str, flags: Iterable[str]) -> str:
    """A script that runs `compiler` as it was called, with remarks into a file of their own under `folder`."""
    extra = " ".join(flags)
    return (
        f'#!/bin/sh\nexec {compiler} "$@" {extra} -fopt-info-vec-optimized-missed-internals={folder}/remarks.$$.txt\n'
    )


@dataclass
class Loop:
    """A loop as g++ saw it, over all versions of it that g++ made."""

    file: str
    line: int
    widths: set[int] = field(default_factory=set)  # bytes
    reasons: list[str] = field(default_factory=list)  # why a version of it was not vectorised
    versioned: str = ""  # why it has a second version that is not

    @property
    def vectorized(self) -> bool:
        """Whether at least one version of it is."""
        return bool(self.widths)

    def notes(self) -> list[str]:
        """What to tell a reader."""
        if self.vectorized:
            return [self.versioned] if self.versioned else []
        known = [reason for _, reason in _REASONS if reason in self.reasons]
        return list(dict.fromkeys(known))[:_MAX_REASONS] or ["g++ gives no plain reason"]


def parse(remarks: str) -> list[Loop]:
    """The loops of the candidate's own files that remarks speak of, in the order of file and line.

    g++ says first why, then that it could not vectorise a loop.
    """
    loops: dict[tuple[str, int], Loop] = {}
    reasons: list[str] = []
    for row in remarks.splitlines():
        match = _REMARK.match(row)
        if match is None:
            continue
        words = match["words"]
        place = match["file"], int(match["line"])
        width = _WIDTH.match(words)
        verdict = width is not None or words.startswith("couldn't vectorize loop")
        if not _FOREIGN.search(place[0]):
            if verdict:
                loop = loops.setdefault(place, Loop(*place))
                if width is not None:
                    loop.widths.add(int(width[1]))
                else:
                    loop.reasons += reasons
            elif words.startswith("loop versioned"):
                loops.setdefault(place, Loop(*place)).versioned = words.rstrip(". ")[:80]
        if verdict:
            reasons = []
        elif match["kind"] == "missed" and len(match["step"]) > 1:  # indented: on the way to a verdict
            reasons += [reason for part, reason in _REASONS if part in words]
    return [loops[key] for key in sorted(loops)]


def condense(loops: list[Loop], cost: Counter[tuple[str, int]]) -> list[dict[str, Any]]:
    """At most 20 loops, those with the most instructions first (by line, as callgrind counted; may be empty).

    A loop is charged with the lines from its head to the next loop's. Without counts, and among equals, a loop that
    could not be vectorised comes first. Outer loops are left out unless much happens in them.
    """
    total = sum(cost.values())
    spent_in = _costs_by_file(cost)
    rows = []
    for index, loop in enumerate(loops):
        following = loops[index + 1] if index + 1 < len(loops) else None
        end = following.line if following is not None and following.file == loop.file else loop.line + 200
        # Told apart by file name alone, for the two builds lie in folders of their own.
        name = _name(loop.file)
        numbers, sums = spent_in.get(name, ([], [0]))
        spent = sums[bisect.bisect_left(numbers, end)] - sums[bisect.bisect_left(numbers, loop.line)]
        share = spent / total if total else None
        if _OUTER in loop.notes() and (share or 0.0) < _OUTER_SHARE:
            continue
        row: dict[str, Any] = {
            "at": text(f"{name}:{loop.line}", 60),
            "vectorized": loop.vectorized,
            "vector_bytes": max(loop.widths) if loop.widths else None,
            "notes": [text(note) for note in loop.notes()],
        }
        if share is not None:
            row["own_instructions_share"] = round(share, 4)
        rows.append((-(share or 0.0), loop.vectorized, index, row))
    rows.sort(key=lambda entry: entry[:3])
    return [row for *_, row in rows[:_MAX_LOOPS]]


def _costs_by_file(cost: Counter[tuple[str, int]]) -> dict[str, tuple[list[int], list[int]]]:
    """For each file name the lines that cost something, and the running sum of costs before each."""
    lines: dict[str, dict[int, int]] = {}
    for (file, line), part in cost.items():
        of_file = lines.setdefault(_name(file), {})
        of_file[line] = of_file.get(line, 0) + part
    found = {}
    for name, of_file in lines.items():
        numbers = sorted(of_file)
        found[name] = numbers, [0, *itertools.accumulate(of_file[number] for number in numbers)]
    return found


def _name(path: str) -> str:
    return path.rpartition("/")[2]
