"""`kernelwright db upgrade|check|backup`."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Json


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True, help="The database that remembers everything.", epilog="Example: kernelwright db check"
    )
    group.command(epilog="Example: kernelwright db upgrade")(upgrade)
    group.command(epilog="Example: kernelwright db check")(check)
    group.command(epilog="Example: kernelwright db backup copy.db")(backup)
    app.add_typer(group, name="db")


def upgrade(as_json: Json = False) -> None:
    """Make the store, or bring it to this version's tables. Every command does so by itself when it must.

    Also computes the leaderboard anew from all evaluations.
    """
    from db.migrations import HEAD
    from service.cli.output import print_json
    from service.database import upgrade_store
    from service.settings import load_settings

    done = upgrade_store(load_settings())
    if as_json:
        print_json({"schema": "kernelwright.db/1", "url": done.url, "revision": HEAD, "mended": done.mended})
        return
    print(f"{done.url} is at revision {HEAD}")
    if done.mended:
        print(f"entries of the leaderboard that did not say what the evaluations say, mended: {done.mended}")


def check(as_json: Json = False) -> int:
    """Compare the store with this version's tables and its leaderboard with all evaluations, and have the database
    check itself; exit status 3 if anything differs.
    """
    from service.cli.output import note, print_json
    from service.database import check_store
    from service.settings import load_settings

    found = check_store(load_settings())
    if as_json:
        values = {
            "url": found.url,
            "revision": found.revision,
            "newest": found.newest,
            "problems": list(found.problems),
        }
        print_json({"schema": "kernelwright.db_check/1", "ok": found.ok, **values})
    elif found.ok:
        print(f"{found.url} is whole and at revision {found.revision}")
    for problem in found.problems:
        note(f"error: {found.url}: {problem}")
    return 0 if found.ok else 3


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the copy.")], as_json: Json = False
) -> None:
    """Write a whole copy of the store to a new file, also while jobs run; of PostgreSQL by pg_dump, for pg_restore."""
    from service.cli.output import print_json
    from service.database import backup_store
    from service.settings import load_settings

    backup_store(load_settings(), target)
    if as_json:
        print_json({"schema": "kernelwright.backup/1", "file": str(target)})
    else:
        print(target)
