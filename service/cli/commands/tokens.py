"""`kernelwright tokens create|list|revoke`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.options import Json

if TYPE_CHECKING:
    from db.records import TokenRecord


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Who may use a server (docs/access.md).",
        epilog="Example: kernelwright tokens create ada --role submitter",
    )
    group.command(epilog="Example: kernelwright tokens create ada --role submitter --max-usd-a-day 5")(create)
    group.command("list", epilog="Example: kernelwright tokens list")(list_)
    group.command(epilog="Example: kernelwright tokens revoke 3 --reason 'left the team'")(revoke)
    app.add_typer(group, name="tokens")


def create(
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
    from service.database import open_store
    from service.settings import load_settings
    from service.submissions.access import create_token

    store = open_store(load_settings())
    try:
        record, secret = create_token(
            store, name=name, user=user, role=role, days=days, max_jobs=max_jobs, max_usd_a_day=max_usd_a_day
        )
    finally:
        store.close()
    if as_json:
        print_json({"schema": "kernelwright.token/1", "token": _json(record), "secret": secret})
        return
    note(f"token {record.id} for {record.user}, {record.role}; it is shown this once:")
    print(secret)


def list_(as_json: Json = False) -> None:
    """List all tokens, without their secrets."""
    from db.types import utc_now
    from service.cli.output import note, print_json, print_table
    from service.database import open_store
    from service.settings import load_settings
    from service.submissions.access import list_tokens

    store = open_store(load_settings())
    try:
        found = list_tokens(store)
    finally:
        store.close()
    if as_json:
        print_json({"schema": "kernelwright.tokens/1", "tokens": [_json(record) for record in found]})
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


def revoke(
    token_id: Annotated[int, typer.Argument(metavar="ID", help="The token's number, as `tokens list` shows it.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """End a token at once, and with it every session that was opened by it."""
    from service.cli.output import print_json
    from service.database import open_store
    from service.settings import load_settings
    from service.submissions.access import revoke_token

    store = open_store(load_settings())
    try:
        record = revoke_token(store, token_id, reason=reason)
    finally:
        store.close()
    if as_json:
        print_json({"schema": "kernelwright.token/1", "token": _json(record)})
    else:
        print(f"token {record.id} ({record.name}) opens nothing any more")


def _json(record: "TokenRecord") -> dict[str, Any]:
    return asdict(record)
