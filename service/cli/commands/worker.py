"""`kernelwright worker`."""

from typing import Annotated

import typer

from service.cli.options import Platform, SandboxName


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright worker --platform cpu --device 0")(worker)


def worker(
    platform: Platform = None,
    device: Annotated[int | None, typer.Option(help="Which of the host's devices, from 0.")] = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How log lines on stderr look.")] = "text",
) -> None:
    """Take jobs and evaluations from the queue, for one device of this host, until stopped.

    Ctrl-C or SIGTERM: what runs is put back in line, and another worker goes on with it. Any number of workers on any
    number of hosts share a store; those on one device take turns.
    """
    import logging
    import os
    import sys

    from service.cancellation import CancelToken
    from service.cli.errors import failure_of
    from service.cli.signals import cancel_on_signals
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
