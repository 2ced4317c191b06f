"""The output for batches, in 80 columns."""

from collections.abc import Sequence

from db.records import JobStatus
from service.batches.export import batch_json
from service.batches.manage import BatchDetails, ModelComparison
from service.batches.statistics import FAST_P, Estimate
from service.cli.output import note, plain, print_json, print_table, ratio
from tasks.outcomes import Clock, clock_of

_SHOWN_TASKS = 12
_LABEL_CHARS = 26
_MEANS = ("geomean", "of passed", "median")


def title_of(task: str, model: str | None, sample: int | None, position: str, several_models: bool) -> str:
    """The title of a batch's job while it runs; the model is named if the batch has several."""
    title = f"[{position}] {plain(task)}"
    title += f" with {plain(model)}" if several_models else ""
    return title + (f", sample {sample}" if (sample or 1) > 1 else "")


def show_outcome(details: BatchDetails, *, detached: bool, as_json: bool, at: str = "") -> None:
    """Print the end of `batch run` and `batch resume`. `at` is the option that names the server."""
    batch_id = details.line.batch.id
    if as_json:
        print_json(batch_json(details))
    elif detached:
        print(f"batch {batch_id}: {details.line.jobs} jobs queued for `kernelwright worker`")
    else:
        show_details(details)
    if not detached and not details.complete:
        note(f"go on with: kernelwright batch resume {batch_id}{at}")


def show_details(details: BatchDetails) -> None:
    """Print how far a batch has come, and the figures of each model and platform."""
    line = details.line
    batch = line.batch
    name = f" ({plain(batch.name)})" if batch.name else ""
    counts = ", ".join(f"{line.counts[status]} {status.value}" for status in JobStatus if line.counts.get(status))
    total = "" if batch.budget_usd is None else f" of ${batch.budget_usd:.2f}"
    print(f"batch {batch.id}{name}: {line.ended} of {line.jobs} jobs ended ({counts}); ${line.spent_usd:.4f}{total}")
    several = len({group.platform for group in details.groups}) > 1
    labels = [
        plain(group.model + (f" on {group.platform}" if several else ""))[-_LABEL_CHARS:] for group in details.groups
    ]
    groups = list(zip(labels, details.groups, strict=True))
    rates = [
        (
            label,
            group.figures.tasks,
            _share(group.figures.compile_rate),
            _share(group.figures.correctness_rate),
            " ".join(f"@{k} {value:.0%}" for k, value in group.figures.pass_at_k.items()),
            f"{group.cost_usd:.2f}",
        )
        for label, group in groups
    ]
    print_table(("model", "tasks", "built", "passed", "pass@k", "$"), rates, right=("tasks", "built", "passed", "$"))
    means = [
        (
            label,
            _estimate(group.figures.geomean),
            _estimate(group.figures.geomean_passed),
            _number(group.figures.median),
        )
        for label, group in groups
    ]
    print_table(("model", *_MEANS), means, right=_MEANS)
    fast = [(label, *(_share(group.figures.fast_p.get(p)) for p in FAST_P)) for label, group in groups]
    columns = tuple(f"> {p:g}" for p in FAST_P)
    print_table(("fast_p, p:", *columns), fast, right=columns)
    print(f"speedups over {details.over}; geomean and median count a failure as 1.0,\n`of passed` leaves it out")
    for label, group in groups:
        for told in _told(group.figures.share_failed, group.figures.share_without_speedup, group.open, group.unjudged):
            print(f"{label}: {told}")
    if details.memory not in ("", "off"):
        print(
            f"with memory ({details.memory}): jobs were told of earlier ones, so figures without are no match for these"
        )
    if any("process" in group.sandboxes for group in details.groups):
        print("measured in the process sandbox, which keeps no candidate from cheating")
    for label, group in groups:
        if (clock := details.clock(group.platform)).note:
            print(f"{label}: {clock.note}")
        _tell_devices(label, group.devices)


def show_jobs(details: BatchDetails) -> None:
    """Print each job on a line."""
    rows = [
        (
            job.job,
            job.task[-32:],
            (job.model or "")[-18:],
            job.sample,
            _speedup(job.counted_speedup(details.over), clock_of(job.tags)) or job.reason[:40],
        )
        for job in details.jobs
    ]
    print_table(("job", "task", "model", "sample", "speedup"), rows, right=("job", "sample"))


def show_refused(details: BatchDetails) -> None:
    """Print the tasks that could not be used, on stderr."""
    for ref, reason in details.refused:
        note(f"left out: {plain(reason if ref in reason else f'{ref}: {reason}')}")


def show_comparison(a: int, b: int, over: str, found: Sequence[ModelComparison]) -> None:
    """Print each compared pair with its figures."""
    for each in found:
        made = each.comparison
        print(f"A: batch {a}, {plain(each.model_a)}; B: batch {b}, {plain(each.model_b)}; on {each.platform}")
        if made.ratio is None:
            print("no task in common")
        else:
            test = "exact" if made.faster.exact else "approximate"
            print(f"A's speedups over {over} are {_estimate(made.ratio)} of B's, over {made.n} tasks that both ended")
            print(
                f"faster: p = {made.faster.p:.3g} (Wilcoxon's signed-rank test, {test};"
                f" n = {made.faster.n}, {made.faster.zeros} equal)"
            )
            passes = made.passes
            print(
                f"passed: both {passes.both}, A alone {passes.only_a}, B alone {passes.only_b},"
                f" neither {passes.neither}; p = {passes.p:.3g} (McNemar's exact test)"
            )
        _tell_devices("both", each.devices)
        for side, missing in (("A", made.missing_in_a), ("B", made.missing_in_b)):
            if missing:
                more = f" and {len(missing) - _SHOWN_TASKS} more" if len(missing) > _SHOWN_TASKS else ""
                print(f"not in {side}: {plain(', '.join(missing[:_SHOWN_TASKS]))}{more}")


def _tell_devices(whose: str, devices: Sequence[str]) -> None:
    """Say if results come from several devices, because speedups of different devices cannot be compared."""
    if len(devices) > 1:
        print(f"{whose}: measured on different devices, so differences may be theirs: {plain('; '.join(devices))}")


def _told(failed: float | None, without: float | None, waiting: int, unjudged: int) -> list[str]:
    parts = [f"{_share(failed)} failed"] if failed else []
    if failed is not None and without is not None and without > failed + 1e-9:
        parts.append(f"{_share(without - failed)} passed with times that do not count: 1.0 until measured again")
    if unjudged:
        parts.append(f"left out, for they say nothing of it: {unjudged}")
    if waiting:
        parts.append(f"not ended: {waiting}")
    return parts


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _speedup(value: float | None, clock: Clock) -> str:
    return "" if value is None else clock.beside(f"{value:.2f}")


def _estimate(value: Estimate | None) -> str:
    return "-" if value is None else ratio(value.value, value.low, value.high)
