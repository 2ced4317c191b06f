"""`kernelwright jobs export`: a job's kernel again, or the chats of jobs for training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.options import Json, Server

if TYPE_CHECKING:
    from db.store import Store
    from service.jobs.export import Exported
    from service.settings import Settings
    from service.transcripts.training_export import CallFilter

FORMATS = ("kernel", "openai-jsonl")


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
    _tell(job_id, exported, as_json)


def _export_there(settings: "Settings", job_id: int, out: Path | None, as_json: bool) -> None:
    from service.cli.remote.jobs import download_export
    from service.client.server import open_server
    from service.jobs.export import check_target

    if out is not None:
        check_target(out)
    with open_server(settings) as server:
        exported = download_export(server, job_id, settings, out)
    _tell(job_id, exported, as_json)


def _tell(job_id: int, exported: "Exported", as_json: bool) -> None:
    from service.cli.output import print_json

    if as_json:
        files = {"kernel": str(exported.kernel), "report": str(exported.report)}
        print_json({"schema": "kernelwright.export/1", "job_id": job_id, **files})
    else:
        print(f"kernel     {exported.kernel}\nreport     {exported.report}")


def _export_chats(
    store: "Store", ids: list[int] | None, call_filter: "CallFilter", out: Path | None, as_json: bool
) -> None:
    from service.cli.output import note, print_json
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
