"""`kernelwright leaderboard`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import Json, Server

if TYPE_CHECKING:
    from db.records import LeaderboardEntry

_FIGURES = ("over eager", "pooled", "compile", "fastest", "ms", "roofline", "USD")
_RIGHT = ("rank", *_FIGURES, "job")
_SORTS = (
    *("board", "task", "model", "speedup", "speedup_compile", "speedup_best", "latency", "roofline", "cost"),
    "evaluated_at",
)
_ORDERS = {"asc": False, "desc": True}


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright leaderboard --suite starter --platform cpu")(leaderboard)


def leaderboard(
    suite: Annotated[str | None, typer.Option(help="Only tasks of this suite (`local`: your own ops).")] = None,
    platform: Annotated[str | None, typer.Option(help="Only this platform.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task, as suite/name.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Only tasks of this dtype.")] = None,
    sort: Annotated[str, typer.Option(metavar="KEY", help=f"Sort by {', '.join(_SORTS)}.")] = "speedup",
    order: Annotated[
        str | None, typer.Option(metavar="asc|desc", help="Default: the best or latest first, names from A.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many entries. Default: all.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show who wrote the fastest kernel that passed, for each task, platform, device and sandbox.

    All evaluations of a candidate are pooled. Entries whose 95 % intervals overlap share a rank. Models that passed
    nothing stand last, without a rank. `fastest` is the speedup over the fastest baseline. `--sort board` shows one
    task, platform, device and sandbox after the other.
    """
    from dataclasses import asdict

    from db.records import LeaderboardFilters, LeaderboardSort
    from service.cli.backend import open_backend
    from service.cli.job_output import NO_BOUNDARY
    from service.cli.output import note, print_json
    from service.errors import BadRequest
    from tasks.outcomes import TAGS, clock_of

    if sort not in _SORTS:
        raise BadRequest(f"--sort {sort[:80]}: unknown; there is: {', '.join(_SORTS)}")
    if order is not None and order not in _ORDERS:
        raise BadRequest(f"--order {order[:80]}: unknown; there is: asc, desc")
    filters = LeaderboardFilters(suite=suite, platform=platform, task=task, model=model, dtype=dtype)
    with open_backend(server) as backend:
        entries, total = backend.leaderboard(
            filters, sort=LeaderboardSort(sort), descending=_ORDERS.get(order or ""), limit=limit
        )
    if as_json:
        shown = [asdict(entry) for entry in entries]
        print_json({"schema": "kernelwright.leaderboard/1", "entries": shown, "total": total})
        return
    if not entries:
        advice = "nothing was evaluated yet; try: kernelwright optimize starter/rmsnorm_gelu"
        note(advice if filters == LeaderboardFilters() else "no entries match these filters")
        return
    if sort == "board":
        _show_boards(entries)
    else:
        _show_list(entries)
    if len(entries) < total:
        note(f"{total - len(entries)} more; raise --limit to see them")
    if clock := next((found for entry in entries if (found := clock_of(entry.tags)).note), None):
        note(f"{clock.note}: {TAGS[clock.name].text}")
    if any(entry.sandbox == "process" for entry in entries):
        note(f"process: {NO_BOUNDARY}")


def _show_boards(entries: "Sequence[LeaderboardEntry]") -> None:
    from itertools import groupby

    from service.cli.output import plain, print_table

    for (name, source_hash, on, device, sandbox), board in groupby(entries, lambda entry: entry.board):
        print(f"\n{plain(name)} (source {source_hash[:8]}) on {plain(on)}, {plain(device)}, sandbox {plain(sandbox)}\n")
        columns = ("rank", *_FIGURES, "model", "tags", "job")
        print_table(columns, [(entry.rank, *_figures(entry), *_origin(entry)) for entry in board], right=_RIGHT)


def _show_list(entries: "Sequence[LeaderboardEntry]") -> None:
    from service.cli.output import print_table

    columns = ("rank", "task", "platform", "device", "sandbox", *_FIGURES, "model", "tags", "job")
    rows = [
        (entry.rank, entry.task, entry.platform, entry.device, entry.sandbox, *_figures(entry), *_origin(entry))
        for entry in entries
    ]
    print_table(columns, rows, right=_RIGHT)


def _figures(entry: "LeaderboardEntry") -> tuple[str, ...]:
    from service.cli.output import latency, ratio
    from tasks.outcomes import clock_of

    clock = clock_of(entry.tags)
    return (
        ratio(entry.speedup, entry.speedup_low, entry.speedup_high) if entry.passed else "none passed",
        str(entry.pooled or "-"),
        ratio(entry.speedup_compile),
        _over_fastest(entry),
        latency(entry.candidate_ms, clock) + (f" {clock.unit}" if clock.note else ""),
        "-" if entry.roofline_fraction is None else f"{entry.roofline_fraction:.0%}",
        _cost(entry),
    )


def _over_fastest(entry: "LeaderboardEntry") -> str:
    """The speedup over the fastest baseline, with its name if that is none of the usual ones."""
    from evaluator.referee.protocol.baselines import USUAL
    from service.cli.output import ratio

    name = entry.best_baseline
    return ratio(entry.speedup_best) + (f" {name}" if name is not None and name not in USUAL else "")


def _cost(entry: "LeaderboardEntry") -> str:
    if entry.cost_usd is None:
        return "unknown" if entry.passed else "-"
    return f"{entry.cost_usd:.2f}"


def _origin(entry: "LeaderboardEntry") -> tuple[object, ...]:
    """The model, its result's tags with whether its job could be told kernels of this op, and the job."""
    from agents.memory import MemoryMode

    told = ("memory: all",) if entry.memory == MemoryMode.ALL else ()
    return (entry.model, ", ".join((*entry.tags, *told)), entry.job_id)
