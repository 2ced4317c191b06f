"""`kernelwright leaderboard`."""

from typing import Annotated

import typer

from service.cli.options import Json, Server

_RIGHT = ("rank", "over eager", "compile", "ms", "job")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright leaderboard --suite starter --platform cpu")(leaderboard)


def leaderboard(
    suite: Annotated[str | None, typer.Option(help="Only tasks of this suite (`local`: your own ops).")] = None,
    platform: Annotated[str | None, typer.Option(help="Only this platform.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task, as suite/name.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show who wrote the fastest kernel that passed, for each task, platform, device and sandbox.

    Entries whose 95 % intervals overlap share a rank. Models that passed nothing stand last, without a rank.
    """
    from dataclasses import asdict
    from itertools import groupby

    from service.cli.output import milliseconds, note, plain, print_json, print_table, ratio
    from service.cli.result import NO_BOUNDARY
    from service.cli.where import where

    with where(server) as place:
        entries = place.leaderboard(suite=suite, platform=platform, task=task)
    if as_json:
        print_json({"schema": "kernelwright.leaderboard/1", "entries": [asdict(entry) for entry in entries]})
        return
    if not entries:
        note("nothing was evaluated yet; try: kernelwright optimize starter/rmsnorm_gelu")
        return
    for (name, source_hash, on, device, sandbox), board in groupby(entries, lambda entry: entry.board):
        print(f"\n{plain(name)} (source {source_hash[:8]}) on {plain(on)}, {plain(device)}, sandbox {plain(sandbox)}\n")
        rows = [
            (
                entry.rank,
                ratio(entry.speedup, entry.speedup_low, entry.speedup_high) if entry.passed else "none passed",
                ratio(entry.speedup_compile),
                milliseconds(entry.candidate_ms),
                entry.model,
                ", ".join(entry.tags),
                entry.job_id,
            )
            for entry in board
        ]
        print_table(("rank", "over eager", "compile", "ms", "model", "tags", "job"), rows, right=_RIGHT)
    if any(entry.sandbox == "process" for entry in entries):
        note(f"process: {NO_BOUNDARY}")
