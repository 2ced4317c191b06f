"""`kernelwright evaluate`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.options import Baselines, Domain, Json, Op, Platform, SandboxName, Server


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Example: kernelwright evaluate op.py best.py --json;"
        " kernelwright evaluate op.py best.py --server http://host:8765"
    )(evaluate)


def evaluate(
    op: Op,
    candidate: Annotated[
        Path,
        typer.Argument(
            metavar="CANDIDATE",
            help="A .py file that defines ModelNew; a .cpp or .c file with a kernel (docs/batches.md).",
        ),
    ],
    platform: Platform = None,
    sandbox: SandboxName = None,
    image: Annotated[str | None, typer.Option(help="Docker image of the sandbox.")] = None,
    repeat: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Evaluate N times and say whether the results agree.")
    ] = 1,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="kernelbench", help="Also report what this accuracy rule would say; the verdict stays ours."
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Also say where a passed candidate's time goes (some 10 s and a build more)."),
    ] = False,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize", help="Profile, and have compute-sanitizer watch a call: on a GPU of NVIDIA's alone (minutes)."
        ),
    ] = False,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Scrub the caches before each timed call; such results get no rank."),
    ] = False,
    shape_group: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=9999,
            metavar="N",
            help="Time the inputs of the task's get_input_groups()[N]; such results get no rank.",
        ),
    ] = None,
    baselines: Baselines = None,
    domain: Domain = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE.safetensors", help="Weights of the op, on which outputs are judged as well."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Say what a candidate is worth for an op: correct or not, and how much faster. No model is involved.

    The exit status is 0 whatever the verdict; scripts read the verdict from --json.
    """
    from service.cancellation import Cancelled, CancelToken, cancel_on_signals
    from service.cli.job_output import show_results
    from service.cli.output import note
    from service.cli.progress import show_progress
    from service.database import open_store
    from service.evaluate import evaluate_file
    from service.settings import load_settings

    settings = load_settings(platform=platform, sandbox=sandbox, image=image, baselines=baselines, server=server)
    if settings.server is not None:
        from service.cli.remote.jobs import evaluate_at_server

        own = {"sandbox": sandbox, "image": image}
        options: dict[str, Any] = {"tolerance": tolerance, "profile": profile, "cold": cold}
        options |= {} if shape_group is None else {"shape_group": shape_group}
        options |= {"sanitize": True, "profile": True} if sanitize else {}
        options |= {"baselines": settings.baselines} if "baselines" in settings.model_fields_set else {}
        return evaluate_at_server(
            op,
            candidate,
            settings,
            server_flags=own,
            options=options,
            repeat=repeat,
            domain=domain,
            state=state,
            as_json=as_json,
        )
    store = open_store(settings)
    cancel = CancelToken()
    results: list[Mapping[str, Any]] = []
    try:
        with cancel_on_signals(cancel), show_progress(f"Evaluating {candidate} for {op}") as observe:
            for evaluated in evaluate_file(
                op,
                candidate,
                settings=settings,
                store=store,
                observe=observe,
                cancel=cancel,
                times=repeat,
                rules=() if tolerance is None else (tolerance,),
                profile=profile,
                cold=cold,
                domain=domain,
                state=state,
                shape_group=shape_group,
                sanitize=sanitize,
            ):
                results.append(evaluated.record.result)
    except Cancelled:
        if not results:
            note("error: stopped before there was a verdict")
            return cancel.exit_status or 1
        note(f"stopped after {len(results)} of {repeat} evaluations")
    finally:
        store.close()
    show_results(results, repeat, profile=profile or sanitize, platform=settings.platform, as_json=as_json)
    return cancel.exit_status or 0
