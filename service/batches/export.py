"""Batches for other programs: CSV, JSON, and KernelBench's form of results."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from service.batches.manage import BatchDetails, ModelComparison
from service.batches.results import COLUMNS, BatchJob, Group
from service.batches.statistics import Figures
from service.errors import BadRequest
from tasks.outcomes import clock_of

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Rows as lines of CSV. The items of a list are joined by spaces, and None is an empty cell.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def csv_text(details: BatchDetails) -> str:
    """One row a job, with a header."""
    rows = [row_of(job) for job in details.jobs]
    return csv_lines([COLUMNS, *([row[column] for column in COLUMNS] for row in rows)])


def row_of(job: BatchJob) -> dict[str, Any]:
    """A job by column, as plain values."""
    return {**asdict(job), "status": job.status.value, "tags": list(job.tags)}


def batch_json(details: BatchDetails) -> dict[str, Any]:
    """The whole batch as one object, `kernelwright.batch/1`."""
    batch = details.line.batch
    return {
        "schema": "kernelwright.batch/1",
        "batch": asdict(batch),
        "counts": {status.value: count for status, count in details.line.counts.items()},
        "spent_usd": details.line.spent_usd,
        "complete": details.complete,
        "over": details.over,
        "groups": [group_json(group) for group in details.groups],
        "jobs": [row_of(job) for job in details.jobs],
        "refused": [{"task": ref, "reason": reason} for ref, reason in details.refused],
    }


def group_json(group: Group) -> dict[str, Any]:
    """The figures of a model on a platform."""
    return {
        **asdict(group),
        "sandboxes": list(group.sandboxes),
        "devices": list(group.devices),
        "figures": figures_json(group.figures),
        "best_of": figures_json(group.best_of),
    }


def figures_json(figures: Figures) -> dict[str, Any]:
    """Figures by name. Thresholds and k are texts, since JSON has no other keys."""
    values = asdict(figures)
    for name in ("compile_at_k", "pass_at_k", "fast_p"):
        values[name] = _by_text(values[name])
    values["speedup_at_k"] = _by_text({alpha: _by_text(by_k) for alpha, by_k in figures.speedup_at_k.items()})
    return values


def _by_text(values: Mapping[float, Any]) -> dict[str, Any]:
    return {f"{key:g}": value for key, value in values.items()}


def comparison_json(a: int, b: int, over: str, found: list[ModelComparison]) -> dict[str, Any]:
    """A comparison as one object, `kernelwright.batch_comparison/1`."""
    return {
        "schema": "kernelwright.batch_comparison/1",
        "a": a,
        "b": b,
        "over": over,
        "comparisons": [asdict(each) for each in found],
    }


def kernelbench_json(
    details: BatchDetails, *, model: str | None = None, platform: str | None = None, suite: str | None = None
) -> dict[str, Any]:
    """The results of one model on one platform for one suite, in the form of KernelBench's `eval_results.json`.

    Keys are problem ids: the number that a task's name begins with, or else its position among the names. Samples count
    from 0. `runtime` is the candidate's median in milliseconds, and -1 if nothing passed. As in KernelBench, jobs that
    did not end, or that say nothing about the model, are left out.

    Raises:
        BadRequest: the batch has several models, platforms or suites and none was chosen, or it lacks the chosen one.
    """
    jobs = list(details.jobs)
    for what, wanted in (("model", model), ("platform", platform), ("suite", suite)):
        known = list(dict.fromkeys(_value(job, what) for job in jobs))
        if wanted is None and len(known) > 1:
            raise BadRequest(f"KernelBench's form holds one {what}; choose --{what}: {', '.join(known)}")
        if wanted is not None and wanted not in known:
            raise BadRequest(f"--{what} {wanted[:80]}: not in this batch; there is: {', '.join(known)}")
        jobs = [job for job in jobs if wanted in (None, _value(job, what))]
    ids = _problem_ids(jobs)
    results: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        if job.outcome in ("passed", "failed"):
            results.setdefault(ids[_name(job)], []).append(_result(job))
    return dict(sorted(results.items(), key=lambda item: int(item[0])))


def _value(job: BatchJob, what: str) -> str:
    return {"model": job.model or "", "platform": job.platform, "suite": job.task.partition("/")[0]}[what]


def _name(job: BatchJob) -> str:
    return job.task.partition("/")[2]


def _problem_ids(jobs: list[BatchJob]) -> dict[str, str]:
    names = sorted({_name(job) for job in jobs})
    numbers = [name.partition("_")[0] for name in names]
    if all(number.isascii() and number.isdecimal() for number in numbers) and len(set(numbers)) == len(names):
        return {name: str(int(number)) for name, number in zip(names, numbers, strict=True)}
    return {name: str(position) for position, name in enumerate(names, start=1)}


def _result(job: BatchJob) -> dict[str, Any]:
    metadata: dict[str, Any] = {"problem_name": f"{_name(job)}.py", "job": job.job}
    if job.reason:
        metadata["kernelwright_reason"] = job.reason
    if job.evaluation is None or job.outcome != "passed":
        return {
            "sample_id": (job.sample or 1) - 1,
            "compiled": job.compiled,
            "correctness": False,
            "metadata": metadata,
            "runtime": -1.0,
            "runtime_stats": {},
        }
    metadata |= {
        "hardware": job.device,
        "sandbox": job.sandbox,
        "speedup": job.speedup,
        "timed": clock_of(job.tags).name,
    }
    stats = {"median": job.candidate_ms, "median_eager": job.eager_ms, "median_compile": job.compile_ms}
    return {
        "sample_id": (job.sample or 1) - 1,
        "compiled": True,
        "correctness": True,
        "metadata": metadata,
        "runtime": -1.0 if job.candidate_ms is None else job.candidate_ms,
        "runtime_stats": {**stats, "hardware": job.device} if job.candidate_ms is not None else {},
    }
