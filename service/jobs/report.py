"""The report that goes beside an exported kernel: what was measured, why to believe it, how to measure it again."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.llm.models import is_builtin
from db.records import EvaluationRecord, JobRecord
from service.jobs.query import RoundLine
from tasks.outcomes import TAGS

REPORT_MARK = "<!-- Written by Kernelwright -->"


def report_text(
    job: JobRecord, best: EvaluationRecord, rounds: Sequence[RoundLine], kernel: Path, program_version: str
) -> str:
    """The report as Markdown. All that may come from a candidate or a model is escaped."""
    result = best.result
    sections = (
        f"{REPORT_MARK}\n# {_cell(job.task.ref)}: a faster kernel for `{_cell(best.platform)}`\n",
        _summary(job, best),
        "## Latency and speedup\n\n" + _latencies(result),
        "## Roofline\n\n" + _roofline(result.get("roofline")),
        "## Why it is held to be correct\n\n" + _correctness(result.get("correctness") or {}),
        "## Rounds\n\n" + _rounds(rounds),
        "## Provenance\n\n" + _provenance(job, best, program_version),
        "## Measure it again\n\n" + _again(job, kernel),
    )
    return "\n".join(sections)


def _summary(job: JobRecord, best: EvaluationRecord) -> str:
    lines = [f"Verdict **{_cell(best.verdict)}**, tags: {_cell(', '.join(best.tags)) or 'none'}."]
    lines += [tag.text for tag in TAGS.values() if tag.name in best.tags]
    if is_builtin(job.model or ""):
        lines.append("The model is the built-in compiler search. It is not an LLM.")
    if best.sandbox == "process" or not (best.result.get("provenance") or {}).get("security_boundary", False):
        lines.append(
            f"It ran in the {_cell(best.sandbox)} sandbox, which is **no security boundary**: "
            "believe the numbers as far as you believe the candidate."
        )
    return "\n".join(lines) + "\n"


def _latencies(result: Mapping[str, Any]) -> str:
    speedups = result.get("speedup") or {}
    rows = []
    for name, title in (("eager", "eager"), ("compile", "torch.compile"), ("candidate", "this kernel")):
        latency = (result.get("latency_ms") or {}).get(name)
        if latency is None:
            rows.append((title, "not measured", "", ""))
            continue
        ratio = speedups.get(name)
        rows.append(
            (
                title,
                f"{latency['median']:.4f}",
                f"{latency['low']:.4f} to {latency['high']:.4f}",
                "" if ratio is None else f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})",
            )
        )
    note = "\nSpeedups are medians of paired ratios; intervals are 95 %. Above 1 this kernel is faster.\n"
    return _table(("", "median (ms)", "95 % interval (ms)", "speedup of this kernel over it"), rows) + note


def _roofline(roofline: Mapping[str, Any] | None) -> str:
    if roofline is None:
        return "Not known for this op.\n"
    return (
        f"Bound by {_cell(roofline['bound'])}: the device's measured limits allow {roofline['limit_ms']:.4f} ms, "
        f"of which this kernel reaches {roofline['fraction']:.0%}.\n"
    )


def _correctness(correctness: Mapping[str, Any]) -> str:
    checks = correctness.get("checks") or []
    rows = [
        (
            check.get("inputs"),
            "passed" if check.get("passed") else "failed",
            _number(check.get("max_error")),
            _number(check.get("allowed_error")),
            check.get("note"),
        )
        for check in checks
    ]
    intro = "Outputs are compared with a float64 oracle, outside of the candidate's process:\n\n"
    return intro + _table(("inputs", "check", "largest error", "allowed", "note"), rows)


def _rounds(rounds: Sequence[RoundLine]) -> str:
    rows = []
    for line in rounds:
        speedup = "" if line.speedup is None else f"{line.speedup:.3f}"
        rows.append((f"{line.number}{' (best)' if line.best else ''}", line.change[:300], line.outcome, speedup))
    return _table(("round", "change", "verdict", "speedup over eager"), rows)


def _provenance(job: JobRecord, best: EvaluationRecord, program_version: str) -> str:
    provenance = best.result.get("provenance") or {}
    rows = [
        ("Kernelwright", program_version),
        ("job", job.id),
        ("evaluated", f"{best.created_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("evaluation", best.id),
        ("task SHA-256", job.task.source_hash),
        ("candidate SHA-256", best.candidate_hash),
        ("model", job.model),
        ("strategy", job.strategy),
        *_flat("", {key: value for key, value in provenance.items() if key not in ("task", "candidate")}),
    ]
    return _table(("what", "value"), rows)


def _again(job: JobRecord, kernel: Path) -> str:
    ref = str(job.options.get("ref") or job.task.ref)
    return f"```\nkernelwright evaluate {shlex.quote(_line(ref))} {shlex.quote(_line(str(kernel)))}\n```\n"


def _flat(prefix: str, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        rows += _flat(f"{name}.", item) if isinstance(item, Mapping) else [(name, item)]
    return rows


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(_cell(value) for value in line) + " |\n" for line in lines)


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""


def _cell(value: object) -> str:
    text = _line("" if value is None else str(value))
    for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "'")):
        text = text.replace(char, escaped)
    return text


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:1000]
