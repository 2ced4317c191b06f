"""Why a kernel is as fast as it is: its profile as shares, loops, resources and sentences.

All of it was told by compilers, or by the candidate's own process; none of it is evidence. A part that is missing or
malformed is left out.
"""

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.records import EvaluationRecord
from evaluator.platforms import PLATFORM_NAMES, load_platform
from service.views.evaluation import EvaluationView, number
from service.views.safe_text import one_line

_LEAST_SHARE = 0.005
_MOST = 12
_MOST_LOOPS = 20
_MOST_STRETCHES = 3
_MOST_INSTRUCTIONS = 24
_MOST_RESOURCES = 24
_MOST_SOURCE_LINES = 5000
_MOST_OPENINGS = 200
_PREFIXES = 3  # lines that a build may put before the candidate's own text: torch's header, say
_OPENING = re.compile(r"(?:\"\"\"|''')")
_LOOP = re.compile(r"\b(?:for|while|do)\b|#\s*pragma")
_WRITTEN = re.compile(r"\S")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class SourceLine:
    """A line of the candidate's file, from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class Share:
    """A part of a whole, from 0 to 1, and the line of the source that it belongs to, if one is found."""

    name: str
    share: float
    where: str = ""
    line: SourceLine | None = None


@dataclass(frozen=True)
class Regions:
    """Shares of one whole: what it is, who said so, and the parts from the largest to the smallest."""

    title: str
    source: str
    shares: tuple[Share, ...]

    @property
    def rest(self) -> float:
        """What the parts leave of the whole."""
        return max(0.0, 1.0 - sum(each.share for each in self.shares))


@dataclass(frozen=True)
class Loop:
    """A loop as the compiler sees it. `good` says whether it works on vectors, `made` how, `notes` why not."""

    at: str
    good: bool
    made: str
    notes: tuple[str, ...]
    line: SourceLine | None


@dataclass(frozen=True)
class Instruction:
    """An instruction of a stretch: the share of all samples at it, and the line of the source, if one is found."""

    share: float
    text: str
    at: str
    line: SourceLine | None


@dataclass(frozen=True)
class HotCode:
    """The stretch of a function's machine code in which most samples were taken."""

    function: str
    where: str
    share: float
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of a GPU, by its compiler: words such as `40 registers`; `spilled` bytes or registers."""

    architecture: str
    kernel: str
    words: str
    spilled: float
    occupancy: float | None


@dataclass(frozen=True)
class Why:
    """The profile of an evaluation.

    Attributes:
        sentences: what the figures say.
        regions: where the time goes, from the coarsest to the finest.
        loops: the loops of the candidate's own code, those that are not vectorised first.
        loops_seen: how many the compiler spoke of.
        hot: the machine code in which the time goes, function by function.
        resources: what its kernels take of GPUs that they were compiled for.
        instructions: by architecture, the kinds of instructions of the machine code with their numbers.
        absent: what could not be measured, and why.
        told: the profile as the models are told it.
    """

    sentences: tuple[str, ...]
    regions: tuple[Regions, ...]
    loops: tuple[Loop, ...]
    loops_seen: int
    hot: tuple[HotCode, ...]
    resources: tuple[Resources, ...]
    instructions: tuple[tuple[str, str], ...]
    absent: tuple[tuple[str, str], ...]
    told: str


def why(record: EvaluationRecord, view: EvaluationView, source: str) -> Why:
    """The profile of an evaluation of this source."""
    profile = _mapping(record.result.get("profile"))
    detail = _mapping(profile.get("detail"))
    lines = source.splitlines()[:_MOST_SOURCE_LINES]
    regions = tuple(each for each in _regions(profile, detail, lines) if each.shares)
    loops, seen = _loops(_mapping(detail.get("vectorization")), lines)
    hot = _hot(_mapping(detail.get("processor_time")), _mapping(detail.get("vectorization")), lines)
    compiled = [each for each in _sequence(_mapping(profile.get("screening")).get("compiled")) if _mapping(each)]
    resources = tuple(_resources(compiled))
    sentences = [*_roofline(view), *_calls(_mapping(detail.get("calls"))), *_time(regions)]
    sentences += [*_of_loops(loops, seen), *_of_resources(resources)]
    return Why(
        sentences=tuple(sentences),
        regions=regions,
        loops=loops,
        loops_seen=seen,
        hot=hot,
        resources=resources,
        instructions=tuple(_instructions(compiled)),
        absent=tuple(
            (str(name).replace("_", " ")[:60], str(reason)[:300])
            for name, reason in list(_mapping(detail.get("absent")).items())[:12]
        ),
        told=_told(record.platform, profile),
    )


def _told(platform: str, profile: Mapping[str, Any]) -> str:
    """The platform's text; empty where the stored profile is not one that this version writes."""
    if not profile or platform not in PLATFORM_NAMES:
        return ""
    try:
        return load_platform(platform).profile_text(dict(profile))
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return ""


# Where the time goes


def _regions(profile: Mapping[str, Any], detail: Mapping[str, Any], lines: Sequence[str]) -> list[Regions]:
    times = _mapping(detail.get("processor_time"))
    kernels = _mapping(detail).get("kernels_claimed") or profile.get("kernels_claimed")
    operators = _mapping(detail.get("operators"))
    return [
        Regions("Processor time by kind of code", str(times.get("source") or ""), _shares(times.get("kinds"), "kind"))
        if times
        else Regions(
            "Processor time by file", "claimed by the candidate's process", _pairs(profile.get("time_by_file"))
        ),
        Regions(
            "Its own functions",
            "of the same processor time",
            tuple(
                Share(each.name, each.share, each.where, _line_of_function(each.name, lines))
                for each in _shares(times.get("own_functions"), "function", "object")
            ),
        ),
        Regions("Its kernels on the device", "claimed by the candidate's process", _pairs(kernels)),
        Regions(
            "Torch's operators", str(operators.get("source") or ""), _shares(operators.get("operators"), "operator")
        )
        if operators
        else Regions(
            "Torch's operators",
            "claimed by the candidate's process",
            _pairs(profile.get("torch_operators_claimed")),
        ),
    ]


def _shares(rows: object, name: str, where: str = "") -> tuple[Share, ...]:
    found = [
        Share(str(row.get(name) or "?")[:200], min(max(share, 0.0), 1.0), str(row.get(where) or "")[:60])
        for row in _sequence(rows)
        if isinstance(row, Mapping) and (share := number(row.get("share"))) is not None
    ]
    return _largest(found)


def _pairs(rows: object) -> tuple[Share, ...]:
    found = [
        Share(str(row[0])[:200], min(max(share, 0.0), 1.0))
        for row in _sequence(rows)
        if isinstance(row, Sequence) and len(row) == 2 and (share := number(row[1])) is not None
    ]
    return _largest(found)


def _largest(shares: list[Share]) -> tuple[Share, ...]:
    kept = [each for each in shares if each.share >= _LEAST_SHARE]
    return tuple(sorted(kept, key=lambda each: -each.share)[:_MOST])


def _line_of_function(name: str, lines: Sequence[str]) -> SourceLine | None:
    """The first line of the source in which a function of this name, as a linker has it, has arguments."""
    found = _IDENTIFIER.findall(name.partition("(")[0].partition(".")[0].partition("<")[0])
    if not found:
        return None
    head = re.compile(rf"(?<![\w.>]){re.escape(found[-1])}\s*\(")
    for place, line in enumerate(lines, 1):
        if head.search(line[:2000]):
            return SourceLine(place, line.strip()[:300])
    return None


# Loops


def _loops(told: Mapping[str, Any], lines: Sequence[str]) -> tuple[tuple[Loop, ...], int]:
    rows = [row for row in _sequence(told.get("loops")) if isinstance(row, Mapping)][:_MOST_LOOPS]
    places = [_place(row) for row in rows]
    openings, looping = _openings(lines), _lines_with(_LOOP, lines)
    shifts = {
        file: _shift([(place, looping) for f, place in places if f == file], openings)
        for file in {file for file, _ in places}
    }
    found = []
    for row, (file, place) in zip(rows, places, strict=True):
        shift = shifts[file]
        at = None if shift is None else place + shift
        line = None if at is None else SourceLine(at, lines[at - 1].strip()[:300])
        vector_bytes = number(row.get("vector_bytes"))
        if row.get("vectorized"):
            good, made = True, "vectors" if vector_bytes is None else f"vectors of {vector_bytes:.0f} bytes"
        elif row.get("intrinsics"):
            good, made = True, "vectors by its own intrinsics"
        else:
            good, made = False, "not vectorized"
        notes = tuple(str(note)[:200] for note in _sequence(row.get("notes"))[:4])
        found.append(Loop(str(row.get("at") or "?")[:80], good, made, notes, line))
    return tuple(found), max(len(found), int(number(told.get("loops_seen")) or 0))


def _place(row: Mapping[str, Any]) -> tuple[str, int]:
    file, _, line = str(row.get("at") or "").rpartition(":")
    return file, int(line) if line.isascii() and line.isdigit() and len(line) < 8 else 0


def _openings(lines: Sequence[str]) -> list[int]:
    """The lines of the source in which a string of several lines may begin."""
    return sorted(_lines_with(_OPENING, lines))[:_MOST_OPENINGS]


def _lines_with(pattern: re.Pattern[str], lines: Sequence[str]) -> set[int]:
    return {place for place, line in enumerate(lines, 1) if pattern.search(line[:2000])}


def _shift(places: Sequence[tuple[int, Container[int]]], openings: Sequence[int]) -> int | None:
    """What to add to a line of a compiled file for the line of the candidate's source that it came from.

    The compiled text stands in the source as a string of several lines. A string fits if each line that is spoken of
    holds what it must hold.

    Args:
        places: lines of the compiled file, each with the lines of the source that it may be (a loop's: those with one).
        openings: the lines of the source in which a string may begin.
    """
    for prefix in range(1, 1 + _PREFIXES):
        for opening in openings:
            if all(place + opening - prefix in allowed for place, allowed in places):
                return opening - prefix
    return None


# Machine code


def _hot(times: Mapping[str, Any], vectorization: Mapping[str, Any], lines: Sequence[str]) -> tuple[HotCode, ...]:
    told = [each for each in _sequence(times.get("hot_code")) if isinstance(each, Mapping)][:_MOST_STRETCHES]
    rows = [
        [row for row in _sequence(each.get("instructions")) if isinstance(row, Mapping)][:_MOST_INSTRUCTIONS]
        for each in told
    ]
    loops = [_place(row) for row in _sequence(vectorization.get("loops")) if isinstance(row, Mapping)][:_MOST_LOOPS]
    where = _own_lines([_place(row) for each in rows for row in each if row.get("at")], loops, lines)
    found = []
    for each, instructions in zip(told, rows, strict=True):
        made = tuple(
            Instruction(
                min(max(number(row.get("share")) or 0.0, 0.0), 1.0),
                str(row.get("text") or "?")[:120],
                str(row.get("at") or "")[:80],
                where.get(_place(row)),
            )
            for row in instructions
        )
        share = min(max(number(each.get("share")) or 0.0, 0.0), 1.0)
        if made:
            name, place = str(each.get("function") or "?")[:200], str(each.get("object") or "")[:60]
            found.append(HotCode(name, place, share, made))
    return tuple(found)


def _own_lines(
    places: Sequence[tuple[str, int]], loops: Sequence[tuple[str, int]], lines: Sequence[str]
) -> dict[tuple[str, int], SourceLine]:
    """The lines of the source for places of compiled files, so that its loops are loops and no line is empty."""
    openings, looping, written = _openings(lines), _lines_with(_LOOP, lines), _lines_with(_WRITTEN, lines)
    found: dict[tuple[str, int], SourceLine] = {}
    for file in {file for file, _ in places}:
        of_file = [place for f, place in places if f == file]
        needs = [*((place, looping) for f, place in loops if f == file), *((place, written) for place in of_file)]
        shift = _shift(needs, openings)
        if shift is not None:
            found |= {
                (file, place): SourceLine(place + shift, lines[place + shift - 1].strip()[:300]) for place in of_file
            }
    return found


# GPUs


def _resources(compiled: Sequence[Any]) -> list[Resources]:
    found = []
    for told in compiled[:8]:
        for kernel in _sequence(told.get("kernels")):
            if not isinstance(kernel, Mapping):
                continue
            words = [
                f"{count:.0f} {what}"
                for key, what in (
                    *(("registers", "registers"), ("vgprs", "VGPRs"), ("sgprs", "SGPRs"), ("agprs", "AGPRs")),
                    *(("shared_bytes", "bytes shared"), ("stack_bytes", "bytes of stack")),
                )
                if (count := number(kernel.get(key)))
            ]
            spilled = sum(
                number(kernel.get(key)) or 0.0 for key in ("spill_stores", "spill_loads", "vgpr_spills", "sgpr_spills")
            )
            found.append(
                Resources(
                    str(told.get("architecture") or "?")[:20],
                    str(kernel.get("kernel") or "?")[:160],
                    ", ".join(words) or "nothing of note",
                    spilled,
                    number(kernel.get("occupancy")),
                )
            )
    return found[:_MOST_RESOURCES]


def _instructions(compiled: Sequence[Any]) -> list[tuple[str, str]]:
    found = []
    for told in compiled[:8]:
        counts = {str(kind)[:40]: count for kind, each in _mapping(told.get("sass")).items() if (count := number(each))}
        whole = counts.pop("all", None)
        mix = sorted(counts.items(), key=lambda item: -item[1])[:8]
        if mix:
            text = ", ".join(f"{count:,.0f} {kind}" for kind, count in mix)
            found.append((str(told.get("architecture") or "?")[:20], f"{whole:,.0f} in all: {text}" if whole else text))
    return found


# Sentences


def _roofline(view: EvaluationView) -> list[str]:
    found, clock = view.roofline, view.clock
    if found is None:
        return []
    took = next((line.median_ms for line in view.latencies if line.name == "candidate"), None)
    what = {"memory": "how fast memory moves its bytes", "cache": "how fast caches move its bytes"}.get(
        found.bound, "how fast the device calculates"
    )
    sentences = [f"What bounds it is {what}. It reaches {_percent(found.fraction)} of that limit."]
    if took is not None:
        sentences[0] += f" A call takes {took:.4g} {clock.unit}, and could not take less than {found.limit_ms:.4g}."
    if found.bytes_moved and found.achieved_gb_per_s and found.bound != "compute":
        sentences.append(
            f"It must move {_amount(found.bytes_moved)} bytes, and moves {found.achieved_gb_per_s:.3g} "
            f"{clock.bandwidth_unit}" + (f" of {found.peak_gb_per_s:.3g}." if found.peak_gb_per_s else ".")
        )
    if found.flops and found.achieved_gflop_per_s:
        per_byte = f", {found.flops / found.bytes_moved:.3g} for each byte" if found.bytes_moved else ""
        sentences.append(
            f"It must do {_amount(found.flops)} floating-point operations{per_byte}, and does "
            f"{found.achieved_gflop_per_s:.3g} {clock.compute_unit}"
            + (f" of {found.peak_gflop_per_s:.3g}." if found.peak_gflop_per_s else ".")
        )
    return sentences


def _calls(calls: Mapping[str, Any]) -> list[str]:
    wall, spent = number(calls.get("wall_ms_per_call")), number(calls.get("processor_ms_per_call"))
    if wall is None or spent is None:
        return []
    threads = number(calls.get("threads_used"))
    busy = [
        _percent(share)
        for each in _sequence(calls.get("thread_busy_shares"))[:8]
        if (share := number(each)) is not None
    ]
    used = "" if threads is None else f" on {threads:.0f} thread{'' if threads == 1 else 's'}"
    shares = f", busy {', '.join(busy)} of the time" if busy else ""
    return [f"A profiled call takes {wall:.3g} ms and {spent:.3g} ms of processor time{used}{shares}."]


def _time(regions: Sequence[Regions]) -> list[str]:
    found = []
    for each in regions:
        first = each.shares[0]
        found.append(f"{each.title}: {_percent(first.share)} is {one_line(first.name, 80)}.")
    return found


def _of_loops(loops: Sequence[Loop], seen: int) -> list[str]:
    if not loops:
        return []
    good = sum(loop.good for loop in loops)
    said = f"{good} of {len(loops)} loops of its own code work on vectors."
    if seen > len(loops):
        said = (
            f"Of the {len(loops)} loops listed, {good} work on vectors; the compiler spoke of {seen}, outer ones too."
        )
    reasons = list(dict.fromkeys(note for loop in loops if not loop.good for note in loop.notes))
    return [
        said + (f" The others do not: {'; '.join(one_line(each, 120) for each in reasons[:3])}." if reasons else "")
    ]


def _of_resources(resources: Sequence[Resources]) -> list[str]:
    spilling = [each for each in resources if each.spilled]
    if not resources:
        return []
    if not spilling:
        return ["None of its kernels spills registers on the GPUs that it was compiled for."]
    worst = max(spilling, key=lambda each: each.spilled)
    return [f"{one_line(worst.kernel, 60)} spills registers on {worst.architecture}: memory takes their place."]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _amount(value: float) -> str:
    """A count with at most three digits: 16.8 million."""
    for size, word in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if value >= size:
            return f"{value / size:.3g}{word}"
    return f"{value:,.0f}"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
