"""What g++ says about the loops of the candidate's own C++.

A shim (a script of the compiler's name that comes first on PATH) makes the compiler write its remarks to a file. Unless
torch's headers come into it, it has the lines of the source noted, too (`-g1`, which changes no instruction; with it,
headers that are compiled already would not be taken). It adds no other option, so the build is the one that was timed.
Whatever calls `g++` goes through it: the candidate's own command, load_inline, TorchInductor.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....protocol.untrusted import text

FILE_PREFIX = "remarks."
COMPILERS = ("g++", "c++", "gcc", "cc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-g++")
_MAX_LOOPS = 20
_REMARK = re.compile(
    r"^(?P<file>[^:\n]{1,400}):(?P<line>\d{1,7}):\d+: (?P<kind>optimized|missed):(?P<step> +)(?P<words>.*)$"
)
_WIDTH = re.compile(r"loop vectorized using (\d+) byte vectors")
_FOREIGN = re.compile(r"^/usr/|/site-packages/|/dist-packages/|/torch/include/|/precompiled_headers/|/cpp_prefix")
# A loop that works on vectors already, which g++ cannot vectorise and need not: it has a vector's type at its own
# place, or calls what an intrinsic stands for or a vector function of the C library.
_VECTOR_TYPE = re.compile(r"no vectype for stmt: .*\b__m(?:128|256|512)")
_VECTOR_CALL = re.compile(r"statement clobbers memory: .*\b(?:__builtin_ia32_|_ZGV)")
_MAX_REASONS = 2
_OUTER = "an outer loop"
# Parts of g++'s remarks before it gives a loop up, and what they mean; those that say most come first.
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


def shim(compiler: str, folder: Path) -> str:
    """A shell script that runs `compiler` as it was called; each run writes its remarks to a new file in `folder`."""
    remarks = f"{folder}/{FILE_PREFIX}$$.txt"
    options = f'"$@" -fopt-info-vec-optimized-missed-internals={remarks}'
    return (
        f'#!/bin/sh\ncase "$*" in *torch/include*) lines= ;; *) lines=-g1 ;; esac\nexec {compiler} {options} $lines\n'
    )


@dataclass
class Loop:
    """A loop, with what g++ said about all versions that it made of it."""

    file: str
    line: int
    widths: set[int] = field(default_factory=set)  # bytes
    reasons: list[str] = field(default_factory=list)  # why a version of it was not vectorised
    versioned: str = ""  # why it has a second version that was not vectorised
    intrinsics: bool = False  # whether its own code works on vectors

    @property
    def vectorized(self) -> bool:
        """Whether at least one version of it was vectorised."""
        return bool(self.widths)

    def notes(self) -> list[str]:
        """Lines for a reader: why it was not vectorised, or why only some versions of it were."""
        if self.intrinsics and not self.vectorized:
            return []
        if self.vectorized:
            return [self.versioned] if self.versioned else []
        known = [reason for _, reason in _REASONS if reason in self.reasons]
        return list(dict.fromkeys(known))[:_MAX_REASONS] or ["g++ gives no plain reason"]


def parse(remarks: str) -> list[Loop]:
    """Read the loops of the candidate's own files from remarks, sorted by file and line.

    g++ first names its reasons, then says that it could not vectorise the loop.
    """
    loops: dict[tuple[str, int], Loop] = {}
    reasons: list[str] = []
    vectors: set[tuple[str, int] | None] = set()  # places of remarks that show vectors; None: the next loop's, anywhere
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
                    loop.intrinsics |= not vectors.isdisjoint({place, None})
            elif words.startswith("loop versioned"):
                loops.setdefault(place, Loop(*place)).versioned = words.rstrip(". ")[:80]
        if verdict:
            reasons, vectors = [], set()
        elif match["kind"] == "missed" and len(match["step"]) > 1:  # indented: a reason
            reasons += [reason for part, reason in _REASONS if part in words]
            if _VECTOR_TYPE.search(words):
                vectors.add(place)
            elif _VECTOR_CALL.search(words):
                vectors.add(None)
    return [loops[key] for key in sorted(loops)]


def condense(loops: list[Loop]) -> list[dict[str, Any]]:
    """List at most 20 loops as JSON, those that were not vectorised first. Outer loops are left out."""
    inner = [loop for loop in loops if _OUTER not in loop.notes()]
    inner.sort(key=lambda loop: loop.vectorized or loop.intrinsics)
    return [
        {
            "at": text(f"{loop.file.rpartition('/')[2]}:{loop.line}", 60),
            "vectorized": loop.vectorized,
            "vector_bytes": max(loop.widths) if loop.widths else None,
            "intrinsics": loop.intrinsics,
            "notes": [text(note) for note in loop.notes()],
        }
        for loop in inner[:_MAX_LOOPS]
    ]
