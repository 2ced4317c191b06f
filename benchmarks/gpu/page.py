"""The page that says what was found on a GPU."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.cases import PARTS, SLOWED_BY

ABOUT = """# Platforms cuda and triton on a GPU

Everything here was judged by the whole referee in the process sandbox on the device that is named."""
PART_TEXTS = {
    "kit": "The conformance kits: what every platform accepts and refuses.",
    "A/A": "An op against itself: 1 is right.",
    "5 % slower": f"An op against itself with {SLOWED_BY:.0%} more bytes read and written: {1 / (1 + SLOWED_BY):.3f} "
    "is right if those alone take its time.",
    "attack": "Each must be refused.",
    "honest": "Each must pass.",
    "gain": "Right candidates with what must not make them faster, each timed beside the same one without it.",
    "starter": "The starter ops at sizes for a GPU (`benchmarks/gpu/cases.py`), with kernels written by hand.",
    "fault": "Faults that are planted in kernels. Whether a device shows one is what is asked: it need not.",
    "exemplar": "The prompts' exemplars on their own ops, whose sizes suit a processor.",
    "profile": "Detailed profiles of kernels of the starter ops, as a Judge reads them.",
}
STAGES = ("start", "import", "reference", "inputs", "build", "correctness", "timing", "limits", "neighbours", "total")
ACCEPTED = ("passed", "screened")
REFUSED = ("build_failed", "crashed", "integrity", "out_of_memory", "timed_out", "wrong_output")
NOT_JUDGED = ("sandbox_error", "task_invalid")


def page_of(head: Mapping[str, str], runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The page.

    Args:
        head: `device`, `compute_capability`, `driver`, and the `command` of the last run.
        runs: what was found, by the cases' keys (`__main__.kept_of`).
    """
    told = sum(each["kept"] for each in runs.values())
    dates = sorted({each["date"] for each in runs.values()})
    referees = sorted({each["referee"][:12] for each in runs.values()})
    lines = [
        ABOUT,
        "",
        f"Date: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}. Device: {head['device']}, compute capability "
        f"{head['compute_capability']}, driver {head['driver']}. Command: `{head['command']}`. "
        f"Referee: {', '.join(f'`{each}`' for each in referees)}.",
        "",
        f"As it must be: {told} of {len(runs)}.",
        *_summary(runs),
    ]
    for part in PARTS:
        of_part = [each for each in runs.values() if each["part"] == part]
        if of_part:
            lines += ["", f"## {part[0].upper()}{part[1:]}", "", PART_TEXTS[part], "", *_table(part, of_part)]
    return "\n".join([*lines, *_screening(runs), *_stages(runs)]) + "\n"


def _summary(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for part, right in (("A/A", 1.0), ("5 % slower", 1 / (1 + SLOWED_BY))):
        intervals = [each["speedup"]["eager"] for each in runs.values() if each["part"] == part and each["speedup"]]
        if intervals:
            off = [abs(value / right - 1) for value, _, _ in intervals]
            holds = sum(low <= right <= high for _, low, high in intervals)
            lines.append(
                f"{part}: off by {statistics.median(off):.2%} in the median and {max(off):.2%} at most; the interval "
                f"holds {right:.3f} for {holds} of {len(intervals)}."
            )
    return ["", *lines] if lines else []


def _table(part: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    if part == "profile":
        return [
            line
            for each in runs
            for line in (f"### {each['platform']}/{each['name']}", "", "```text", each["profile_text"], "```", "")
        ][:-1]
    lines = [
        "| platform | candidate | verdict | as it must be | eager / compile / candidate ms | over eager (95 %) "
        "| over compile (95 %) | over the one without (95 %) | roofline | tags | s | says |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return lines + [row_of(each) for each in runs]


def row_of(found: Mapping[str, Any]) -> str:
    """One line of a table."""
    latency, speedup = found["latency_ms"], found["speedup"] or {}
    names = ("eager", "compile", "candidate")
    cells = [
        found["platform"],
        found["name"],
        _verdict(found),
        "yes" if found["kept"] else "NO",
        " / ".join(f"{latency[name]:.4f}" if name in latency else "-" for name in names) if latency else "",
        *(_interval(speedup.get(name)) for name in ("eager", "compile")),
        _interval(found["against"]),
        "" if found["roofline"] is None else f"{found['roofline']:.0%}",
        " ".join(found["tags"]),
        f"{found['cost_s'].get('total', 0.0):.1f}",
        "" if found["verdict"] == "passed" else " ".join(found["message"].split())[:160].replace("|", "/"),
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(found: Mapping[str, Any]) -> str:
    return f"{found['verdict']} ({found['code']})" if found["code"] else str(found["verdict"])


def _interval(told: Sequence[float] | None) -> str:
    return "" if told is None else f"{told[0]:.4f} ({told[1]:.4f} to {told[2]:.4f})"


def _screening(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How often screening without a GPU agreed with the device, and where it did not."""
    both = [each for each in runs.values() if each["screened"] and each["verdict"] not in NOT_JUDGED]
    if not both:
        return []
    counts = {
        (screened, ran): sum(
            (each["screened"] in ACCEPTED, each["verdict"] in ACCEPTED) == (screened, ran) for each in both
        )
        for screened in (True, False)
        for ran in (True, False)
    }
    lines = [
        "",
        "## Screening against the device",
        "",
        "Kernels that were screened without a GPU, at the sizes of the ops' files or smaller ones, and what the device "
        "says of them. A fault that a device does not show is a fault all the same.",
        "",
        "| | passed on the device | refused there |",
        "|---|---|---|",
        f"| screened without objection | {counts[True, True]} | {counts[True, False]} |",
        f"| refused when screened | {counts[False, True]} | {counts[False, False]} |",
    ]
    apart = [each for each in both if (each["screened"] in ACCEPTED) != (each["verdict"] in ACCEPTED)]
    if apart:
        lines += ["", "| kernel | screened | on the device |", "|---|---|---|"]
        lines += [
            f"| {each['part']}: {each['platform']}/{each['name']} | {each['screened']} | {_verdict(each)} |"
            for each in apart
        ]
    return lines


def _stages(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where an evaluation's time goes: medians of the evaluations that passed."""
    rows = []
    for part in PARTS:
        passed = [each["cost_s"] for each in runs.values() if each["part"] == part and each["verdict"] == "passed"]
        if passed:
            cells = [f"{statistics.median(each.get(stage, 0.0) for each in passed):.1f}" for stage in STAGES]
            rows.append(f"| {part} | {len(passed)} | {' | '.join(cells)} |")
    if not rows:
        return []
    head = [
        "",
        "## Verdict latency by stage",
        "",
        "Medians of evaluations that passed, in seconds.",
        "",
        f"| part | of | {' | '.join(STAGES)} |",
    ]
    return [*head, f"|{'---|' * (len(STAGES) + 2)}", *rows]
