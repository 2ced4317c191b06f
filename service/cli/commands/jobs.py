"""`kernelwright jobs list|show|cancel|resume|export|retract|restore`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import JobId, Json, SandboxName, Server
from service.cli.output import job_json, make_console, note, print_json

if TYPE_CHECKING:
    from db.records import EvaluationRecord, JobRecord
    from db.store import Store
    from service.jobs.export import Exported
    from service.settings import Settings
    from service.transcripts.calls import Entry
    from service.transcripts.training_export import CallFilter

EvaluationId = Annotated[
    str, typer.Argument(metavar="EVALUATION", help="An evaluation's id, as `leaderboard --json` shows it.")
]
Reason = Annotated[str, typer.Option(help="Why, for the audit log.")]

FORMATS = ("kernel", "openai-jsonl")
_STYLES = {"heading": "bold", "label": "cyan", "result": "bold yellow", "event": "dim"}


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True, help="What was asked for and what became of it.", epilog="Example: kernelwright jobs list"
    )
    group.command("list", epilog="Example: kernelwright jobs list --all")(list_)
    group.command(epilog="Example: kernelwright jobs show 7 --transcript | less")(show)
    group.command(epilog="Example: kernelwright jobs cancel 7")(cancel)
    group.command(epilog="Example: kernelwright jobs resume 7 --budget-usd 2")(resume)
    group.command(epilog="Example: kernelwright jobs export 7 --out best.py")(export)
    group.command(epilog='Example: kernelwright jobs retract 3f2c… --reason "measured with a broken fan"')(retract)
    group.command(epilog='Example: kernelwright jobs restore 3f2c… --reason "the fan was not to blame"')(restore)
    app.add_typer(group, name="jobs")


def list_(
    everything: Annotated[bool, typer.Option("--all", help="Single evaluations, too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    from service.cli.backend import open_backend
    from service.cli.output import print_table

    with open_backend(server) as backend:
        found = backend.list_jobs(everything=everything, limit=limit)
    if as_json:
        print_json({"schema": "kernelwright.jobs/1", "jobs": [job_json(job) for job in found]})
        return
    if not found:
        note("no jobs yet; try: kernelwright optimize starter/rmsnorm_gelu")
        return
    rows = [
        (
            job.id,
            job.task.ref,
            job.platform,
            job.model or job.kind,
            job.status.value
            if job.stop_reason in (None, job.status.value)
            else f"{job.status.value}: {job.stop_reason}",
            job.rounds_done,
            f"{job.created_at:%Y-%m-%d %H:%M}",
        )
        for job in found
    ]
    print_table(("job", "task", "platform", "model", "status", "rounds", "begun (UTC)"), rows, right=("job", "rounds"))


def show(
    job_id: JobId,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="All that was said to the models and by them, call by call.")
    ] = False,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show a job: its rounds, and its best candidate so far."""
    from service.cli.backend import open_backend
    from service.cli.job_output import show_activity, show_evaluation, show_spent, show_told
    from service.cli.output import plain, print_table, ratio

    if transcript:
        _show_transcript(job_id, server, as_json=as_json)
        return
    with open_backend(server) as backend:
        details = backend.show_job(job_id)
    job = details.job
    if as_json:
        best = None if details.best is None else details.best.result
        rounds = [asdict(line) for line in details.rounds]
        end = asdict(details.end) | {"summary": dict(details.end.summary)}
        shown = {"job": job_json(job), "rounds": rounds, "best": best, "on_leaderboard": details.on_leaderboard}
        activity = None if details.activity is None else asdict(details.activity)
        shown |= {"activity": activity, "memory": details.told.to_json()}
        print_json({"schema": "kernelwright.job/1", **shown, **end})
        return
    why = "" if job.stop_reason in (None, job.status.value) else f" ({job.stop_reason})"
    print(
        f"job {job.id}: {plain(job.task.ref)} on {job.platform} with {plain(job.model or job.kind)}: {job.status}{why}"
    )
    if job.error:
        print(plain(job.error))
    show_activity(details.activity)
    show_spent(job, details.end.unsettled_usd, details.end.unpriced_calls, details.end.summary)
    show_told(job, details.told)
    if details.rounds:
        rows = [
            (
                f"{line.number}{' *' if line.best else ''}",
                ("" if line is each else "another variant: ") + line.change[:60],
                line.outcome,
                ratio(line.speedup, line.speedup_low, line.speedup_high),
            )
            for each in details.rounds
            for line in (each, *each.others)
        ]
        print_table(("round", "change", "verdict", "over eager"), rows, right=("over eager",))
    if details.best is not None:
        show_evaluation(details.best.result, last="best candidate")
    if details.on_leaderboard:
        print(details.on_leaderboard)


def _show_transcript(job_id: int, server: str | None, *, as_json: bool) -> None:
    from service.cli.backend import open_backend

    with open_backend(server) as backend:
        job, entries = backend.show_job(job_id).job, backend.transcript(job_id)
    show_transcript(job, entries, as_json=as_json)


def show_transcript(job: "JobRecord", entries: "Sequence[Entry]", *, as_json: bool) -> None:
    """Print a job's calls and events on stdout."""
    from service.transcripts.calls import calls_in
    from service.transcripts.render import transcript, transcript_json

    if as_json:
        values = {"job": job_json(job), "entries": transcript_json(entries)}
        print_json({"schema": "kernelwright.transcript/1", **values})
        return
    if not calls_in(entries):
        note(f"job {job.id} has asked no model; `kernelwright jobs show {job.id}` shows its result")
    if not sys.stdout.isatty():
        for line in transcript(entries):
            print(line.text)
        return
    from rich.text import Text

    console = make_console()
    for line in transcript(entries):
        console.print(Text(line.text, style=_STYLES.get(line.kind, "")), soft_wrap=True)


def cancel(job_id: JobId, server: Server = None, as_json: Json = False) -> None:
    """Stop a job: a running one keeps and exports its best within seconds."""
    from service.cli.backend import open_backend

    with open_backend(server) as backend:
        job = backend.cancel_job(job_id)
    if as_json:
        print_json({"schema": "kernelwright.job/1", "job": job_json(job)})
    elif job.cancel_requested and job.status == "running":
        print(f"job {job_id} was told to stop")
    else:
        print(f"job {job_id} is {job.status}")


def resume(
    job_id: JobId,
    rounds: Annotated[int | None, typer.Option(help="Go on to so many rounds in all.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Go on to so many dollars for models in all.")] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Go on to so many tokens in all.")] = None,
    budget_s: Annotated[float | None, typer.Option(help="Go on to so many seconds of work in all.")] = None,
    budget_evaluations: Annotated[int | None, typer.Option(help="Go on to so many evaluations in all.")] = None,
    sandbox: SandboxName = None,
    server: Server = None,
    as_json: Json = False,
) -> int:
    """Resume a job that was interrupted, cancelled or failed, or that ended on a limit and gets a larger one.

    Nothing that it did and paid for is repeated. Limits count what all runs of the job have used.
    """
    from service.cancellation import CancelToken, cancel_on_signals
    from service.cli.job_output import finish
    from service.cli.progress import show_progress
    from service.database import open_store
    from service.jobs.limits import given_limits
    from service.jobs.local import check_job_keys
    from service.jobs.local import resume as run
    from service.settings import load_settings

    asked = {
        "rounds": rounds,
        "budget_usd": budget_usd,
        "budget_tokens": budget_tokens,
        "budget_s": budget_s,
        "budget_evaluations": budget_evaluations,
    }
    settings, limits = load_settings(sandbox=sandbox, server=server, **asked), given_limits(asked)
    if settings.server is not None:
        from service.cli.remote.jobs import resume_at_server

        return resume_at_server(job_id, limits, settings, as_json=as_json)
    store = open_store(settings)
    cancel = CancelToken()
    try:
        check_job_keys(job_id, limits=limits, settings=settings, store=store)
        with cancel_on_signals(cancel), show_progress(f"Going on with job {job_id}") as observe:
            report = run(job_id, limits=limits, settings=settings, store=store, observe=observe, cancel=cancel)
    finally:
        store.close()
    return finish(report, cancel, as_json=as_json)


def export(
    job_ids: Annotated[
        list[int] | None, typer.Argument(metavar="[ID]...", help="Jobs, as `kernelwright jobs list` numbers them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write; a kernel's report goes beside it.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="kernel|openai-jsonl", help="The best kernel, or the chats.")
    ] = "kernel",
    everything: Annotated[bool, typer.Option("--all", help="Chats: of all jobs.")] = False,
    role: Annotated[str, typer.Option(metavar="coder|judge|all", help="Chats: of this role.")] = "coder",
    passed: Annotated[bool, typer.Option("--passed", help="Chats: that led to a candidate that passed.")] = False,
    min_speedup: Annotated[
        float | None,
        typer.Option(min=0.0, help="Chats: that led to so much, by the interval's lower end; none that is unreliable."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write a job's best candidate and its report again, or jobs' chats with models as training data.

    Chats are lines of JSON in the form that OpenAI's fine-tuning reads; verdict and speedup are in `metadata`.
    """
    from service.database import open_store
    from service.errors import BadRequest
    from service.settings import load_settings
    from service.transcripts.training_export import CallFilter

    if form not in FORMATS:
        raise BadRequest(f"--format {form[:80]}: choose one of: {', '.join(FORMATS)}")
    ids = list(job_ids or ())
    call_filter = CallFilter(role, passed, min_speedup)
    if form == "kernel":
        _check_kernel(ids, everything, call_filter)
    elif bool(ids) == everything:
        raise BadRequest("name the jobs whose chats to write, or give --all")
    settings = load_settings(server=server)
    if settings.server is not None:
        if form != "kernel":
            raise BadRequest("--format openai-jsonl: is read from this machine's store alone; leave out --server")
        _export_there(settings, ids[0], out, as_json)
        return
    store = open_store(settings)
    try:
        if form == "kernel":
            _export_kernel(store, settings, ids[0], out, as_json)
        else:
            _export_chats(store, None if everything else ids, call_filter, out, as_json)
    finally:
        store.close()


def _check_kernel(ids: list[int], everything: bool, call_filter: "CallFilter") -> None:
    from service.errors import BadRequest
    from service.transcripts.training_export import CallFilter

    if everything or call_filter != CallFilter():
        raise BadRequest("--all, --role, --passed, --min-speedup: give --format openai-jsonl, too")
    if len(ids) != 1:
        raise BadRequest(
            f"{len(ids)} jobs were named; a kernel is written for one job, chats with --format openai-jsonl"
        )


def _export_kernel(store: "Store", settings: "Settings", job_id: int, out: Path | None, as_json: bool) -> None:
    from service.jobs.export import check_target, export_job
    from service.jobs.query import get_job

    if out is not None:
        check_target(out)
    exported = export_job(store, get_job(store, job_id), settings, out=out)
    _show_exported(job_id, exported, as_json)


def _export_there(settings: "Settings", job_id: int, out: Path | None, as_json: bool) -> None:
    from service.cli.remote.jobs import download_export
    from service.client.server import open_server
    from service.jobs.export import check_target

    if out is not None:
        check_target(out)
    with open_server(settings) as server:
        exported = download_export(server, job_id, settings, out)
    _show_exported(job_id, exported, as_json)


def _show_exported(job_id: int, exported: "Exported", as_json: bool) -> None:

    if as_json:
        files = {"kernel": str(exported.kernel), "report": str(exported.report)}
        print_json({"schema": "kernelwright.export/1", "job_id": job_id, **files})
    else:
        print(f"kernel     {exported.kernel}\nreport     {exported.report}")


def _export_chats(
    store: "Store", ids: list[int] | None, call_filter: "CallFilter", out: Path | None, as_json: bool
) -> None:
    from service.jobs import query
    from service.transcripts.training_export import collect_calls, filter_calls, json_line, openai_line, write_lines

    chosen = (
        sorted(job.id for job in query.list_jobs(store, kind="optimize")) if ids is None else list(dict.fromkeys(ids))
    )
    found = filter_calls(collect_calls(store, chosen), call_filter)
    if out is not None:
        write_lines(found, out)
    about = {"schema": "kernelwright.chats/1", "jobs": chosen, "count": len(found)}
    if as_json and out is not None:
        print_json({**about, "file": str(out)})
    elif as_json:
        print_json({**about, "chats": [openai_line(each) for each in found]})
    elif out is not None:
        print(f"{len(found)} chats  {out}")
    else:
        for each in found:
            print(json_line(each))
    if not found:
        note("no chat is as wanted")


def retract(evaluation_id: EvaluationId, reason: Reason, server: Server = None, as_json: Json = False) -> None:
    """Retract an evaluation: it leaves the leaderboard, and the next best candidate becomes the best of its job."""
    from service.cli.backend import open_backend

    with open_backend(server) as backend:
        record = backend.retract(evaluation_id, reason)
        best = backend.show_job(record.job_id).job.best_evaluation_id
    _show_retraction(record, best, "retracted", as_json)


def restore(evaluation_id: EvaluationId, reason: Reason, server: Server = None, as_json: Json = False) -> None:
    """Let an evaluation count again that was retracted."""
    from service.cli.backend import open_backend

    with open_backend(server) as backend:
        record = backend.restore(evaluation_id, reason)
        best = backend.show_job(record.job_id).job.best_evaluation_id
    _show_retraction(record, best, "restored", as_json)


def _show_retraction(record: "EvaluationRecord", best: str | None, done: str, as_json: bool) -> None:

    if as_json:
        values = {"evaluation_id": record.id, "job_id": record.job_id, "retracted_at": record.retracted_at}
        print_json({"schema": "kernelwright.retraction/1", **values, "best_evaluation_id": best})
    else:
        print(f"evaluation {record.id} is {done}; best of job {record.job_id}: {best or 'none'}")
