"""`kernelwright audit`."""

from typing import Annotated

import typer

from service.cli.options import Json, Server


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright audit --limit 20; kernelwright audit --server http://host:8765")(audit)


def audit(
    limit: Annotated[int, typer.Option(min=1, help="At most so many lines.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show who changed what others rely on, and why: results taken back, tokens made and revoked. Newest first."""
    from dataclasses import asdict

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
