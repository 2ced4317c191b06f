"""`kernelwright model` and `kernelwright models`: whole models."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.commands.optimize import PRICE, STRATEGY
from service.cli.options import Json, Platform, SandboxName, Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from db.store import Store
    from service.cancellation import CancelToken
    from service.settings import Settings
    from service.whole_models.local import Watching
    from service.whole_models.run import ModelReport

ModelFile = Annotated[
    str, typer.Argument(metavar="MODEL", help="A .py file with Model, get_inputs and get_init_inputs, or suite/name.")
]
RunId = Annotated[int, typer.Argument(metavar="ID", help="The run's number, as `kernelwright models list` shows it.")]


def add_to(app: typer.Typer) -> None:
    """Add the command and the group."""
    app.command(
        epilog="Example: kernelwright model examples/models/decoder.py --plan;"
        " kernelwright model net.py --state weights.safetensors --model openai/gpt-5 --budget-usd 5 --out faster"
    )(model)
    group = typer.Typer(
        no_args_is_help=True,
        help="Runs over whole models: what was found, and what was put back.",
        epilog="Example: kernelwright models list",
    )
    group.command("list", epilog="Example: kernelwright models list")(list_)
    group.command(epilog="Example: kernelwright models show 3")(show)
    group.command(epilog="Example: kernelwright models resume 3")(resume)
    app.add_typer(group, name="models")


def model(
    file: ModelFile,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say where time goes and what there is to gain; spends nothing.")
    ] = False,
    tasks: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --plan: write the task file of each region into this folder."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE.safetensors", help="The model's weights, which are drawn otherwise.")
    ] = None,
    llm: Annotated[
        str | None, typer.Option("--model", help="The Coder: LiteLLM's name, builtin/compiler or manual/DIR.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="The Judge. Default: the Coder's model.")] = None,
    strategy: Annotated[str | None, typer.Option(help=STRATEGY)] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds a region.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="At most so many dollars for all regions together.")] = None,
    price: Annotated[str | None, typer.Option(help=PRICE)] = None,
    platform: Platform = None,
    sandbox: SandboxName = None,
    api_base: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file with the key of the Coder's provider.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to write the faster model.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Make a whole model faster: find what is hot, optimize it, put it back, and prove it end to end.

    Ctrl-C (or kill -9) loses nothing that was paid for: `kernelwright models resume ID` goes on.
    """
    from service.evaluation_context import check_keys
    from service.settings import load_settings

    settings = load_settings(
        model=llm,
        judge_model=judge_model,
        strategy=strategy,
        rounds=rounds,
        budget_usd=budget_usd,
        price=price,
        platform=platform,
        sandbox=sandbox,
        api_base=api_base,
        api_key_file=api_key_file,
        server=server,
    )
    if tasks is not None and not plan:
        raise typer.BadParameter(
            "--tasks goes with --plan; a run stores its tasks, `kernelwright tasks list` shows them"
        )
    if settings.server is not None:
        from service.cli.remote.models import optimize_model_at_server

        own = {"sandbox": sandbox, "api_base": api_base, "api_key_file": api_key_file, "tasks": tasks}
        return optimize_model_at_server(
            file, settings, server_flags=own, plan_only=plan, state=state, out=out, as_json=as_json
        )
    if plan:
        return _plan(file, settings, state=state, tasks=tasks, as_json=as_json)
    check_keys(settings)
    return _start(file, settings, state=state, out=out, as_json=as_json)


def _plan(file: str, settings: "Settings", *, state: Path | None, tasks: Path | None, as_json: bool) -> int:
    from agents.protocols import Event
    from service.cancellation import Cancelled, CancelToken, cancel_on_signals
    from service.cli.model_output import plan_object, show_plan
    from service.cli.output import note, print_json
    from service.cli.progress import show_progress
    from service.database import opened_store
    from service.tasks import find_task
    from service.whole_models.plan import plan_once, write_tasks

    cancel = CancelToken()
    with opened_store(settings) as store:
        found = find_task(file, store=store)
    try:
        with cancel_on_signals(cancel), show_progress(f"Planning {file}") as observe:
            made = plan_once(
                found,
                settings=settings,
                state=state,
                on_progress=lambda text: observe(Event("step", 0, {"text": text})),
                cancel=cancel,
            )
    except Cancelled:
        note("error: stopped before there was a plan")
        return cancel.exit_status or 1
    if tasks is not None:
        write_tasks(made, tasks)
    if as_json:
        print_json(plan_object(found, made))
    else:
        show_plan(found, made, tasks)
    return 0


def _start(file: str, settings: "Settings", *, state: Path | None, out: Path | None, as_json: bool) -> int:
    from service.database import opened_store
    from service.whole_models.local import optimize_model

    with opened_store(settings) as store:

        def run(watching: "Watching", cancel: "CancelToken") -> "ModelReport":
            return optimize_model(
                file, settings=settings, store=store, watching=watching, cancel=cancel, state=state, out=out
            )

        return _go(run, store, title=f"Optimizing {file}", as_json=as_json)


def resume(
    run_id: RunId,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE.safetensors", help="The run's weights, if they are not kept any more (7 days)."),
    ] = None,
    sandbox: SandboxName = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Resume a run that was stopped or failed. Nothing is paid for twice."""
    from db.errors import NotInStore
    from service.database import opened_store
    from service.jobs.local import check_job_keys
    from service.settings import load_settings
    from service.whole_models.local import resume_model

    settings = load_settings(sandbox=sandbox, server=server)
    if settings.server is not None:
        from service.cli.remote.models import resume_model_at_server

        return resume_model_at_server(run_id, settings, server_flags={"sandbox": sandbox}, state=state, as_json=as_json)
    with opened_store(settings) as store:
        with contextlib.suppress(NotInStore):  # which is told below, of a run
            check_job_keys(run_id, settings=settings, store=store)

        def run(watching: "Watching", cancel: "CancelToken") -> "ModelReport":
            return resume_model(run_id, settings=settings, store=store, watching=watching, cancel=cancel, state=state)

        return _go(run, store, title=f"Model run {run_id}", as_json=as_json)


def _go(run: "Callable[[Watching, CancelToken], ModelReport]", store: "Store", *, title: str, as_json: bool) -> int:
    """Carry out a run with a progress display for each job and for what lies between, and show it."""
    from service.cancellation import Cancelled, CancelToken, cancel_on_signals
    from service.cli.model_output import show_run, watched
    from service.cli.output import note, print_json
    from service.whole_models.report import report_json

    cancel = CancelToken()
    begun: list[int] = []
    try:
        with cancel_on_signals(cancel), watched(title, begun.append) as watching:
            report = run(watching, cancel)
    except Cancelled:
        note(f"stopped; go on with: kernelwright models resume {begun[0]}" if begun else "stopped before it began")
        return cancel.exit_status or 1
    found = report_json(report, store)
    if as_json:
        print_json(found)
    else:
        show_run(found)
    return cancel.exit_status or (1 if report.run.status.value == "failed" else 0)


def list_(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List runs over whole models, newest first."""
    from dataclasses import asdict

    from service.cli.backend import open_backend
    from service.cli.output import note, print_json, print_table

    with open_backend(server) as backend:
        found = backend.list_models(limit=limit)
    if as_json:
        rows = [asdict(run) | {"task": run.task.ref, "regions": None} for run in found]
        print_json({"schema": "kernelwright.models/1", "runs": rows})
        return
    if not found:
        note("no runs yet; try: kernelwright model examples/models/decoder.py --plan")
        return
    table = [
        (
            run.id,
            run.task.ref,
            run.platform,
            run.model,
            f"{run.status.value}: {run.stage}",
            f"{run.created_at:%Y-%m-%d %H:%M}",
        )
        for run in found
    ]
    print_table(("run", "model", "platform", "kernels by", "status", "begun (UTC)"), table, right=("run",))


def show(run_id: RunId, server: Server = None, as_json: Json = False) -> None:
    """Show a run: its regions, what became of each, and the proof."""
    from service.cli.backend import open_backend
    from service.cli.model_output import show_run
    from service.cli.output import print_json

    with open_backend(server) as backend:
        found = backend.show_model(run_id)
    if as_json:
        print_json(found)
    else:
        show_run(found)
