"""The machine code in which samples were taken most often, with the lines of the source that it came from.

`objdump` of binutils disassembles the candidate's own libraries. Lines are known where these were built with `-g1`.
"""

import re
import subprocess
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STRETCHES = 3
"""Of the functions with most samples, one stretch each."""

LENGTH = 24  # instructions of a stretch
_LEAST_SHARE = 0.02  # of all samples, for a function to be shown
_MOST_BYTES = 64 << 10  # of one function
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
_LINE = re.compile(r"^(inlined by )?(/?[^\s:()]+):(\d+)(?: \(.*\))?$")
_HEADERS = re.compile(r"^/usr/|/site-packages/|/dist-packages/|/torch/include/")


@dataclass(frozen=True)
class Instruction:
    """An instruction: where it lies, what it does, and the line of the source that it is of; 0 if nobody knows.

    That of an intrinsic is the line that it was written in, not one of the compiler's headers.
    """

    address: int
    text: str
    file: str = ""
    line: int = 0


def parse(told: str) -> list[Instruction]:
    """Read what `objdump -d -l --inlines --no-show-raw-insn` has told.

    Before an instruction whose place differs from that of the one before stands the innermost place, if that is
    another, and then each place that this was inlined into.
    """
    found: list[Instruction] = []
    innermost, places, is_new = ("", 0), [("", 0)], True
    for row in told.splitlines():
        if place := _LINE.match(row):
            at = place[2], int(place[3])
            if not place[1]:
                innermost, places, is_new = at, [at], False
            elif is_new:
                places, is_new = [innermost, at], False
            else:
                places.append(at)
        elif instruction := _INSTRUCTION.match(row):
            text = " ".join(instruction[2].partition("#")[0].split())
            path, line = next((each for each in places if not _HEADERS.search(each[0])), ("", 0))
            found.append(Instruction(int(instruction[1], 16), text, path.rpartition("/")[2], line))
            is_new = True
    return found


def disassemble(path: str, start: int, stop: int) -> list[Instruction]:
    """The instructions of a library from `start` to before `stop`; none where binutils are missing or fail."""
    command = ["objdump", "-d", "-l", "--inlines", "-C", "--no-show-raw-insn"]
    command += [f"--start-address={start}", f"--stop-address={stop}", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return []
    return parse(done.stdout)


def hottest(code: list[Instruction], samples: Mapping[int, int]) -> list[Instruction]:
    """The stretch of at most `LENGTH` instructions with the most samples, by address; of several, the first."""
    if not code:
        return []
    counts = [samples.get(each.address, 0) for each in code]
    first = max(range(max(1, len(code) - LENGTH + 1)), key=lambda at: (sum(counts[at : at + LENGTH]), -at))
    return code[first : first + LENGTH]


def stretches(
    samples: Mapping[str, Counter[int]], symbols: Mapping[str, tuple[list[int], list[str]]], total: int
) -> list[list[Any]]:
    """The stretches of machine code with most samples, for at most `STRETCHES` functions.

    Args:
        samples: by library, how often the counter stood at an address in it.
        symbols: by library, its functions' addresses, in order, and their names.
        total: the number of all samples.

    Returns:
        Rows of [function, library, share, instructions]; an instruction is [share, text, file, line].
    """
    functions: Counter[tuple[str, int]] = Counter()
    for path, addresses in samples.items():
        starts = symbols[path][0]
        for address, count in addresses.items():
            at = bisect_right(starts, address) - 1
            if at >= 0:
                functions[path, at] += count
    found = []
    for (path, at), count in functions.most_common(STRETCHES):
        if count < _LEAST_SHARE * total:
            break
        starts, names = symbols[path]
        stop = next((start for start in starts[at + 1 :] if start > starts[at]), starts[at] + _MOST_BYTES)
        code = disassemble(path, starts[at], min(stop, starts[at] + _MOST_BYTES))
        rows = [
            [samples[path].get(each.address, 0) / total, each.text[:120], each.file[:60], each.line]
            for each in hottest(code, samples[path])
        ]
        if rows:
            found.append([names[at], path.rpartition("/")[2], count / total, rows])
    return found
