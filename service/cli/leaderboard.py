"""`kernelwright leaderboard`."""

from typing import Annotated

import typer

from service.cli.options import Json


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright leaderboard --suite starter --platform cpu")(leaderboard)


def leaderboard(
    suite: Annotated[str | None, typer.Option(help="Only tasks of this suite (`local`: your own ops).")] = None,
    platform: Annotated[str | None, typer.Option(help="Only this platform.")] = None,
    task: Annotated[str | None, typer.Option(help="Only this task, as suite/name.")] = None,
    as_json: Json = False,
) -> None:
    """Show who wrote the fastest kernel that passed, for each task, platform, device and sandbox.

    Entries whose 95 % intervals overlap share a rank. Models that passed nothing stand last, without a rank.
    """
    from dataclasses import asdict

    from db.leaderboard import leaderboard as entries_of
    from service.cli.output import milliseconds, note, print_json, print_table, ratio
    from service.cli.result import NO_BOUNDARY
    from service.settings import load_settings
    from service.store import open_store

    store = open_store(load_settings())
    try:
        with store.read() as session:
            entries = entries_of(session, suite=suite, platform=platform, task=task)
    finally:
        store.close()
    if as_json:
        print_json({"schema": "kernelwright.leaderboard/1", "entries": [asdict(entry) for entry in entries]})
        return
    rows = [
        (
            f"{entry.task} @{entry.source_hash[:7]}",
            entry.rank,
            entry.model,
            ratio(entry.speedup, entry.speedup_low, entry.speedup_high) if entry.passed else "none passed",
            ratio(entry.speedup_compile),
            milliseconds(entry.candidate_ms),
            ", ".join(entry.tags),
            f"{entry.platform}, {entry.sandbox}",
            entry.job_id,
        )
        for entry in entries
    ]
    right = ("rank", "over eager", "over compile", "ms", "job")
    columns = ("task", "rank", "model", "over eager", "over compile", "ms", "tags", "where", "job")
    if not rows:
        note("nothing was evaluated yet; try: kernelwright optimize starter/rmsnorm_gelu")
        return
    print_table(columns, rows, right=right)
    if any(entry.sandbox == "process" for entry in entries):
        note(f"process: {NO_BOUNDARY}")
