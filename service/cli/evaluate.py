"""`kernelwright evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import Json, Op, Platform, SandboxName


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: kernelwright evaluate op.py best.py --json")(evaluate)


def evaluate(
    op: Op,
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A .py file that defines ModelNew.")],
    platform: Platform = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
    as_json: Json = False,
) -> int:
    """Say what a candidate is worth for an op: correct or not, and how much faster. No model is involved.

    The exit status is 0 whatever the verdict; scripts read the verdict from --json.
    """
    from service.cli.output import note, print_json
    from service.cli.progress import showing
    from service.cli.result import show_evaluation
    from service.cli.signals import exit_status, stopping_on_signals
    from service.evaluate import evaluate_file
    from service.settings import load_settings
    from service.stopping import Stop
    from service.store import open_store
    from service.wiring import Stopped

    settings = load_settings(platform=platform, sandbox=sandbox, image=image)
    store = open_store(settings)
    stop = Stop()
    title = f"Evaluating {candidate} for {op}"
    try:
        with stopping_on_signals(stop), showing(title) as observe:
            evaluated = evaluate_file(op, candidate, settings=settings, store=store, observe=observe, stop=stop)
    except Stopped:
        note("error: stopped before there was a verdict")
        return exit_status(stop) or 1
    finally:
        store.close()
    if as_json:
        print_json(evaluated.record.result)
    else:
        show_evaluation(evaluated.record.result)
    return 0
