"""How many tasks of public sets can be imported, how many fit a limit as they are and scaled down, and what checks say.

    python -m benchmarks.task_sets --fit 256MB kernelbench=~/KernelBench multikernelbench=~/MultiKernelBench [--check 2]

Each task's inputs, parameters and outputs are measured in a sandbox (`evaluator.sizes`); a task that is too large is
scaled down by the rule of `tasks.fit`. With `--check N` each variant is then checked as `tasks import --check` does it
(`evaluator.task_check`), N at a time; of several tasks with the same source, one. The script writes `task_sets.json`
(all tasks) and `task_sets.md` (the tables) to `--out`, by default benchmarks/results. What the JSON has already, of the
same source, limit and rule, is neither measured nor checked again, so a run that was stopped goes on where it was.
"""

import argparse
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from evaluator.platforms import load_platform
from evaluator.referee.pool.memory_need import Need
from evaluator.referee_process import harness_hash
from evaluator.sizes import CallSizes
from evaluator.task_check import CHECK_EFFORT, TaskCheck, check_task
from service.evaluation_context import open_sandbox
from service.fitting import FitResult, fit_tasks
from service.settings import load_settings
from tasks.categories import category_of
from tasks.fit import RULE, Limit, constants_of, fitted_of, read_limit, variant, variant_of_cases
from tasks.importers import KINDS, ClonedFile, read_clone
from tasks.metadata import CATEGORIES
from tasks.outcomes import Verdict
from tasks.parse import parse
from tasks.shape_cases import cases_of
from tasks.task import Task
from tasks.validate import validate

Row = dict[str, Any]
_SHOWN_BYTES = 10**6
_KEPT_OF_CHECK = ("ok", "problems", "warnings", "eager_ms", "memory_mb", "need_mb", "cost_s")
SANDBOX_MB = 8192


def main() -> None:
    """Measure the clones that are named, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", nargs="+", metavar="KIND=PATH", help=f"a clone, of {', '.join(KINDS)}")
    parser.add_argument("--fit", default="256MB", help="the limit of a call's inputs and outputs")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="measure only these suites or tasks now")
    parser.add_argument("--check", type=int, default=0, metavar="N", help="check the variants, N at a time")
    parser.add_argument("--sandbox", default=None, choices=("docker", "process"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    limit = read_limit(given.fit)
    files = [
        (kind, Path(path).expanduser(), each)
        for kind, _, path in (clone.partition("=") for clone in given.clones)
        for each in read_clone(kind, Path(path).expanduser())
    ]
    kept = given.out / "task_sets.json"
    tasks = [each.task for _, _, each in files if each.task is not None]
    asked_for = [task for task in tasks if _is_meant(task, given.only or ["*"])]
    rows = _measured(tasks, asked_for, limit, kept, given.sandbox)
    if given.check:
        for _ in _checked(asked_for, rows, limit, given.check, given.sandbox):
            _keep(kept, rows)
    (given.out / "task_sets.md").write_text(_page(files, rows, limit))


def _is_meant(task: Task, only: Sequence[str]) -> bool:
    return any(fnmatchcase(task.suite, pattern) or fnmatchcase(task.id, pattern) for pattern in only)


def _keep(path: Path, rows: dict[str, Row]) -> None:
    path.write_text(json.dumps({"tasks": dict(sorted(rows.items()))}, indent=0) + "\n")


def _measured(
    tasks: Sequence[Task], asked_for: Sequence[Task], limit: Limit, kept: Path, sandbox_name: str | None
) -> dict[str, Row]:
    """The row of each task, by its name; those of `asked_for` that are new are measured and kept, some at a time."""
    known: dict[str, Row] = json.loads(kept.read_text())["tasks"] if kept.exists() else {}
    rows = {task.id: known[task.id] for task in tasks if task.id in known}
    key = {task.id: {"source_hash": task.source_hash, "limit_bytes": limit.limit_bytes, "rule": RULE} for task in tasks}
    waiting = [task for task in asked_for if not key[task.id].items() <= rows.get(task.id, {}).items()]
    if not waiting:
        return rows
    settings = load_settings(sandbox=sandbox_name)
    with open_sandbox(settings, own_code_only=True) as sandbox:
        results = fit_tasks(
            waiting,
            limit,
            sandbox=sandbox,
            memory_mb=settings.memory_mb,
            on_progress=lambda count: print(f"[{count}/{len(waiting)}]", file=sys.stderr),
        )
        for found in results:
            rows |= {each.task.id: {**key[each.task.id], **_row(each)} for each in found}
            _keep(kept, rows)
    return rows


def _checked(
    asked_for: Sequence[Task], rows: dict[str, Row], limit: Limit, at_once: int, sandbox_name: str | None
) -> Iterator[None]:
    """Check the variants of which nothing is known that lasts, and put what is found into the rows of their sources."""
    settings = load_settings(sandbox=sandbox_name, memory_mb=SANDBOX_MB)
    effort = replace(CHECK_EFFORT, memory_mb=settings.memory_mb)
    platform, harness = load_platform("cpu"), harness_hash()
    alike: dict[tuple[object, ...], list[Row]] = {}  # rows of the same variant: a task may be in several sets
    for row in rows.values():
        alike.setdefault(_of_variant(row), []).append(row)
    for same in alike.values():
        known = next((row["check"] for row in same if not _is_open(row.get("check"))), None)
        for row in same if known else ():
            row["check"] = known
    yield
    waiting = {
        _of_variant(row): task
        for task in asked_for
        if (row := rows.get(task.id)) and row["after"] and _is_open(row.get("check"))
    }
    with open_sandbox(settings, own_code_only=True) as sandbox, ThreadPoolExecutor(at_once) as pool:

        def check(task: Task) -> TaskCheck:
            return check_task(_variant(task, rows[task.id], limit), sandbox=sandbox, platform=platform, effort=effort)

        running = {pool.submit(check, task): (of_variant, task) for of_variant, task in waiting.items()}
        for count, done in enumerate(as_completed(running), 1):
            (of_variant, task), found = running[done], done.result()
            print(f"[{count}/{len(waiting)}] {task.id}: {'ok' if found.ok else found.problems}", file=sys.stderr)
            told = {name: value for name, value in found.to_json().items() if name in _KEPT_OF_CHECK}
            for row in alike[of_variant]:
                row["check"] = {"harness": harness, **told}
            yield


def _of_variant(row: Row) -> tuple[object, ...]:
    """The same for rows whose variants are the same."""
    return row["source_hash"], row["limit_bytes"], row["rule"]


def _is_open(check: Row | None) -> bool:
    """Whether a variant was not checked, or failed in a way that may be the machine's."""
    passing = {Verdict.SANDBOX_ERROR.value, Verdict.TIMED_OUT.value}
    return check is None or any(problem["code"] in passing for problem in check["problems"])


def _variant(task: Task, row: Row, limit: Limit) -> Task:
    """The variant that a row tells of."""
    if cases := cases_of(task.source):
        return variant_of_cases(task, limit, [number for number in range(len(cases)) if number not in row["left_out"]])
    values = {each: row["changed"].get(each.name, (each.value, each.value))[1] for each in constants_of(task.source)}
    return variant(task, limit, values)


def _row(result: FitResult) -> Row:
    fitted = None if result.variant is None else fitted_of(result.variant.source)
    return {
        "before": None if result.before is None else asdict(result.before),
        "after": None if result.after is None else asdict(result.after),
        "changed": None if fitted is None else {name: list(pair) for name, pair in fitted.changed.items()},
        "left_out": None if fitted is None else list(fitted.left_out),
        "problem": result.problem,
    }


def _page(files: Sequence[tuple[str, Path, ClonedFile]], rows: dict[str, Row], limit: Limit) -> str:
    parts = [
        f"# Public task sets at {limit.text}\n",
        "Written by `python -m benchmarks.task_sets`. A task *fits* if the inputs and outputs"
        f"\nof one call have at most {limit.limit_bytes:,} bytes; of a task with cases, those of at least one case, and"
        "\nits other cases are left out of the variant. Sizes are medians of what one call of the tasks touches.\n",
        _sizes_table(files, rows, limit),
        "## What a sandbox can judge\n",
        f"Tasks for which a sandbox of {SANDBOX_MB:,} MB has room, by what is predicted of inputs, outputs and"
        "\nparameters (`evaluator/referee/pool/memory_need.py`; what a call takes besides is seen in the sandbox alone,"
        "\nso it may be fewer). *inputs alone*: 17 times the inputs, an earlier rule that forgot all else.\n",
        _judged_table(files, rows),
        "## What checks of the variants say\n",
        f"Each variant in a sandbox of {SANDBOX_MB:,} MB, as `kernelwright tasks import --check` does it."
        "\n*can be judged*: nothing makes it unusable. *with doubts*: of these, those whose passing is weak evidence."
        f"\nReferees: {', '.join(_referees(rows)) or 'none'}.\n",
        _checks_table(files, rows),
        _found_by_checks(rows),
        "## Why the rest is not imported, or does not fit\n",
        _reasons(files, rows),
        "## Categories\n",
        "What the rule says (`tasks/categories.py`), against the folder that MultiKernelBench keeps each task in.\n",
        _categories_table(files),
    ]
    return "\n".join(parts)


def _sizes_table(files: Sequence[tuple[str, Path, ClonedFile]], rows: dict[str, Row], limit: Limit) -> str:
    head = (
        "| suite | files | imported | measured | inputs fit | fits | fits scaled down | of these unchanged"
        " | median MB before | largest MB before | median MB scaled down |"
    )
    lines = [head, "| --- " + "| ---: " * 10 + "|"]
    suites = list(dict.fromkeys(each.suite for _, _, each in files))
    for suite in [*suites, ""]:
        mine = [each for _, _, each in files if suite in ("", each.suite)]
        found = [rows[each.task.id] for each in mine if each.task is not None and each.task.id in rows]
        before = [size for row in found if (size := _moved(row["before"])) is not None]
        after = [size for row in found if (size := _moved(row["after"])) is not None]
        inputs = [row["before"]["inputs"] for row in found if row["before"] and row["before"]["inputs"] is not None]
        unchanged = sum(row["changed"] == {} and not row["left_out"] for row in found)
        small = sum(size <= limit.limit_bytes for size in before)
        lines.append(
            f"| {suite or '**all**'} | {len(mine)} | {sum(each.task is not None for each in mine)} | {len(found)} "
            f"| {sum(size <= limit.limit_bytes for size in inputs)} | {small} "
            f"| {len(after)} | {unchanged} | {_mb(before, statistics.median)} | {_mb(before, max)} "
            f"| {_mb(after, statistics.median)} |"
        )
    return "\n".join(lines) + "\n"


def _judged_table(files: Sequence[tuple[str, Path, ClonedFile]], rows: dict[str, Row]) -> str:
    lines = ["| set | measured | inputs alone | as they are | scaled down |", "| --- " + "| ---: " * 4 + "|"]
    for kind in [*dict.fromkeys(kind for kind, _, _ in files), ""]:
        mine = [each.task.id for of, _, each in files if kind in ("", of) and each.task is not None]
        found = [rows[name] for name in mine if name in rows]
        inputs = [row["before"]["inputs"] for row in found if row["before"] and row["before"]["inputs"] is not None]
        alone = sum(17 * size <= SANDBOX_MB << 20 for size in inputs)
        counts = (alone, *(sum(_has_room(row[when]) for row in found) for when in ("before", "after")))
        lines.append(f"| {kind or '**all**'} | {len(found)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def _referees(rows: dict[str, Row]) -> list[str]:
    return sorted({f"`{row['check']['harness'][:12]}`" for row in rows.values() if "check" in row})


def _checks_table(files: Sequence[tuple[str, Path, ClonedFile]], rows: dict[str, Row]) -> str:
    lines = ["| suite | files | checked | can be judged | with doubts |", "| --- " + "| ---: " * 4 + "|"]
    suites = list(dict.fromkeys(each.suite for _, _, each in files))
    for suite in [*suites, ""]:
        mine = [each for _, _, each in files if suite in ("", each.suite)]
        found = [
            rows[each.task.id]["check"]
            for each in mine
            if each.task is not None and "check" in rows.get(each.task.id, {})
        ]
        usable = [check for check in found if check["ok"]]
        doubted = sum(bool(check["warnings"]) for check in usable)
        lines.append(f"| {suite or '**all**'} | {len(mine)} | {len(found)} | {len(usable)} | {doubted} |")
    return "\n".join(lines) + "\n"


def _found_by_checks(rows: dict[str, Row]) -> str:
    """Each problem and each doubt with the tasks that it holds for; what differs from task to task is left out."""
    found: dict[str, list[str]] = {}
    for name, row in rows.items():
        check = row.get("check", {})
        for problem in check.get("problems", ()):
            found.setdefault(f"problem: {problem['code']}: {_without_numbers(problem['message'])}", []).append(name)
        if check.get("ok"):
            for doubt in dict.fromkeys(_without_numbers(doubt) for doubt in check["warnings"]):
                found.setdefault(f"doubt: {doubt}", []).append(name)
    order = sorted(found.items(), key=lambda item: (not item[0].startswith("problem"), -len(item[1])))
    return _table_of_reasons("found", order)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d,.]*", "N", re.sub(r"\s*\([a-z0-9]+\[[^)]*\)", "", text))


def _has_room(sizes: Row | None) -> bool:
    if sizes is None or sizes["inputs"] is None:
        return False
    need = Need(sizes["inputs"], sizes["outputs"] or 0, sizes["parameters"] or 0)
    return need.fits(SANDBOX_MB << 20)


def _moved(sizes: Row | None) -> int | None:
    return None if sizes is None else CallSizes(**sizes).moved


def _mb(sizes: Sequence[int], what: Any) -> str:
    return f"{what(sizes) / _SHOWN_BYTES:,.1f}" if sizes else "-"


def _reasons(files: Sequence[tuple[str, Path, ClonedFile]], rows: dict[str, Row]) -> str:
    """Each reason with the tasks that it holds for; numbers in it that differ from task to task are left out."""
    refused = [(each.problem, f"{each.suite}/{each.name}") for _, _, each in files if each.task is None]
    refused += [
        (rows[each.task.id]["problem"], each.task.id)
        for _, _, each in files
        if each.task is not None and rows.get(each.task.id, {}).get("problem")
    ]
    by_reason: dict[str, list[str]] = {}
    for problem, name in refused:
        by_reason.setdefault(re.sub(r"^line \d+: ", "", problem), []).append(name)
    return _table_of_reasons("why", sorted(by_reason.items(), key=lambda item: -len(item[1])))


def _table_of_reasons(head: str, reasons: Sequence[tuple[str, list[str]]]) -> str:
    lines = [f"| {head} | tasks | which |", "| --- | ---: | --- |"]
    for reason, names in reasons:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        text = reason.replace("|", "/")
        lines.append(f"| {text} | {len(names)} | {shown} |")
    return "\n".join(lines) + "\n"


def _categories_table(files: Sequence[tuple[str, Path, ClonedFile]]) -> str:
    lines = ["| category | tasks | the same | otherwise |", "| --- | ---: | ---: | --- |"]
    told: dict[str, Counter[str]] = {}
    for kind, _, each in files:
        category = each.suite.partition("-")[2]
        if kind == "multikernelbench" and category in CATEGORIES and each.task is not None:
            op = validate(each.task.source, each.where)
            said = category_of(parse(each.task.source, each.where), op.parameters.names)
            told.setdefault(category, Counter())[said] += 1
    for category, counts in sorted(told.items()):
        others = ", ".join(f"{name} {count}" for name, count in counts.most_common() if name != category)
        lines.append(f"| {category} | {counts.total()} | {counts[category]} | {others} |")
    total, same = sum(each.total() for each in told.values()), sum(counts[name] for name, counts in told.items())
    return "\n".join([*lines, f"| **all** | {total} | {same} | |"]) + "\n"


if __name__ == "__main__":
    main()
