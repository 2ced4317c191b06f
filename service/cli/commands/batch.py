"""`kernelwright batch`: many jobs at once, in this process or through a server."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from service.cli.commands.optimize import PRICE, STRATEGY
from service.cli.options import Baselines, Domain, Json, Memory, Origin, SandboxName, Server

if TYPE_CHECKING:
    from db.records import JobRecord
    from db.store import Store
    from service.batches.manage import BatchDetails
    from service.cancellation import CancelToken
    from service.jobs.journal import Observer
    from service.settings import Settings

BatchId = Annotated[
    int, typer.Argument(metavar="ID", help="The batch's number, as `kernelwright batch list` shows it.")
]
Over = Annotated[Literal["eager", "compile"], typer.Option(help="Which baseline speedups are over.")]
Detach = Annotated[bool, typer.Option("--detach", help="Only queue the jobs, for workers to take.")]


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Tasks times models times platforms times samples.",
        epilog="Example: kernelwright batch run --tasks starter --rounds 2",
    )
    group.command(
        epilog="Example: kernelwright batch run week.toml --budget-usd 20;"
        " kernelwright batch run --tasks 'kernelbench-level1/*' --models openai/gpt-5 --samples 3 --detach;"
        " kernelwright batch run --tasks hpctranscompile-level1 --from cuda --platforms opencl --models openai/gpt-5;"
        " kernelwright batch run --tasks starter --server http://host:8765"
    )(run)
    group.command(epilog="Example: kernelwright batch show 3 --format csv > batch3.csv")(show)
    group.command("list", epilog="Example: kernelwright batch list")(list_)
    group.command(epilog="Example: kernelwright batch cancel 3")(cancel)
    group.command(epilog="Example: kernelwright batch resume 3 --budget-usd 30")(resume)
    group.command(epilog="Example: kernelwright batch compare 3 4")(compare)
    group.command(epilog="Example: kernelwright batch report 3 --out paper/batch3 --k 1 --k 5")(report)
    app.add_typer(group, name="batch")


def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE.toml]", help="What to run; options given here go before it.")
    ] = None,
    tasks: Annotated[
        list[str] | None, typer.Option(help="A suite, suite/name, a pattern or a .py file; may be given several times.")
    ] = None,
    models: Annotated[list[str] | None, typer.Option(help="A model; may be given several times.")] = None,
    platforms: Annotated[list[str] | None, typer.Option(help="A platform; may be given several times.")] = None,
    domain: Domain = None,
    origin: Origin = None,
    whole_models: Annotated[
        bool | None, typer.Option("--whole-models", help="Each task is a whole model, as for `kernelwright model`.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="So many jobs for each task and model.")] = None,
    name: Annotated[str | None, typer.Option(help="What to call the batch.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="At most so many dollars for all jobs together.")] = None,
    job_budget_usd: Annotated[float | None, typer.Option(help="At most so many dollars a job.")] = None,
    job_budget_tokens: Annotated[int | None, typer.Option(help="At most so many tokens a job.")] = None,
    job_budget_s: Annotated[float | None, typer.Option(help="At most so many seconds of work a job.")] = None,
    job_budget_evaluations: Annotated[int | None, typer.Option(help="At most so many evaluations a job.")] = None,
    strategy: Annotated[str | None, typer.Option(help=STRATEGY)] = None,
    rounds: Annotated[int | None, typer.Option(help="At most so many rounds a job.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="The Judge. Default: the Coder's model.")] = None,
    memory: Memory = None,
    baselines: Baselines = None,
    price: Annotated[str | None, typer.Option(help=PRICE)] = None,
    api_base: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    priority: Annotated[Literal["low", "normal", "high"] | None, typer.Option(help="Before or after others.")] = None,
    sandbox: SandboxName = None,
    detach: Detach = False,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Run many jobs: one after the other here, or by workers with --detach.

    Ctrl-C (or kill -9) loses nothing that was paid for: `kernelwright batch resume ID` goes on.
    """
    from service.batches.manage import start_batch
    from service.batches.spec import make_spec, read_spec, settings_for
    from service.database import opened_store
    from service.errors import BadRequest
    from service.evaluation_context import check_keys
    from service.settings import load_settings

    flags = {
        "tasks": tasks or None,
        "models": models or None,
        "whole_models": whole_models,
        "platforms": platforms or None,
        "domain": domain,
        "translate_from": origin,
        "samples": samples,
        "name": name,
        "budget_usd": budget_usd,
        "priority": priority,
        "job_budget_usd": job_budget_usd,
        "job_budget_tokens": job_budget_tokens,
        "job_budget_s": job_budget_s,
        "job_budget_evaluations": job_budget_evaluations,
        "job_strategy": strategy,
        "job_rounds": rounds,
        "job_judge_model": judge_model,
        "job_memory": memory,
        "job_baselines": baselines,
        "job_price": price,
        "job_api_base": api_base,
    }
    settings = load_settings(sandbox=sandbox, server=server)
    defaults = {"models": [settings.model], "platforms": [settings.platform]}
    if file is None and not tasks:
        raise BadRequest(
            "batch run: no tasks; give a suite, suite/name, a pattern or a .py file, or a batch's file:"
            " kernelwright batch run --tasks starter --rounds 2 (`kernelwright tasks list` shows suites)"
        )
    spec = make_spec(defaults, where="batch", **flags) if file is None else read_spec(file, **flags)
    if settings.server is not None:
        from service.cli.remote.batch import run_batch_at_server

        own = {"sandbox": sandbox, "api_base": api_base}
        return run_batch_at_server(spec, settings, server_flags=own, detach=detach, as_json=as_json)
    if not detach:
        for choice in spec.choices:
            check_keys(settings_for(spec, choice, spec.platforms[0], settings))
    with opened_store(settings) as store:
        batch_id = start_batch(spec, settings=settings, store=store)
        return _go(batch_id, settings, store, detach=detach, as_json=as_json)


def resume(
    batch_id: BatchId,
    budget_usd: Annotated[
        float | None, typer.Option(help="Another total, in dollars, with what was spent in it.")
    ] = None,
    sandbox: SandboxName = None,
    detach: Detach = False,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Resume a batch: jobs that wait, were interrupted or cancelled, or failed. Nothing is paid for twice.

    Noisy results are measured again, as long as the machine is quiet.
    """
    from service.batches.manage import check_batch_keys, resume_batch
    from service.database import opened_store
    from service.settings import load_settings

    settings = load_settings(sandbox=sandbox, server=server)
    if settings.server is not None:
        from service.cli.remote.batch import resume_batch_at_server

        own = {"sandbox": sandbox}
        return resume_batch_at_server(
            batch_id, settings, server_flags=own, budget_usd=budget_usd, detach=detach, as_json=as_json
        )
    with opened_store(settings) as store:
        if not detach:
            check_batch_keys(store, batch_id, settings)
        resume_batch(store, batch_id, budget_usd=budget_usd)
        return _go(batch_id, settings, store, detach=detach, as_json=as_json)


def _go(batch_id: int, settings: "Settings", store: "Store", *, detach: bool, as_json: bool) -> int:
    """Run the jobs that wait, unless workers are to run them, and show the batch."""
    from service.batches.manage import show_batch
    from service.cancellation import CancelToken
    from service.cli.batch_output import show_outcome, show_refused

    cancel = CancelToken()
    details = show_batch(store, batch_id)
    show_refused(details)
    if not detach:
        run_here(details, settings=settings, store=store, cancel=cancel)
        measure_again_here(batch_id, settings=settings, store=store, cancel=cancel)
        details = show_batch(store, batch_id)
    show_outcome(details, detached=detach, as_json=as_json)
    return cancel.exit_status or 0


def run_here(details: "BatchDetails", *, settings: "Settings", store: "Store", cancel: "CancelToken") -> None:
    """Run the jobs of a batch that wait, one after the other, each with the progress display of `optimize`.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
    """
    from db.records import JobStatus
    from service.cancellation import cancel_on_signals
    from service.cli.batch_output import title_of
    from service.cli.model_output import watched
    from service.cli.output import note
    from service.cli.progress import show_progress
    from service.jobs.local import run_batch
    from service.whole_models.local import run_queued_job
    from service.whole_models.run import is_model_job

    waiting = details.line.counts.get(JobStatus.QUEUED, 0)
    several = len({group.model for group in details.groups}) > 1
    number = 0
    titles: list[str] = []
    note(f"batch {details.line.batch.id}: {waiting} of {details.line.jobs} jobs to run here, one after the other")
    with contextlib.ExitStack() as shown, cancel_on_signals(cancel):

        def told(job: "JobRecord") -> "Observer":
            nonlocal number
            number += 1
            shown.close()  # the progress display of the job before
            title = title_of(job.task.ref, job.model, job.sample, f"{number}/{waiting}", several)
            titles.append(title)
            return (lambda event: None) if is_model_job(job) else shown.enter_context(show_progress(title))

        def run_job(job_id: int, observe: "Observer") -> None:
            with watched(titles[-1], lambda run_id: note(f"model run {run_id}")) as watching:
                run_queued_job(
                    job_id, settings=settings, store=store, observe=observe, watching=watching, cancel=cancel
                )

        run_batch(
            details.line.batch.id,
            settings=settings,
            store=store,
            observer_for=told,
            cancel=cancel,
            run_job=run_job,
        )


def measure_again_here(batch_id: int, *, settings: "Settings", store: "Store", cancel: "CancelToken") -> None:
    """Measure the noisy results of a batch again as far as this machine is quiet, and say how many are left."""
    from service.cancellation import Cancelled, cancel_on_signals
    from service.cli.output import note, plain
    from service.jobs.remeasure import remeasure_batch

    if cancel.requested():
        return
    with cancel_on_signals(cancel), contextlib.suppress(Cancelled):
        found = remeasure_batch(
            batch_id,
            settings=settings,
            store=store,
            cancel=cancel,
            on_job=lambda job: note(f"job {job.id}, {plain(job.task.ref)}: noisy, measured again"),
        )
        if found.counts:
            note(f"noisy results that count now: {found.counts}")
        if found.left:
            note(
                f"noisy results left, because the machine is busy: {found.left}; on a quiet one"
                f" `kernelwright batch resume {batch_id}` measures them again, and so does an idle worker"
            )
        if found.elsewhere:
            note(
                f"noisy results left, because this machine lacks their device or sandbox: {found.elsewhere};"
                f" `kernelwright batch resume {batch_id}` or an idle worker where they were measured does it"
            )


def show(
    batch_id: BatchId,
    over: Over = "eager",
    everything: Annotated[bool, typer.Option("--jobs", help="Each job, too.")] = False,
    form: Annotated[
        Literal["table", "csv", "json", "kernelbench"], typer.Option("--format", help="What to print.")
    ] = "table",
    model: Annotated[str | None, typer.Option(help="kernelbench: this model.")] = None,
    platform: Annotated[str | None, typer.Option(help="kernelbench: this platform.")] = None,
    suite: Annotated[str | None, typer.Option(help="kernelbench: this suite.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how far a batch has come and its figures, or print it for other programs."""
    from service.batches.export import batch_json, csv_text
    from service.batches.forms import kernelbench_form
    from service.cli.backend import open_backend
    from service.cli.batch_output import show_details, show_jobs, show_refused
    from service.cli.output import print_json

    with open_backend(server) as backend:
        details = backend.show_batch(batch_id, over=over)
    if as_json or form == "json":
        print_json(batch_json(details))
    elif form == "csv":
        print(csv_text(details), end="")
    elif form == "kernelbench":
        print_json(kernelbench_form(details, model=model, platform=platform, suite=suite).eval_results)
    else:
        show_details(details)
        if everything:
            show_jobs(details)
        show_refused(details)


def report(
    batch_id: BatchId,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="A new or empty folder, or one that holds an earlier report.")
    ],
    over: Over = "eager",
    k: Annotated[
        list[int] | None,
        typer.Option("--k", help="A k of Compile@k, Pass@k and SpeedUp@k; may be given several times."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write a paper's tables (LaTeX, Markdown) and plots (SVG) of a batch, with its results and its settings."""
    from service.batches.report import check_ks, report_files, write_report
    from service.cli.backend import open_backend
    from service.cli.output import note, print_json

    ks = check_ks(k or ())
    with open_backend(server) as backend:
        details = backend.show_batch(batch_id, over=over)
    files = report_files(details, ks=ks)
    write_report(files, out)
    if as_json:
        names = sorted(files)
        print_json({"schema": "kernelwright.batch_report/1", "batch": batch_id, "folder": str(out), "files": names})
    else:
        print(f"batch {batch_id}: {len(files)} files in {out}; begin with {out / 'report.md'}")
    if not details.complete:
        note("not every job came to its end, so the figures are not the batch's last ones")


def list_(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List batches, newest first."""
    from dataclasses import asdict

    from service.cli.backend import open_backend
    from service.cli.output import note, print_json, print_table

    with open_backend(server) as backend:
        found = backend.list_batches(limit=limit)
    if as_json:
        lines = [{**asdict(line.batch), "counts": line.counts, "spent_usd": line.spent_usd} for line in found]
        print_json({"schema": "kernelwright.batches/1", "batches": lines})
        return
    if not found:
        note("no batches yet; try: kernelwright batch run --tasks starter --rounds 2")
        return
    rows = [
        (
            line.batch.id,
            line.batch.name[:24],
            f"{line.ended}/{line.jobs}",
            f"{line.spent_usd:.2f}",
            None if line.batch.budget_usd is None else f"{line.batch.budget_usd:.2f}",
            f"{line.batch.created_at:%Y-%m-%d %H:%M}",
        )
        for line in found
    ]
    columns = ("batch", "name", "ended", "spent $", "of $", "begun (UTC)")
    print_table(columns, rows, right=("batch", "ended", "spent $", "of $"))


def cancel(batch_id: BatchId, server: Server = None, as_json: Json = False) -> None:
    """Stop a batch: jobs that wait are cancelled, running ones stop within seconds and keep their best."""
    from service.cli.backend import open_backend
    from service.cli.output import print_json

    with open_backend(server) as backend:
        count = backend.cancel_batch(batch_id)
    if as_json:
        print_json({"schema": "kernelwright.batch_cancelled/1", "batch": batch_id, "jobs": count})
    else:
        print(f"batch {batch_id}: {count} jobs cancelled or told to stop")


def compare(
    a: Annotated[int, typer.Argument(metavar="A", help="The number of a batch.")],
    b: Annotated[int, typer.Argument(metavar="B", help="The number of another, or of the same.")],
    over: Over = "eager",
    model_a: Annotated[str | None, typer.Option(help="This model of A.")] = None,
    model_b: Annotated[str | None, typer.Option(help="This model of B.")] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Compare two batches task by task: which is faster, which passes more, and whether chance would do as much."""
    from service.batches.export import comparison_json
    from service.batches.manage import compare_details
    from service.cli.backend import open_backend
    from service.cli.batch_output import show_comparison
    from service.cli.output import print_json

    with open_backend(server) as backend:
        found = compare_details(
            backend.show_batch(a, over=over), backend.show_batch(b, over=over), model_a=model_a, model_b=model_b
        )
    if as_json:
        print_json(comparison_json(a, b, over, found))
    else:
        show_comparison(a, b, over, found)
