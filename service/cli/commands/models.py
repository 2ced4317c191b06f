"""`kernelwright model` and `kernelwright models`: whole models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.commands.optimize import PRICE, STRATEGY
from service.cli.options import Json, Platform, SandboxName

if TYPE_CHECKING:
    from db.records import JobRecord
    from db.store import Store
    from service.jobs.journal import Observer
    from service.settings import Settings

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
    as_json: Json = False,
) -> int:
    """Make a whole model faster: find what is hot, optimize it, put it back, and prove it end to end.

    Ctrl-C (or kill -9) loses nothing that was paid for: `kernelwright models resume ID` goes on.
    """
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
    )
    if tasks is not None and not plan:
        raise typer.BadParameter(
            "--tasks goes with --plan; a run stores its tasks, `kernelwright tasks list` shows them"
        )
    if plan:
        return _plan(file, settings, state=state, tasks=tasks, as_json=as_json)
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
    from service.whole_models.run import start_run

    with opened_store(settings) as store:
        run_id = start_run(file, settings=settings, store=store, state=state, out=out)
        return _go(run_id, settings, store, as_json=as_json)


def resume(run_id: RunId, sandbox: SandboxName = None, as_json: Json = False) -> int:
    """Resume a run that was stopped or failed. Nothing is paid for twice."""
    from service.database import opened_store
    from service.settings import load_settings

    settings = load_settings(sandbox=sandbox)
    with opened_store(settings) as store:
        return _go(run_id, settings, store, as_json=as_json)


def _go(run_id: int, settings: "Settings", store: "Store", *, as_json: bool) -> int:
    """Carry out a run with a progress display for each job and for what lies between, and show it."""
    import contextlib

    from agents.protocols import Event
    from service.cancellation import Cancelled, CancelToken, cancel_on_signals
    from service.cli.model_output import show_run
    from service.cli.output import note, print_json
    from service.cli.progress import show_progress
    from service.whole_models.report import report_json
    from service.whole_models.run import Watching, run_model

    cancel = CancelToken()
    note(f"model run {run_id}")
    with contextlib.ExitStack() as shown, cancel_on_signals(cancel):
        between: list[Observer] = []  # the display that shows steps, if it is the one that is open

        def job(record: "JobRecord", number: int, total: int) -> "Observer":
            shown.close()
            between.clear()
            return shown.enter_context(show_progress(f"{number}/{total} {record.task.ref} with {record.model}"))

        def step(text: str) -> None:
            if not between:
                shown.close()
                between.append(shown.enter_context(show_progress(f"Model run {run_id}")))
            between[0](Event("step", 0, {"text": text}))

        try:
            report = run_model(run_id, settings=settings, store=store, watching=Watching(step, job), cancel=cancel)
        except Cancelled:
            shown.close()
            note(f"stopped; go on with: kernelwright models resume {run_id}")
            return cancel.exit_status or 1
    if as_json:
        print_json(report_json(report, store))
    else:
        show_run(report, store)
    return cancel.exit_status or 0


def list_(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List runs over whole models, newest first."""
    from dataclasses import asdict

    from db.jobs import model_runs
    from service.cli.output import note, print_json, print_table
    from service.database import opened_store
    from service.settings import load_settings
    from service.whole_models.run import mark_stopped_runs

    settings = load_settings()
    with opened_store(settings) as store:
        mark_stopped_runs(settings, store)
        with store.read() as session:
            found = model_runs.list_runs(session, limit=limit)
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


def show(run_id: RunId, as_json: Json = False) -> None:
    """Show a run: its regions, what became of each, and the proof."""
    from service.cli.model_output import show_run
    from service.cli.output import print_json
    from service.database import opened_store
    from service.settings import load_settings
    from service.whole_models.report import report_json
    from service.whole_models.run import read_report

    settings = load_settings()
    with opened_store(settings) as store:
        report = read_report(run_id, settings=settings, store=store)
        if as_json:
            print_json(report_json(report, store))
        else:
            show_run(report, store)
