"""Batches for other programs: CSV and JSON. The forms of other projects are in `forms`."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from service.batches.manage import BatchDetails, ModelComparison, group_samples
from service.batches.results import COLUMNS, Group
from service.batches.statistics import PASS_AT, Figures, estimates
from service.version import program_version

WRITTEN_BY = "kernelwright"
"""The name by which the versions of an exported row have this program's, which wrote it."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_lines(rows: Iterable[Sequence[object]]) -> str:
    """Rows as lines of CSV. The items of a list are joined by spaces, a mapping is JSON, and None is an empty cell.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if isinstance(value, Mapping):
        value = json.dumps(value, sort_keys=True, default=str)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def csv_text(details: BatchDetails) -> str:
    """One row a job, with a header."""
    rows = rows_of(details)
    return csv_lines([COLUMNS, *([row[column] for column in COLUMNS] for row in rows)])


def rows_of(details: BatchDetails) -> list[dict[str, Any]]:
    """The jobs by column, as plain values. Their versions name this program's, too, which wrote the rows."""
    written_by = {WRITTEN_BY: program_version()}
    return [
        {
            **asdict(job),
            "status": job.status.value,
            "tags": list(job.tags),
            "versions": written_by | dict(job.versions),
        }
        for job in details.jobs
    ]


def batch_json(details: BatchDetails, *, ks: Sequence[int] = PASS_AT) -> dict[str, Any]:
    """The whole batch as one object, `kernelwright.batch/1`. `ks` are the k of its estimates."""
    batch = details.line.batch
    return {
        "schema": "kernelwright.batch/1",
        "batch": asdict(batch),
        "counts": {status.value: count for status, count in details.line.counts.items()},
        "spent_usd": details.line.spent_usd,
        "complete": details.complete,
        "over": details.over,
        "memory": details.memory,
        "about": about(details),
        "groups": [
            group_json(group) | {"estimates": {name: asdict(each) for name, each in estimates(samples, ks=ks).items()}}
            for group, samples in ((group, group_samples(details, group)) for group in details.groups)
        ],
        "jobs": rows_of(details),
        "refused": [{"task": ref, "reason": reason} for ref, reason in details.refused],
    }


def about(details: BatchDetails) -> dict[str, Any]:
    """What was asked for and what judged it: the distinct values of all jobs, in the order of the jobs."""
    jobs = details.jobs
    columns = ("platform", "model", "strategy", "device", "sandbox", "dtype")
    found: dict[str, Any] = {name: _distinct(getattr(job, name) for job in jobs) for name in columns}
    for each in ("settings", "versions"):
        names = sorted({name for job in jobs for name in getattr(job, each)})
        found[each] = {name: _distinct(getattr(job, each).get(name) for job in jobs) for name in names}
    found["versions"].pop("seed", None)  # each evaluation has its own
    samples = max((job.sample or 1 for job in jobs), default=0)
    spec = details.line.batch.spec
    translated = {"translate_from": spec["translate_from"]} if spec.get("translate_from") else {}
    return {
        "kernelwright": program_version(),
        "over": details.over,
        "tasks": len({job.task_key for job in jobs}),
        "samples": samples,
        "budget_usd": details.line.batch.budget_usd,
        **translated,
        **found,
    }


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for value in values if value not in (None, "")))


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


def _by_text(values: Mapping[int, Any] | Mapping[float, Any]) -> dict[str, Any]:
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
