"""`kernelwright`: the commands of service.cli, and `serve`."""

import sys
from typing import Annotated

import typer


def main() -> None:
    """Run the command line and exit with the command's status. Entry point of the console script."""
    from service.cli.app import run

    sys.exit(run(sys.argv[1:], more=(add_to,)))


def add_to(app: typer.Typer) -> None:
    """Add `serve` to the commands."""
    app.command(epilog="Example: kernelwright serve --port 8765")(serve)


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; any but a loopback one requires tokens.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8765,
    worker: Annotated[bool, typer.Option("--worker/--no-worker", help="Work on jobs here, too.")] = True,
    login: Annotated[bool, typer.Option("--login", help="Require tokens also on a loopback address.")] = False,
    proxy: Annotated[
        str, typer.Option(metavar="ADDRESS", help="A proxy whose X-Forwarded headers are believed; commas between.")
    ] = "127.0.0.1,::1",
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How log lines on stderr look.")] = "text",
) -> int:
    """Serve the pages and the API until stopped; by default with one worker for this machine beside them.

    On a loopback address everyone who reaches the server is the local user. Any other requires tokens: docs/access.md.
    """
    from service.database import open_store
    from service.errors import BadRequest
    from service.logs import set_up_logs
    from service.settings import load_settings
    from web.server import ServerOptions, run_server

    if log_format not in ("text", "json"):
        raise BadRequest(f"--log-format {log_format[:20]}: is text or json")
    settings = load_settings()
    set_up_logs("json" if log_format == "json" else "text")
    store = open_store(settings)
    try:
        options = ServerOptions(host, port, login=login, proxies=proxy, worker=worker, log_format=log_format)
        return run_server(settings, store, options, on_ready=lambda url: print(url, flush=True))
    finally:
        store.close()
