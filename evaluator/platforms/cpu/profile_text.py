"""The detailed profile of `evaluator.profile` as lines of text, for a Judge and for people."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_LINES = 60
MAX_COLUMNS = 100


def fit(lines: Iterable[str]) -> str:
    """Join lines into printable text of at most 60 lines of 100 columns; the last one says how many were left out."""
    lines = ("".join(char if char.isprintable() else " " for char in line) for line in lines)
    kept = [line if len(line) <= MAX_COLUMNS else line[: MAX_COLUMNS - 1] + "…" for line in lines]
    if len(kept) > MAX_LINES:
        kept = [*kept[: MAX_LINES - 1], f"({len(kept) - MAX_LINES + 1} more lines)"]
    return "\n".join(kept)


def wrapped(text: str) -> list[str]:
    """Break a long line into several."""
    return textwrap.wrap(text, MAX_COLUMNS, subsequent_indent="  ")


def detail_lines(detail: Mapping[str, Any]) -> Iterator[str]:
    """Lines for each part of the profile, and for the parts that are absent with the reason."""
    if "calls" in detail:
        yield from _calls(detail["calls"])
    if "processor_time" in detail:
        yield from _processor_time(detail["processor_time"])
    if "operators" in detail:
        yield from _operators(detail["operators"])
    if "vectorization" in detail:
        yield from _loops(detail["vectorization"])
    by_reason: dict[str, list[str]] = {}
    for name, reason in list(detail.get("absent", {}).items())[:8]:
        by_reason.setdefault(reason, []).append(name.replace("_", " "))
    for reason, names in by_reason.items():
        yield from wrapped(f"not measured: {', '.join(names)}: {reason}")


def _calls(calls: Mapping[str, Any]) -> Iterator[str]:
    busy = ", ".join(f"{share:.0%}" for share in calls["thread_busy_shares"][:8])
    yield (
        f"one call, profiled: {calls['wall_ms_per_call']:g} ms, {calls['processor_ms_per_call']:g} ms of processor "
        f"time, {calls['threads_used']} threads (busy {busy or '0%'})"
    )
    yield (
        f"page faults a call: {calls['minor_page_faults_per_call']:g} minor, "
        f"{calls['major_page_faults_per_call']:g} major; memory of the process: "
        f"{calls['process_memory_mib']:,} MiB, at most {calls['process_peak_memory_mib']:,} MiB"
    )


def _processor_time(times: Mapping[str, Any]) -> Iterator[str]:
    kinds = [row for row in times["kinds"] if row["share"] >= 0.005]
    yield f"processor time by kind of code (claimed, {times['samples']:,} samples):"
    yield from (f"  {row['share']:4.0%}  {row['kind']}" for row in kinds[:6])
    own = [row for row in times["own_functions"] if row["share"] >= 0.01]
    if own:
        yield "processor time by own function (claimed):"
        yield from (f"  {row['share']:4.0%}  {row['function'][:70]} in {row['object']}" for row in own[:6])
    hot = [each for stretch in times.get("hot_code", ()) for each in stretch["instructions"] if each["share"] >= 0.02]
    if hot:
        yield "instructions at which threads stood most often (claimed; the one before may be what took the time):"
        hot.sort(key=lambda each: -each["share"])
        yield from (f"  {each['share']:4.0%}  {each['text'][:60]}  {each['at']}".rstrip() for each in hot[:6])


def _operators(operators: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in operators["operators"] if row["share"] >= 0.005]
    yield "torch operators (claimed; share of wall time, calls a call):"
    yield from (f"  {row['share']:4.0%}  {row['operator']}, {row['calls_per_call']:g}" for row in rows[:6])
    yield f"  {operators['outside_operators_share']:4.0%}  outside of torch's operators"
    if "allocations_per_call" in operators:
        yield (
            f"allocations a call, through torch (claimed): {operators['allocations_per_call']:g}, "
            f"{operators['allocated_bytes_per_call']:,} B in all"
        )


def _loops(vectorization: Mapping[str, Any]) -> Iterator[str]:
    yield "loops of own C++ as g++ sees them:"
    for loop in vectorization["loops"][:12]:
        if loop["vectorized"]:
            made = f"vectors of {loop['vector_bytes']} B"
        else:
            made = "vectors by its own intrinsics" if loop.get("intrinsics") else "NOT vectorized"
        notes = "".join(f"; {note}" for note in loop["notes"])
        yield f"  {loop['at']}: {made}{notes}"
    if len(vectorization["loops"]) > 12:
        yield f"  and {len(vectorization['loops']) - 12} more"
