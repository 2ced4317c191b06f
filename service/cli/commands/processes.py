"""`kernelwright worker`, `mcp` and `dev llm-server`: processes that run until they are stopped."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Json, Platform, SandboxName


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: kernelwright worker --platform cpu --device 0")(worker)
    app.command(epilog="Example: kernelwright mcp --platform cpu")(mcp)
    dev = typer.Typer(
        no_args_is_help=True,
        help="Tools for trying things out and for developing.",
        epilog="Example: kernelwright dev llm-server --port 8009",
    )
    dev.command("llm-server", epilog="Example: kernelwright dev llm-server --script replies.json")(llm_server)
    app.add_typer(dev, name="dev")


def worker(
    platform: Platform = None,
    device: Annotated[int | None, typer.Option(help="Which of the host's devices, from 0.")] = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How log lines on stderr look.")] = "text",
) -> None:
    """Take jobs and evaluations from the queue, for one device of this host, until stopped.

    Ctrl-C or SIGTERM: running jobs go back into the queue, and another worker resumes them. Any number of workers on
    any number of hosts can share a store. Workers of one device take turns.
    """
    import logging
    import os
    import sys

    from service.cancellation import CancelToken, cancel_on_signals
    from service.cli.errors import failure_of
    from service.database import open_store
    from service.errors import BadRequest
    from service.logs import set_up_logs
    from service.settings import load_settings
    from service.worker.context import WorkerContext
    from service.worker.main import run_worker

    if log_format not in ("text", "json"):
        raise BadRequest(f"--log-format {log_format[:20]}: is text or json")
    settings = load_settings(platform=platform, device=device, sandbox=sandbox, image=image)
    set_up_logs("json" if log_format == "json" else "text")
    log = logging.getLogger("service.worker")

    def ready(worker: WorkerContext) -> None:
        about = {"worker": worker.worker_id, "platform": worker.platform.name, "slot": settings.device}
        log.info("worker ready on %s, sandbox %s", worker.device.name, worker.sandbox.name, extra=about)

    store = open_store(settings)
    cancel = CancelToken()
    status = 0
    try:
        saying = "giving back what runs, then ending" if log_format == "text" else None
        with cancel_on_signals(cancel, saying):
            run_worker(settings, store, cancel, on_ready=ready)
        log.info("worker ended")
    except Exception as error:
        failure = failure_of(error)
        status = failure.status
        log.critical("worker ended: %s", failure.message, exc_info=failure.kind == "internal")
    store.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the queue's threads may still hold evaluations that others do by now


def mcp(
    platform: Platform = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
) -> None:
    """Serve the tools evaluate, profile, task and leaderboard to an agent, by MCP over stdin and stdout.

    Register it with the agent as the command `kernelwright mcp`. It ends when its client closes stdin.
    What a client sends runs in Docker; --sandbox process is for clients that you trust like yourself.
    """
    import sys

    from service.cli.errors import failure_of
    from service.cli.output import note
    from service.mcp.server import serve
    from service.settings import load_settings

    def explain(error: Exception) -> str | None:
        failure = failure_of(error)
        return None if failure.kind == "internal" else failure.message

    settings = load_settings(platform=platform, sandbox=sandbox, image=image)
    if sys.stdin.isatty():
        note("waiting for an MCP client on stdin; agents start this command by themselves (Ctrl-C ends it)")
    serve(settings, explain)


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
