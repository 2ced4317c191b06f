"""`kernelwright db`, `tokens` and `audit`: administration of the store and of a server's users."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Json, Server


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    database = typer.Typer(
        no_args_is_help=True, help="The database that remembers everything.", epilog="Example: kernelwright db check"
    )
    database.command(epilog="Example: kernelwright db upgrade")(upgrade)
    database.command(epilog="Example: kernelwright db check")(check)
    database.command(epilog="Example: kernelwright db backup copy.db")(backup)
    app.add_typer(database, name="db")
    tokens = typer.Typer(
        no_args_is_help=True,
        help="Who may use a server (docs/access.md).",
        epilog="Example: kernelwright tokens create ada --role submitter",
    )
    tokens.command("create", epilog="Example: kernelwright tokens create ada --role submitter --max-usd-a-day 5")(
        create_token
    )
    tokens.command("list", epilog="Example: kernelwright tokens list")(list_tokens)
    tokens.command("revoke", epilog="Example: kernelwright tokens revoke 3 --reason 'left the team'")(revoke_token)
    app.add_typer(tokens, name="tokens")
    app.command(epilog="Example: kernelwright audit --limit 20; kernelwright audit --server http://host:8765")(audit)


def upgrade(as_json: Json = False) -> None:
    """Create the store, or upgrade it to this version's tables, and compute the leaderboard again from all evaluations.

    Every command upgrades the store by itself if that is necessary.
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
    """Write a copy of the whole store to a new file, also while jobs run. PostgreSQL needs pg_dump and pg_restore."""
    from service.cli.output import print_json
    from service.database import backup_store
    from service.settings import load_settings

    backup_store(load_settings(), target)
    if as_json:
        print_json({"schema": "kernelwright.backup/1", "file": str(target)})
    else:
        print(target)


def create_token(
    name: Annotated[str, typer.Argument(help="What the token is for, such as its holder or his machine.")],
    role: Annotated[str, typer.Option(metavar="viewer|submitter|operator", help="What it allows.")] = "viewer",
    user: Annotated[str | None, typer.Option(help="Whose jobs it makes. Default: NAME.")] = None,
    days: Annotated[int | None, typer.Option(help="It expires after so many days. Default: never.")] = None,
    max_jobs: Annotated[int | None, typer.Option(help="At most so many jobs at once.")] = None,
    max_usd_a_day: Annotated[float | None, typer.Option(help="At most so many dollars for models a day.")] = None,
    as_json: Json = False,
) -> None:
    """Make a token and print it, once: only its hash is kept."""
    from service.cli.output import note, print_json
    from service.database import opened_store
    from service.settings import load_settings
    from service.submissions import access

    with opened_store(load_settings()) as store:
        record, secret = access.create_token(
            store, name=name, user=user, role=role, days=days, max_jobs=max_jobs, max_usd_a_day=max_usd_a_day
        )
    if as_json:
        print_json({"schema": "kernelwright.token/1", "token": asdict(record), "secret": secret})
        return
    note(f"token {record.id} for {record.user}, {record.role}; it is shown this once:")
    print(secret)


def list_tokens(as_json: Json = False) -> None:
    """List all tokens, without their secrets."""
    from db.types import utc_now
    from service.cli.output import note, print_json, print_table
    from service.database import opened_store
    from service.settings import load_settings
    from service.submissions import access

    with opened_store(load_settings()) as store:
        found = access.list_tokens(store)
    if as_json:
        print_json({"schema": "kernelwright.tokens/1", "tokens": [asdict(record) for record in found]})
        return
    if not found:
        note("no tokens yet; make one: kernelwright tokens create NAME --role submitter")
        return
    now = utc_now()
    rows = [
        (
            record.id,
            record.name,
            record.user,
            record.role,
            "valid" if record.valid_at(now) else "revoked" if record.revoked_at else "expired",
            record.max_jobs,
            record.max_usd_a_day,
            None if record.expires_at is None else f"{record.expires_at:%Y-%m-%d}",
            None if record.last_used_at is None else f"{record.last_used_at:%Y-%m-%d %H:%M}",
        )
        for record in found
    ]
    columns = ("token", "name", "user", "role", "state", "jobs", "$ a day", "expires", "last used (UTC)")
    print_table(columns, rows, right=("token", "jobs", "$ a day"))


def revoke_token(
    token_id: Annotated[int, typer.Argument(metavar="ID", help="The token's number, as `tokens list` shows it.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """End a token at once, and with it every session that was opened by it."""
    from service.cli.output import print_json
    from service.database import opened_store
    from service.settings import load_settings
    from service.submissions import access

    with opened_store(load_settings()) as store:
        record = access.revoke_token(store, token_id, reason=reason)
    if as_json:
        print_json({"schema": "kernelwright.token/1", "token": asdict(record)})
    else:
        print(f"token {record.id} ({record.name}) opens nothing any more")


def audit(
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show the audit log, newest first: who retracted or restored results, made or revoked tokens, and why."""
    from service.cli.backend import open_backend
    from service.cli.output import note, print_json, print_table

    with open_backend(server) as backend:
        found = backend.audit(limit=limit)
    if as_json:
        print_json({"schema": "kernelwright.audit/1", "lines": [asdict(line) for line in found]})
        return
    if not found:
        note("nothing was changed yet that others rely on")
        return
    rows = [(f"{line.at:%Y-%m-%d %H:%M}", line.actor, line.action, line.subject, line.reason) for line in found]
    print_table(("when (UTC)", "who", "what", "to", "why"), rows)
