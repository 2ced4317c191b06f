"""Tables for spreadsheets: lines of CSV in which nothing is taken for a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from service.batches.manage import BatchDetails, Versus
from service.batches.results import Cell, Group
from service.batches.statistics import Figures
from service.errors import BadRequest

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Rows as lines: a list's items stand side by side in one cell, None is an empty one, and a text that a spreadsheet
    would take for a formula has an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


COLUMNS = (
    *("batch", "job", "task", "source_hash", "category", "dtype", "platform", "model", "strategy", "sample"),
    *("status", "stop_reason", "outcome", "compiled", "reason", "verdict", "counts", "tags"),
    *("speedup", "speedup_low", "speedup_high"),
    *("speedup_compile", "speedup_compile_low", "speedup_compile_high"),
    *("candidate_ms", "eager_ms", "compile_ms", "roofline_fraction", "device", "sandbox"),
    *("candidate_hash", "evaluation", "rounds", "tokens", "cost_usd", "unsettled_usd"),
    *("created_at", "started_at", "finished_at"),
)


def csv_text(details: BatchDetails) -> str:
    """One row a job, with a header."""
    rows = [row_of(details.line.batch.id, cell) for cell in details.cells]
    return csv_lines([COLUMNS, *([row[column] for column in COLUMNS] for row in rows)])


def row_of(batch_id: int, cell: Cell) -> dict[str, Any]:
    """All figures of a job, by column."""
    job, best = cell.job, cell.best
    figures = {} if best is None else asdict(best)
    return {
        "batch": batch_id,
        "job": job.id,
        "task": job.task.ref,
        "source_hash": job.task.source_hash,
        "category": job.task.category,
        "dtype": job.task.dtype,
        "platform": job.platform,
        "model": job.model,
        "strategy": job.strategy,
        "sample": job.sample,
        "status": job.status.value,
        "stop_reason": job.stop_reason,
        "outcome": cell.outcome,
        "compiled": cell.compiled,
        "reason": cell.reason,
        "verdict": figures.get("verdict"),
        "counts": cell.counts,
        "tags": list(figures.get("tags", ())),
        **{name: figures.get(name) for name in COLUMNS if name.startswith("speedup") or name.endswith("_ms")},
        "roofline_fraction": figures.get("roofline_fraction"),
        "device": figures.get("device"),
        "sandbox": figures.get("sandbox", job.sandbox),
        "candidate_hash": figures.get("candidate_hash"),
        "evaluation": figures.get("id"),
        "rounds": job.rounds_done,
        "tokens": job.tokens,
        "cost_usd": job.cost_usd,
        "unsettled_usd": job.unsettled_usd,
        **{name: getattr(job, name) for name in ("created_at", "started_at", "finished_at")},
    }


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
        "jobs": [row_of(batch.id, cell) for cell in details.cells],
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
    """Figures by name; thresholds and k as texts, for JSON has no other keys."""
    values = asdict(figures)
    for name in ("pass_at_k", "fast_p", "speedup_at_1"):
        values[name] = {f"{key:g}": value for key, value in values[name].items()}
    return values


def versus_json(a: int, b: int, over: str, found: list[Versus]) -> dict[str, Any]:
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
    """The results of one model on one platform for one suite, as KernelBench's `eval_results.json` has them.

    Keys are problem ids: the number that a task's name begins with, or else its place among the names. Samples count
    from 0. `runtime` is the candidate's median in milliseconds, and -1 where nothing passed; jobs that did not end, or
    that say nothing of the model, are left out, as in KernelBench itself.

    Raises:
        BadRequest: it is not said which of several models, platforms or suites is meant, or there is none such.
    """
    cells = list(details.cells)
    for what, wanted in (("model", model), ("platform", platform), ("suite", suite)):
        there = list(dict.fromkeys(_value(cell, what) for cell in cells))
        if wanted is None and len(there) > 1:
            raise BadRequest(f"KernelBench's form holds one {what}; choose --{what}: {', '.join(there)}")
        if wanted is not None and wanted not in there:
            raise BadRequest(f"--{what} {wanted[:80]}: not in this batch; there is: {', '.join(there)}")
        cells = [cell for cell in cells if wanted in (None, _value(cell, what))]
    ids = _problem_ids(cells)
    results: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        if cell.outcome in ("passed", "failed"):
            results.setdefault(ids[cell.job.task.name], []).append(_result(cell))
    return dict(sorted(results.items(), key=lambda item: int(item[0])))


def _value(cell: Cell, what: str) -> str:
    job = cell.job
    return {"model": job.model or "", "platform": job.platform, "suite": job.task.suite}[what]


def _problem_ids(cells: list[Cell]) -> dict[str, str]:
    names = sorted({cell.job.task.name for cell in cells})
    numbers = [name.partition("_")[0] for name in names]
    if all(number.isascii() and number.isdecimal() for number in numbers) and len(set(numbers)) == len(names):
        return {name: str(int(number)) for name, number in zip(names, numbers, strict=True)}
    return {name: str(place) for place, name in enumerate(names, start=1)}


def _result(cell: Cell) -> dict[str, Any]:
    best, passed = cell.best, cell.outcome == "passed"
    metadata: dict[str, Any] = {"problem_name": f"{cell.job.task.name}.py", "job": cell.job.id}
    if cell.reason:
        metadata["kernelwright_reason"] = cell.reason
    if best is None or not passed:
        return {
            "sample_id": (cell.job.sample or 1) - 1,
            "compiled": cell.compiled,
            "correctness": False,
            "metadata": metadata,
            "runtime": -1.0,
            "runtime_stats": {},
        }
    metadata |= {"hardware": best.device, "sandbox": best.sandbox, "speedup": best.speedup}
    stats = {"median": best.candidate_ms, "median_eager": best.eager_ms, "median_compile": best.compile_ms}
    return {
        "sample_id": (cell.job.sample or 1) - 1,
        "compiled": True,
        "correctness": True,
        "metadata": metadata,
        "runtime": -1.0 if best.candidate_ms is None else best.candidate_ms,
        "runtime_stats": {**stats, "hardware": best.device} if best.candidate_ms is not None else {},
    }
