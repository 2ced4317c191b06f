"""`kernelwright dev llm-server`: tools for trying things out and for developing."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Json


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Tools for trying things out and for developing.",
        epilog="Example: kernelwright dev llm-server --port 8009",
    )
    group.command("llm-server", epilog="Example: kernelwright dev llm-server --script replies.json")(llm_server)
    app.add_typer(group, name="dev")


def llm_server(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free port.")] = 0,
    script: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Replies and faults; without, any op is answered.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The only model to answer for; without, any.")] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; one that is not local lets other machines in.")
    ] = "127.0.0.1",
    as_json: Json = False,
) -> None:
    """Run a server that answers like a model, from a script: no key, no cost. Ends with Ctrl-C.

    Its first line on stdout is its address, for `--api-base`. Counts are at /stats.
    """
    import json
    import signal
    import threading

    from service.errors import Unavailable
    from service.mock_llm import start_llm_server

    stop = threading.Event()
    try:
        server = start_llm_server(script, port, host=host, model=model)
    except OSError as error:
        raise Unavailable(
            f"cannot listen at {host}:{port} ({error.strerror or error}); choose another --port"
        ) from error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with server:
        if as_json:
            print(
                json.dumps({"schema": "kernelwright.llm_server/1", "url": server.url, "port": server.port}), flush=True
            )
        else:
            print(server.url, flush=True)
        stop.wait()
