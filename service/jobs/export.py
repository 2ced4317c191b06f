"""Exports a job's best candidate: one file that runs with PyTorch alone, and a report of what is known about it."""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.llm.models import is_builtin
from db.records import EvaluationRecord, JobRecord, TaskRecord
from db.store import Store
from evaluator.platforms import PLATFORM_NAMES, load_platform
from evaluator.referee.protocol.baselines import BASELINES, USUAL, title_of
from service.errors import BadRequest
from service.jobs.guard import guard_text, without_guard
from service.jobs.memory import ToldMemory
from service.jobs.query import JobDetails, RoundLine, show_job
from service.settings import Settings
from service.version import program_version
from tasks.outcomes import NO_ORACLE, TAGS, VERDICT_TEXTS, Clock, Verdict, check_result, clock_of
from tasks.source_kernel import SourceKernel, reference_kernel_of, source_kernel_of

MARK = "# Written by Kernelwright"
REPORT_MARK = "<!-- Written by Kernelwright -->"


@dataclass(frozen=True)
class Exported:
    """Where the kernel and the report lie."""

    kernel: Path
    report: Path


def export_job(store: Store, job: JobRecord, settings: Settings, *, out: Path | None = None) -> Exported:
    """Write the best candidate of a job and its report; to `out`, else where the job was told to, else in its folder.

    Raises:
        BadRequest: no candidate of the job passed, or a file that is not ours is in the way.
    """
    details = show_job(store, job.id)
    if details.best is None:
        raise BadRequest(f"job {job.id} has no candidate that passed; there is nothing to export")
    target = out or _told(job) or settings.job_dir(job.id) / "best.py"
    if target.parent == settings.job_dir(job.id):
        target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target)
    exported = Exported(target, report_path(target))
    write_whole(exported.kernel, kernel_text(details, details.best))
    write_whole(exported.report, report_text(details, details.best, exported.kernel, program_version()))
    return exported


def check_target(out: Path, *, keep: Path | None = None) -> None:
    """Refuse a place that cannot take the kernel, before any time is spent.

    Raises:
        BadRequest: not a .py name, no such folder, not writable, or a file that is not ours (or is `keep`) is there.
    """
    if out.suffix != ".py":
        raise BadRequest(f"--out {out}: the kernel is a Python file; give a name that ends in .py")
    if not out.parent.is_dir():
        raise BadRequest(f"--out {out}: folder {out.parent} is not there; make it first")
    if not os.access(out.parent, os.W_OK):
        raise BadRequest(f"--out {out}: folder {out.parent} cannot be written; choose another")
    if keep is not None and out.resolve() == keep.resolve():
        raise BadRequest(f"--out {out}: that is the op itself; choose another name")
    for path in (out, report_path(out)):
        if path.is_dir() or (path.exists() and not is_ours(path)):
            raise BadRequest(f"--out {out}: {path} exists and was not written by Kernelwright; choose another name")


def report_path(kernel: Path) -> Path:
    """Where the report goes: `report.md` beside `best.py`, `NAME.report.md` beside `NAME.py`."""
    return kernel.with_name("report.md" if kernel.name == "best.py" else f"{kernel.stem}.report.md")


def kernel_text(details: JobDetails, best: EvaluationRecord) -> str:
    """The candidate's source below a header that says where it comes from and what is known about it.

    A kernel that is right for the task's own inputs only is followed by a guard, for other inputs.
    """
    job = details.job
    measurements, clock = best.measurements, clock_of(best.tags)
    provenance = best.result.get("provenance", {})
    lines = [
        f"{MARK} {program_version()}, job {job.id}, {best.created_at:%Y-%m-%d %H:%M} UTC.",
        f"# Task: {job.task.ref}, source SHA-256 {job.task.source_hash}",
        *_translated_line(job),
        f"# Candidate: SHA-256 {best.candidate_hash} (of what follows this header, up to a guard)",
        f"# Model: {job.model or 'submitted'}; platform: {best.platform}; device: {best.device}",
        f"# Verdict: {best.verdict} in the {best.sandbox} sandbox; tags: {', '.join(best.tags) or 'none'}",
    ]
    m, fastest = measurements, measurements.best_baseline
    told = [("eager", m.speedup, m.speedup_low, m.speedup_high)]
    told.append((title_of("compile"), m.speedup_compile, m.speedup_compile_low, m.speedup_compile_high))
    if fastest is not None and fastest not in USUAL:
        name = f"the fastest baseline, {title_of(fastest)}"
        told.append((name, m.speedup_best, m.speedup_best_low, m.speedup_best_high))
    for name, value, low, high in told:
        if value is not None:
            interval = f"95 % interval {_bound(low)} to {_bound(high)}"
            lines.append(clock.beside(f"# Speedup over {name}: {value:.3f} ({interval})"))
    if details.on_leaderboard:
        lines.append(f"# {details.on_leaderboard}")
    lines.append(f"# Harness: {provenance.get('harness', 'unknown')}")
    assert isinstance(job.task, TaskRecord)  # as that of a single job is
    lines.append(f"# Use: ModelNew stands in for the task's Model; it needs {_requirements(best.platform)}.")
    guard = ""
    if best.platform in PLATFORM_NAMES and load_platform(best.platform).timed == "wall":  # else torch calls no ModelNew
        lines.append("# Call it under torch.no_grad(): it gives no gradients.")
        guard = guard_text((best.result.get("correctness") or {}).get("neighbours"), job.task.source)
    return "\n".join(_one_line(line, 400) for line in lines) + "\n\n" + best.source + guard


def without_header(text: str) -> str:
    """The candidate's source in an exported file, so that measuring it again measures the same candidate; any other
    text as it is.
    """
    header, blank, source = text.partition("\n\n")
    ours = header.startswith(MARK) and all(line.startswith("#") for line in header.split("\n"))
    return without_guard(source) if ours and blank else text


def _requirements(platform: str) -> str:
    if platform not in PLATFORM_NAMES:  # the job was run by another version
        return "PyTorch"
    return load_platform(platform).requirements_text()


def _told(job: JobRecord) -> Path | None:
    out = job.options.get("out")
    return Path(out) if isinstance(out, str) else None


def _bound(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _one_line(text: str, limit: int = 1000) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:limit]


def is_ours(path: Path) -> bool:
    """Whether this program wrote a kernel or a report."""
    with contextlib.suppress(OSError, UnicodeDecodeError), path.open(encoding="utf-8") as file:
        return file.readline(200).startswith((MARK, REPORT_MARK))
    return False


def write_whole(path: Path, text: str) -> None:
    """Write a file, all of it or nothing: a reader never meets half a kernel.

    Raises:
        BadRequest: the place cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}; choose another place with --out") from error


def report_text(details: JobDetails, best: EvaluationRecord, kernel: Path, program_version: str) -> str:
    """The report as Markdown. All that may come from a candidate or a model is escaped."""
    job, result, clock = details.job, best.result, clock_of(best.tags)
    sections = (
        f"{REPORT_MARK}\n# {markdown_cell(job.task.ref)}: {_what(best)} for `{markdown_cell(best.platform)}`\n",
        _summary(details, best),
        *_figures(best, clock),
        "## Why it is held to be correct\n\n" + correctness_section(result.get("correctness") or {}, best.tags),
        *_translated(job),
        *_told_section(details.told),
        "## Rounds\n\n" + _rounds(details.rounds, clock),
        "## Provenance\n\n" + _provenance(job, best, program_version),
        "## Measure it again\n\n" + _again(job, kernel),
    )
    return "\n".join(sections)


def _summary(details: JobDetails, best: EvaluationRecord) -> str:
    lines = [f"Verdict **{markdown_cell(best.verdict)}**, tags: {markdown_cell(', '.join(best.tags)) or 'none'}."]
    lines += [tag.text for tag in TAGS.values() if tag.name in best.tags]
    if details.on_leaderboard:
        lines.append(details.on_leaderboard)
    if is_builtin(details.job.model or ""):
        lines.append("The model is the built-in compiler search. It is not an LLM.")
    if best.sandbox == "process" or not (best.result.get("provenance") or {}).get("security_boundary", False):
        lines.append(
            f"It ran in the {markdown_cell(best.sandbox)} sandbox, which is **no security boundary**: "
            "believe the numbers as far as you believe the candidate."
        )
    return "\n".join(lines) + "\n"


def _what(best: EvaluationRecord) -> str:
    return "a kernel, not timed yet," if best.verdict == Verdict.SCREENED else "a faster kernel"


def _figures(best: EvaluationRecord, clock: Clock) -> tuple[str, ...]:
    """The sections with figures; of a candidate that was screened, what was found out about it."""
    result = best.result
    if best.verdict == Verdict.SCREENED:
        profile = load_platform(best.platform).profile_text(dict(result.get("profile") or {}))
        lines = "".join(f"- {markdown_cell(line)}\n" for line in profile.splitlines())
        return ("## Without the device\n\n" + VERDICT_TEXTS[Verdict.SCREENED] + "\n\n" + lines,)
    return (
        "## Latency and speedup\n\n" + latency_section(result, clock),
        "## Roofline\n\n" + _roofline(result.get("roofline"), clock),
    )


def latency_section(result: Mapping[str, Any], clock: Clock) -> str:
    """The table of latencies and speedups of an evaluation, and what its figures are."""
    speedups, latencies = result.get("speedup") or {}, result.get("latency_ms") or {}
    titles = {name: title_of(name) for name in BASELINES if name in USUAL or name in latencies}
    rows = []
    for name, title in (titles | {"candidate": "this kernel"}).items():
        latency = latencies.get(name)
        if latency is None:
            rows.append((title, "not measured", "", ""))
            continue
        ratio = speedups.get(name)
        rows.append(
            (
                title,
                clock.figure(latency["median"]),
                f"{clock.figure(latency['low'])} to {clock.figure(latency['high'])}",
                "" if ratio is None else f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})",
            )
        )
    note = "\nSpeedups are interquartile means of paired ratios; intervals are 95 %. Above 1 this kernel is faster.\n"
    columns = (
        "",
        f"median ({clock.unit})",
        f"95 % interval ({clock.unit})",
        clock.beside("speedup of this kernel over it"),
    )
    return markdown_table(columns, rows) + note


def _roofline(roofline: Mapping[str, Any] | None, clock: Clock) -> str:
    if roofline is None:
        return "Not known for this op.\n"
    return (
        f"Bound by {markdown_cell(roofline['bound'])}: the device's {clock.limits} limits allow "
        f"{clock.latency(roofline['limit_ms'])}, "
        f"of which this kernel reaches {roofline['fraction']:.0%}.\n"
    )


def correctness_section(correctness: Mapping[str, Any], tags: Collection[str] = ()) -> str:
    """The tables of the checks of an evaluation."""
    checks = correctness.get("checks") or []
    rows = [
        (
            check.get("inputs"),
            check_result(check),
            _number(check.get("max_error")),
            _number(check.get("allowed_error")),
            check.get("note"),
        )
        for check in checks
    ]
    truth = "the source kernel, run in an emulation," if NO_ORACLE in tags else "a float64 oracle,"
    intro = f"Outputs are compared with {truth} outside of the candidate's process:\n\n"
    table = intro + markdown_table(("inputs", "check", "largest error", "allowed", "note"), rows)
    checks = (correctness.get("neighbours") or {}).get("checks") or ()
    beside = [(check.get("inputs"), check.get("result"), check.get("note")) for check in checks]
    if not beside:
        return table
    return (
        f"{table}\nWhat it makes of inputs beside the task's own, which is no part of the verdict:\n\n"
        + markdown_table(("inputs", "result", "note"), beside)
    )


def _rounds(rounds: Sequence[RoundLine], clock: Clock) -> str:
    rows = []
    for line in rounds:
        speedup = "" if line.speedup is None else f"{line.speedup:.3f}"
        rows.append((f"{line.number}{' (best)' if line.best else ''}", line.change[:300], line.outcome, speedup))
        for other in line.others:
            speedup = "" if other.speedup is None else f"{other.speedup:.3f}"
            rows.append((f"{line.number}, another variant", other.change, other.outcome, speedup))
    return markdown_table(("round", "change", "verdict", clock.beside("speedup over eager")), rows)


def _translated_line(job: JobRecord) -> tuple[str, ...]:
    kernel = _source_kernel(job)
    return () if kernel is None else (f"# Translated from a kernel for platform {kernel.platform}",)


def _translated(job: JobRecord) -> tuple[str, ...]:
    """The kernel that the job translated. Its lines are indented, so that nothing in it can end the block."""
    kernel = _source_kernel(job)
    if kernel is None:
        return ()
    assert isinstance(job.task, TaskRecord)
    said = f"The Coder saw this kernel for platform `{kernel.platform}` beside the op. It was not run."
    if reference_kernel_of(job.task.source) is not None:
        said = (
            f"This kernel for platform `{kernel.platform}` is the reference: outputs were compared with those of its "
            "run in an emulation, and with no float64 oracle."
        )
    about = [("entry", kernel.entry)] if kernel.entry else []
    about += [("notes", kernel.notes)] if kernel.notes else []
    table = "\n" + markdown_table(("what", "value"), about) if about else ""
    code = "".join(f"    {_one_line(line)}".rstrip() + "\n" for line in kernel.source.expandtabs(4).splitlines())
    return (f"## Translated from\n\n{said}\n{table}\n{code}",)


def _source_kernel(job: JobRecord) -> SourceKernel | None:
    return source_kernel_of(job.task.source) if isinstance(job.task, TaskRecord) else None


def _told_section(told: ToldMemory) -> tuple[str, ...]:
    """What the job was told of earlier ones."""
    if not told.memory:
        return ()
    lines = "".join(f"- {markdown_cell(line)}\n" for line in told.lines)
    said = f"When it began, the job was told of earlier ones (`{told.memory.mode}`), by the ids of their evaluations:"
    return (f"## What earlier jobs had proven\n\n{said}\n\n{lines}",)


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
    return markdown_table(("what", "value"), rows)


def _again(job: JobRecord, kernel: Path) -> str:
    ref = str(job.options.get("ref") or job.task.ref)
    command = ["kernelwright", "evaluate", _one_line(ref), _one_line(str(kernel))]
    if job.platform != PLATFORM_NAMES[0]:  # the default
        command += ["--platform", job.platform]
    return f"```\n{shlex.join(command)}\n```\n"


def _flat(prefix: str, value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        rows += _flat(f"{name}.", item) if isinstance(item, Mapping) else [(name, item)]
    return rows


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; its cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(markdown_cell(value) for value in line) + " |\n" for line in lines)


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else ""


def markdown_cell(value: object) -> str:
    """A value as text on one line in which nothing is markup."""
    text = _one_line("" if value is None else str(value))
    for char, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "'")):
        text = text.replace(char, escaped)
    return text
