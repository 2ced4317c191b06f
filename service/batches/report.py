"""A report of a batch for a paper: tables, plots, what was asked for and what judged it, and the results themselves."""

import contextlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from service.batches.export import about, batch_json, csv_text
from service.batches.forms import kernelbench_form, multikernelbench_form
from service.batches.manage import BatchDetails, group_samples
from service.batches.plots import Bar, Curve, Spread, categories_plot, fast_p_plot, speed_range, speedups_plot
from service.batches.results import BatchJob, Group
from service.batches.statistics import (
    FAST_P,
    PASS_AT,
    Estimate,
    Sample,
    estimates,
    group_by_task,
    task_log,
)
from service.batches.tables import Cell, Column, Table, latex, markdown, percent, times
from service.errors import BadRequest, Conflict
from service.jobs.export import markdown_cell, markdown_table
from tasks.outcomes import remark

MARK = "report.json"
"""The file by which a folder is known as one that holds a report. It names the report's files."""

MAX_K = 1000
"""The largest k that a report takes."""

_NAMED_FILES = "report_files"
_BAND_POINTS = 40
_MOST_VALUES = 6
_MOST_LISTED = 50
_OF_CORRECT = Column("geomean of correct", r"\shortstack{geomean\\of correct}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_BASELINES = {"eager": "eager PyTorch", "compile": "torch.compile"}

_RULES = """\
- A sample is one job. All tasks have the same weight, whatever their number of samples.
- Compile@k, Pass@k and SpeedUp_α@k are the shares of tasks for which at least one of k samples is built, is correct, or
  is correct and at least α times as fast (Wen et al. 2025, MultiKernelBench, section 4.1). From n > k samples they are
  estimated without bias by 1 − C(n−c, k)/C(n, k) (Chen et al. 2021, equation 1).
- fast_p is the share of tasks with a kernel that is correct and more than p times as fast (Ouyang et al. 2025,
  KernelBench, section 3.3); with several samples, the expected value for one.
- geomean counts a failed sample as 1.0, because its user keeps the reference. Geomean of correct leaves failed samples
  out, as KernelBench does; read it only together with Pass@1.
- A sample that passed with times that do not count is as fast as the reference in every figure: 1.0 in means, above
  every threshold below 1, and below those from 1 on. It is measured again until its times count.
- Brackets hold 95 % intervals over tasks and samples: the percentile bootstrap with tasks as clusters (Davison and
  Hinkley 1997, section 3.8), 2000 draws. A figure of one task has none.
"""


def check_ks(ks: Iterable[int]) -> tuple[int, ...]:
    """The k of a report, ascending.

    Raises:
        BadRequest: one is not from 1 to `MAX_K`.
    """
    found = tuple(sorted(set(ks)))
    for k in found:
        if not 1 <= k <= MAX_K:
            raise BadRequest(f"--k {k}: must be from 1 to {MAX_K}, for k samples of each task")
    return found


def report_files(details: BatchDetails, *, ks: Sequence[int] = ()) -> dict[str, str]:
    """The files of a report, by path. The same results give the same files.

    Args:
        details: the batch.
        ks: the k of Compile@k, Pass@k and SpeedUp_α@k, ascending; without any, those of `PASS_AT` and the number of
            samples, as far as every task has so many.

    Raises:
        Conflict: the batch has no job that ended with something to report.
        BadRequest: no task has as many samples as the least of `ks`.
    """
    batch_id = details.line.batch.id
    parts = [_part(details, group) for group in details.groups]
    if not any(part.samples for part in parts):
        raise Conflict(
            f"batch {batch_id}: no job has ended, so there is nothing to report; `kernelwright batch show {batch_id}`"
        )
    most = max(_fewest(part.samples) for part in parts)
    ks = tuple(k for k in ks or sorted({*PASS_AT, most}) if k <= most)
    if not ks:
        raise BadRequest(f"--k: every task has fewer samples than that; the batch has {most} of each task")
    over = _BASELINES[details.over]
    tables = _tables(details, parts, ks, over)
    plots = _plots(details, parts, over)
    files = {
        "report.md": _markdown(details, tables, plots, over),
        "jobs.csv": csv_text(details),
        "tables.tex": _preamble(details) + "".join(rf"\input{{{table.name}.tex}}" + "\n" for table in tables),
    }
    files |= {f"{table.name}.tex": latex(table, f"tab:batch{batch_id}-{table.name}") for table in tables}
    files |= {f"{name}.svg": text for name, text in plots.items()}
    files |= _forms(details)
    whole = batch_json(details, ks=ks) | {_NAMED_FILES: sorted({*files, MARK})}
    return files | {MARK: json.dumps(whole, indent=1, default=str, allow_nan=False) + "\n"}


def write_report(files: Mapping[str, str], folder: Path) -> None:
    """Write a report into a new or empty folder, wholly or not at all; or in the place of an earlier report.

    Only what an earlier report wrote is replaced or removed. Its mark names those files; any others stay.

    Raises:
        BadRequest: there is something else, or it cannot be written.
    """
    earlier: frozenset[str] | None = None
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            if (earlier := _earlier_files(folder)) is None:
                raise BadRequest(f"--out {folder}: holds something other than a report; name a new or empty folder")
            if own := sorted(name for name in files if name not in earlier and os.path.lexists(folder / name)):
                raise BadRequest(
                    f"--out {folder}: {own[0]} is there, and no report wrote it; move it or name a new folder"
                )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            new = Path(beside) / "new"
            for name, text in files.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            if earlier is None:
                new.rename(folder)
            else:
                _replace(folder, files, new, earlier)
    except OSError as error:
        raise BadRequest(f"--out {folder}: cannot be written ({os.strerror(error.errno or 0)})") from error


def _earlier_files(folder: Path) -> frozenset[str] | None:
    """The files in a folder that a report wrote, by their paths; None if there is no report."""
    try:
        whole = json.loads((folder / MARK).read_text())
    except (OSError, ValueError, RecursionError):
        return None
    named = whole.get(_NAMED_FILES) if isinstance(whole, dict) else None
    if not isinstance(named, list) or MARK not in named or not all(isinstance(each, str) for each in named):
        return None
    root = folder.resolve()
    return frozenset(each for each in named if each and (folder / each).parent.resolve().is_relative_to(root))


def _replace(folder: Path, files: Mapping[str, str], new: Path, earlier: frozenset[str]) -> None:
    """Put the files of a new report in the place of an earlier one's.

    Until it is done the mark names the files of both, so that a report that was cut short is still known as one.
    """
    both = new.parent / MARK
    both.write_text(json.dumps({_NAMED_FILES: sorted({*files, *earlier})}))
    both.replace(folder / MARK)
    for name in sorted(earlier - files.keys()):
        (folder / name).unlink(missing_ok=True)
        for parent in (folder / name).parents:
            if parent == folder or any(parent.iterdir() if parent.is_dir() else ()):
                break
            with contextlib.suppress(FileNotFoundError):
                parent.rmdir()
    for name in sorted(files, key=lambda name: name == MARK):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).replace(folder / name)


@dataclass(frozen=True)
class _Part:
    """A model on a platform with its jobs and samples."""

    label: str
    group: Group
    jobs: tuple[BatchJob, ...]
    samples: tuple[Sample, ...]

    def of(self, what: Callable[[BatchJob], str], value: str) -> tuple[Sample, ...]:
        """The samples of the tasks with a property."""
        keys = {job.task_key for job in self.jobs if what(job) == value}
        return tuple(sample for sample in self.samples if sample.task in keys)


def _part(details: BatchDetails, group: Group) -> _Part:
    several = len({each.platform for each in details.groups}) > 1
    label = f"{group.model} on {group.platform}" if several else group.model
    jobs = tuple(job for job in details.jobs if ((job.model or ""), job.platform) == (group.model, group.platform))
    return _Part(
        details.clock(group.platform).beside(label or "(none)"), group, jobs, tuple(group_samples(details, group))
    )


def _fewest(samples: Sequence[Sample]) -> int:
    return min(map(len, group_by_task(samples).values()), default=0)


def _suite(job: BatchJob) -> str:
    return job.suite


def _category(job: BatchJob) -> str:
    return job.category or "other"


def _tables(details: BatchDetails, parts: Sequence[_Part], ks: Sequence[int], over: str) -> list[Table]:
    found = [(part, estimates(part.samples, ks=ks)) for part in parts]
    counts = f"{len({job.task_key for job in details.jobs})} tasks"
    shown = dict.fromkeys((ks[0], ks[-1]))
    overall = Table(
        "overall",
        f"Results on {counts}; speedups (SU) over {over}, shares in %. Brackets: 95 % intervals.",
        (
            *(Column("model"), Column("tasks"), Column("samples")),
            *(_at("Compile", ks[0]), *(_at("Pass", k) for k in shown)),
            *(_speedup_at("1", k) for k in shown),
            *(Column("geomean"), _OF_CORRECT, Column("$")),
        ),
        _best(
            [
                (
                    *(Cell(part.label), Cell(str(part.group.figures.tasks)), Cell(str(part.group.figures.samples))),
                    *(percent(values.get(f"compile@{ks[0]}")), *(percent(values.get(f"pass@{k}")) for k in shown)),
                    *(percent(values.get(f"SpeedUp_1@{k}")) for k in shown),
                    *(times(values.get("geomean")), times(values.get("geomean_passed"))),
                    Cell(f"{part.group.cost_usd:.2f}"),
                )
                for part, values in found
            ],
            3,
            5 + 2 * len(shown),
        ),
    )
    fast = Table(
        "fast_p",
        f"fast_p on {counts} in %: the share of tasks with a correct kernel more than p times as fast as {over}.",
        (Column("model"), *(Column(f"fast_{p:g}", rf"$\mathrm{{fast}}_{{{p:g}}}$") for p in FAST_P)),
        _best([(Cell(part.label), *(percent(values.get(f"fast_{p:g}")) for p in FAST_P)) for part, values in found], 1),
    )
    alphas = [f"{p:g}" for p in FAST_P if p > 0]
    at_k = Table(
        "at_k",
        "Shares of tasks in % for which at least one of k samples is built, is correct, or is correct and at least "
        f"α times as fast (SpeedUp, SU) as {over}.",
        (
            *(Column("model"), Column("k"), Column("Compile@k"), Column("Pass@k")),
            *(_speedup_at(alpha, "k") for alpha in alphas),
        ),
        tuple(
            (
                *(Cell(part.label), Cell(str(k))),
                *(percent(values.get(f"{name}@{k}")) for name in ("compile", "pass")),
                *(percent(values.get(f"SpeedUp_{alpha}@{k}")) for alpha in alphas),
            )
            for part, values in found
            for k in ks
            if f"pass@{k}" in values
        ),
    )
    tables = [overall, fast, at_k]
    for name, head, what in (("levels", "suite", _suite), ("categories", "category", _category)):
        values = sorted({what(job) for job in details.jobs}, key=_natural)
        tables.append(_by(name, head, what, values, parts, over))
    return [*tables, _task_table(details, parts, over)]


def _by(
    name: str, head: str, what: Callable[[BatchJob], str], values: Sequence[str], parts: Sequence[_Part], over: str
) -> Table:
    rows = []
    for value in values:
        for part in parts:
            if samples := part.of(what, value):
                found = estimates(samples, ks=(1,), ps=(1.0,))
                rows.append(
                    (
                        *(Cell(value), Cell(part.label), Cell(str(len(group_by_task(samples))))),
                        *(percent(found[each]) for each in ("compile@1", "pass@1", "fast_1")),
                        *(times(found.get(each)) for each in ("geomean", "geomean_passed")),
                    )
                )
    return Table(
        name,
        f"Results by {head}; speedups over {over}, shares in %.",
        (
            *(Column(head), Column("model"), Column("tasks"), _at("Compile", 1), _at("Pass", 1)),
            *(Column("fast_1", r"$\mathrm{fast}_1$"), Column("geomean"), _OF_CORRECT),
        ),
        tuple(rows),
        labels=2,
    )


def _task_table(details: BatchDetails, parts: Sequence[_Part], over: str) -> Table:
    """Each task: how many samples of each model are correct, and the geometric mean of their speeds."""
    by_part = [group_by_task(part.samples) for part in parts]
    names = {job.task_key: job.task for job in details.jobs}
    several = len(set(names.values())) < len(names)
    rows = []
    for key in sorted(names, key=lambda key: _natural(names[key])):
        cells = [Cell(key if several else names[key])]
        for by_task in by_part:
            samples = by_task.get(key, ())
            passed = [sample for sample in samples if sample.passed]
            share = f"({len(passed)}/{len(samples)})" if samples else ""
            speed = times(_plain(_exp_mean(passed))).text if passed else "–"
            unsure = "*" if any(sample.speedup is None for sample in passed) else ""
            cells.append(Cell(f"{speed}{unsure} {share}".rstrip()))
        rows.append(tuple(cells))
    return Table(
        "tasks",
        f"Speedups over {over} by task: the geometric mean of correct samples, and how many are correct. "
        "A star: times that do not count are among them, as 1.0.",
        (Column("task"), *(Column(part.label) for part in parts)),
        tuple(rows),
    )


def _exp_mean(samples: Sequence[Sample]) -> float:
    return math.exp(task_log(samples))


def _at(name: str, k: int) -> Column:
    return Column(f"{name}@{k}")


def _speedup_at(alpha: str, k: int | str) -> Column:
    of_k = "$k$" if k == "k" else k
    return Column(f"SpeedUp_{alpha}@{k}", rf"$\mathrm{{SU}}_{{{alpha}}}$@{of_k}")


def _best(rows: Sequence[tuple[Cell, ...]], first: int, end: int | None = None) -> tuple[tuple[Cell, ...], ...]:
    """The rows with the largest number of each column from `first` to `end` marked, where they differ."""
    marked = [list(row) for row in rows]
    for column in range(first, len(rows[0]) if rows and end is None else end or 0):
        numbers = [float(row[column].text) if row[column].text != "–" else None for row in rows]
        known = [number for number in numbers if number is not None]
        if len(set(known)) > 1:
            for row, number in zip(marked, numbers, strict=True):
                row[column] = replace(row[column], best=number == max(known))
    return tuple(map(tuple, marked))


def _plain(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts numbers in names by their values."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,15})", name)]


def _plots(details: BatchDetails, parts: Sequence[_Part], over: str) -> dict[str, str]:
    speeds = [sample.speed for part in parts for sample in part.samples if sample.speed is not None]
    low, high = speed_range(speeds)
    grid = [low * (high / low) ** (number / (_BAND_POINTS - 1)) for number in range(_BAND_POINTS)]
    curves = []
    for part in parts:
        by_task = group_by_task(part.samples)
        steps = [
            (sample.speed, 1 / len(samples) / len(by_task))
            for samples in by_task.values()
            for sample in samples
            if sample.speed is not None
        ]
        band = list(estimates(part.samples, ks=(), ps=grid).values())[:_BAND_POINTS]
        curves.append(Curve(part.label, steps, list(zip(grid, band, strict=False))))
    spreads = [_spread(part) for part in parts]
    categories = sorted({_category(job) for job in details.jobs}, key=_natural)
    bars = [
        (f"{category} ({_count(parts, category)})", [_bar(part.of(_category, category)) for part in parts])
        for category in categories
    ]
    return {
        "fast_p": fast_p_plot(curves, over),
        "speedups": speedups_plot(spreads, over),
        "categories": categories_plot([part.label for part in parts], bars, over),
    }


def _spread(part: _Part) -> Spread:
    passed = [sample for sample in part.samples if sample.passed]
    unsure = sum(sample.speedup is None for sample in passed)
    note = f"{len(passed)} of {len(part.samples)} correct" + (f", {unsure} not counted" if unsure else "")
    return Spread(part.label, [sample.speedup for sample in passed if sample.speedup is not None], note)


def _count(parts: Sequence[_Part], category: str) -> int:
    return len({sample.task for part in parts for sample in part.of(_category, category)})


def _bar(samples: Sequence[Sample]) -> Bar | None:
    if not samples:
        return None
    found = estimates(samples, ks=(1,), ps=(1.0,))
    return Bar(found["pass@1"].value, found["fast_1"])


def _markdown(details: BatchDetails, tables: Sequence[Table], plots: Mapping[str, str], over: str) -> str:
    batch = details.line.batch
    named = f" ({markdown_cell(batch.name)})" if batch.name else ""
    heads = {
        "overall": "Results",
        "fast_p": "fast_p",
        "at_k": "At least one of k",
        "levels": "By suite",
        "categories": "By category",
        "tasks": "By task",
    }
    plotted = {"fast_p": "fast_p over p", "overall": "Speedups that count", "categories": "Shares by category"}
    files = {"fast_p": "fast_p", "overall": "speedups", "categories": "categories"}
    sections = [f"# Batch {batch.id}{named}\n"]
    if not details.complete:
        sections.append("**Not every job came to its end, so these figures are not the batch's last ones.**\n")
    sections.append(f"## What was run\n\n{_about_table(details)}")
    for table in tables:
        section = f"## {heads[table.name]}\n\n{markdown(table)}"
        if table.name in plotted and files[table.name] in plots:
            section += f"\n![{plotted[table.name]}]({files[table.name]}.svg)\n"
        sections.append(section)
    sections.append(f"## What the figures are\n\n{_RULES}")
    if left_out := _left_out(details):
        sections.append(f"## Left out or not counted\n\n{left_out}")
    sections.append(f"## Files\n\n{_FILES}")
    return "\n".join(sections)


_FILES = """\
| file | what it is |
| --- | --- |
| `tables.tex` | includes the tables: one `.tex` each, with booktabs (and longtable where a table is long) |
| `fast_p.svg`, `speedups.svg`, `categories.svg` | the plots |
| `report.json` | everything, as `kernelwright batch show --json` prints it |
| `jobs.csv` | each job |
| `kernelbench/` | by model, platform and suite: results, pass@k and a baseline, for KernelBench's analysis script |
| `multikernelbench/` | results and a baseline in MultiKernelBench's form |
"""


def _about_table(details: BatchDetails) -> str:
    found = about(details)
    rows: list[tuple[str, str]] = [("batch", f"{details.line.batch.id}, {details.line.batch.created_at:%Y-%m-%d} UTC")]
    for name, value in found.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{inner}", _values(values)) for inner, values in value.items()]
        else:
            rows.append((name, _values(value if isinstance(value, list) else [value])))
    return markdown_table(("what", "value"), [(name, text) for name, text in rows if text])


def _values(values: Sequence[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:_MOST_VALUES] if value is not None)
    return f"{shown} and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else shown


def _left_out(details: BatchDetails) -> str:
    """The tasks and jobs that no figure, or not every figure, is made of; each with the reason."""
    lines = [f"- {markdown_cell(ref)}: {markdown_cell(reason)}" for ref, reason in details.refused]
    for job in details.jobs:
        what = f"job {job.job}, {markdown_cell(job.task)}, sample {job.sample}"
        if job.outcome in ("open", "unjudged"):
            lines.append(f"- {what}: left out, {markdown_cell(job.reason)}")
        elif job.outcome == "passed" and job.counted_speedup(details.over) is None:
            reason = "; ".join(remark(tag) for tag in job.reason.split(", ")) or f"no time of {details.over}"
            lines.append(f"- {what}: its times do not count, {markdown_cell(reason)}")
    more = f"- and {len(lines) - _MOST_LISTED} more (`jobs.csv` has them all)\n" if len(lines) > _MOST_LISTED else ""
    return "".join(f"{line}\n" for line in lines[:_MOST_LISTED]) + more


def _preamble(details: BatchDetails) -> str:
    batch = details.line.batch.id
    return (
        f"% Tables of batch {batch}, written by `kernelwright batch report {batch}`.\n"
        "% In the preamble: \\usepackage{booktabs,longtable}; a longtable needs a page of one column (\\onecolumn).\n"
        "% The plots are .svg files: \\usepackage{svg}, or convert them, as by `rsvg-convert -f pdf fast_p.svg`.\n"
    )


def _forms(details: BatchDetails) -> dict[str, str]:
    """The results in other projects' forms."""
    files: dict[str, str] = {}
    used: set[str] = set()
    for group in details.groups:
        jobs = [job for job in details.jobs if ((job.model or ""), job.platform) == (group.model, group.platform)]
        for suite in sorted({job.suite for job in jobs}, key=_natural):
            form = kernelbench_form(details, model=group.model, platform=group.platform, suite=suite)
            run = _unique(f"{group.model}-{group.platform}-{suite}-{details.over}", used)
            named = {"run": run, "model": group.model, "platform": group.platform, "suite": suite, "over": details.over}
            for name, value in (
                ("eval_results", form.eval_results),
                ("pass_at_k_results", form.pass_at_k),
                ("baseline", form.baseline),
                ("about", named | {"level": form.level, "problems": form.problems, "batch": about(details)}),
            ):
                files[f"kernelbench/{run}/{name}.json"] = _json(value)
        multi = multikernelbench_form(details, model=group.model, platform=group.platform)
        strategy = _folder_name(next((job.strategy for job in jobs if job.strategy), None) or "none")
        model = _unique(group.model, used)
        folder = f"multikernelbench/output/{_folder_name(multi.language)}/{strategy}/default/{model}"
        for number, results in enumerate(multi.runs):
            files[f"{folder}/run{number}/result.json"] = _json(results)
        device = _folder_name("-".join(group.devices) or "unknown")
        files[f"multikernelbench/baselines/{_folder_name(multi.language)}_{device}_{model}.json"] = _json(
            multi.baseline
        )
    return files


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str, allow_nan=False) + "\n"


def _folder_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("-", name).strip(".-")[:80] or "unnamed"


def _unique(name: str, used: set[str]) -> str:
    found = base = _folder_name(name)
    number = 2
    while found in used:
        found, number = f"{base}-{number}", number + 1
    used.add(found)
    return found
