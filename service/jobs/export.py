"""Exports a job's best candidate: one file that runs with PyTorch alone, and a report of what is known about it."""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from db.records import EvaluationRecord, JobRecord
from db.store import Store
from evaluator.platforms import PLATFORM_NAMES, load_platform
from service.errors import BadRequest
from service.jobs.query import show_job
from service.jobs.report import REPORT_MARK, report_text
from service.settings import Settings
from service.version import program_version

MARK = "# Written by Kernelwright"


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
    write_whole(exported.kernel, kernel_text(job, details.best))
    write_whole(exported.report, report_text(job, details.best, details.rounds, exported.kernel, program_version()))
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
        if path.is_dir() or (path.exists() and not _is_ours(path)):
            raise BadRequest(f"--out {out}: {path} exists and was not written by Kernelwright; choose another name")


def report_path(kernel: Path) -> Path:
    """Where the report goes: `report.md` beside `best.py`, `NAME.report.md` beside `NAME.py`."""
    return kernel.with_name("report.md" if kernel.name == "best.py" else f"{kernel.stem}.report.md")


def kernel_text(job: JobRecord, best: EvaluationRecord) -> str:
    """The candidate's source below a header that says where it comes from and what is known about it."""
    measurements = best.measurements
    provenance = best.result.get("provenance", {})
    lines = [
        f"{MARK} {program_version()}, job {job.id}, {best.created_at:%Y-%m-%d %H:%M} UTC.",
        f"# Task: {job.task.ref}, source SHA-256 {job.task.source_hash}",
        f"# Candidate: SHA-256 {best.candidate_hash} (of what follows this header)",
        f"# Model: {job.model or 'submitted'}; platform: {best.platform}; device: {best.device}",
        f"# Verdict: {best.verdict} in the {best.sandbox} sandbox; tags: {', '.join(best.tags) or 'none'}",
    ]
    if measurements.speedup is not None:
        lines.append(
            f"# Speedup over eager: {measurements.speedup:.3f}"
            f" (95 % interval {_bound(measurements.speedup_low)} to {_bound(measurements.speedup_high)})"
        )
    if measurements.speedup_compile is not None:
        low, high = _bound(measurements.speedup_compile_low), _bound(measurements.speedup_compile_high)
        lines.append(
            f"# Speedup over torch.compile: {measurements.speedup_compile:.3f} (95 % interval {low} to {high})"
        )
    lines.append(f"# Harness: {provenance.get('harness', 'unknown')}")
    lines.append(f"# Use: ModelNew stands in for the task's Model; it needs {_requirements(best.platform)}.")
    return "\n".join(_one_line(line) for line in lines) + "\n\n" + best.source


def _requirements(platform: str) -> str:
    if platform not in PLATFORM_NAMES:  # the job was run by another version
        return "PyTorch"
    return load_platform(platform).requirements_text()


def _told(job: JobRecord) -> Path | None:
    out = job.options.get("out")
    return Path(out) if isinstance(out, str) else None


def _bound(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:400]


def _is_ours(path: Path) -> bool:
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
