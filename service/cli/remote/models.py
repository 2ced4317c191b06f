"""`model` and `models resume` through a server: submit, follow, and unpack what is delivered."""

import io
import re
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.protocols import Event
from db.records import WEIGHTS, JobStatus
from service.cli.model_output import show_run
from service.cli.output import note, print_json
from service.cli.progress import show_progress
from service.cli.remote.jobs import DETACHED, refuse_flags, task_request, watch
from service.client.server import ServerClient, open_server
from service.errors import Unavailable
from service.settings import Settings
from service.submissions.jobs import OPTIONS
from service.views.models import QUESTIONS, STAGES
from service.whole_models.local import check_folder, check_state, write_folder

MAX_FILES = 1000
MAX_BYTES = 64 * 1024 * 1024
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NAME = re.compile(r"(kernels/)?[A-Za-z0-9_]{1,120}\.(py|md)")


def optimize_model_at_server(
    model: str,
    settings: Settings,
    *,
    server_flags: Mapping[str, object],
    plan_only: bool,
    state: Path | None,
    out: Path | None,
    as_json: bool,
) -> int:
    """Have a server make a model faster, or only plan it, with the settings that were given on this machine.

    Args:
        model: the model.
        settings: the settings.
        server_flags: given options that a server does not take.
        plan_only: whether its plan is all that is asked for.
        state: a safetensors file with the model's weights, which is sent there unless it was before.
        out: where to write what is delivered.
        as_json: whether to print JSON.

    Raises:
        BadRequest: such an option was given, or the server refuses.
        TaskError: the model's file is not valid.
        Unavailable: the server does not answer.
    """
    refuse_flags(server_flags)
    if out is not None:
        check_folder(out)
    body: dict[str, Any] = {
        name: getattr(settings, name)
        for name in OPTIONS
        if name in settings.model_fields_set and getattr(settings, name) is not None
    }
    body |= task_request(model, None) | {"plan_only": plan_only}
    with open_server(settings) as server:
        if state is not None:
            body[WEIGHTS] = server.send_weights(state)
        run_id = server.submit_model(body, key=uuid.uuid4().hex)
        title = f"{'Planning' if plan_only else 'Optimizing'} {model} at {server.server}"
        return _follow(server, run_id, title, settings, out, as_json=as_json)


def resume_model_at_server(
    run_id: int, settings: Settings, *, server_flags: Mapping[str, object], state: Path | None, as_json: bool
) -> int:
    """Have a server resume a run, and follow it. `state` is the file with its weights, if they are not kept any more.

    Raises:
        BadRequest, Unavailable: the server refuses, or does not answer.
    """
    refuse_flags(server_flags)
    with open_server(settings) as server:
        if state is not None:
            check_state(state, run_id, server.show_model(run_id)["options"].get(WEIGHTS))
            server.send_weights(state)
        server.resume_job(run_id)
        title = f"Going on with model run {run_id} at {server.server}"
        return _follow(server, run_id, title, settings, None, as_json=as_json)


def _follow(
    server: ServerClient, run_id: int, title: str, settings: Settings, out: Path | None, *, as_json: bool
) -> int:
    found = server.show_model(run_id)
    try:
        with show_progress(title) as observe:
            watch(server, run_id, found["platform"], lambda event: observe(_told(event)))
    except KeyboardInterrupt:
        at = f"--server {server.server}"
        note(f"\nmodel run {run_id} goes on there; look at it: kernelwright models show {run_id} {at}")
        note(f"stop it: kernelwright jobs cancel {run_id} {at}")
        return DETACHED
    found = dict(server.show_model(run_id))
    if found["status"] == JobStatus.DONE and found["kept"]:  # kernels are chosen before the proof
        found["delivered"] = str(_unpack(server, run_id, settings, out))
    if as_json:
        print_json(found)
    else:
        show_run(found)
    return 0 if found["status"] == JobStatus.DONE else 1


def _told(event: Event) -> Event:
    """An event of a run in words, for a display of jobs."""
    said = {name: str(event.data.get(name, "")) for name in ("stage", "question", "name", "decision")}
    if event.kind == "stage":
        return Event("step", 0, {"text": STAGES.get(said["stage"], said["stage"])})
    if event.kind == "trial":
        text = f"{said['name']}: {QUESTIONS.get(said['question'], '')} {said['decision']}"
        return Event("step", 0, {"text": text})
    return event


def _unpack(server: ServerClient, run_id: int, settings: Settings, out: Path | None) -> Path:
    """Write what a run delivers to `out`, or else to a folder for this server and run."""
    host = urlsplit(server.server).netloc.replace(":", "_")
    folder = out or settings.data_dir / "servers" / host / str(run_id) / "model"
    write_folder(folder, read_archive(server.export_model(run_id)))
    return folder


def read_archive(data: bytes) -> dict[str, str]:
    """The text of each file of an archive by its name. A server is not trusted with where they go.

    Raises:
        Unavailable: it is no such archive, is too large, or names a file outside the folder.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MAX_FILES or sum(each.file_size for each in members) > MAX_BYTES:
                raise Unavailable("the server's archive is too large; look at the run's page instead")
            for each in members:
                if _NAME.fullmatch(each.filename) is None:
                    raise Unavailable(
                        f"the server's archive names the file {each.filename[:80]!r}; it was not unpacked"
                    )
                if each.compress_type not in _PACKED:
                    raise Unavailable("the server's archive cannot be read: it is packed in an unusual way")
            return {each.filename: _text_of(archive, each) for each in members}
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, Unavailable):
            raise
        raise Unavailable(f"the server's archive cannot be read: {error}") from error


def _text_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    """The text of a file. No more is unpacked than the archive says it has: `ZipFile.read` would unpack all at once."""
    with archive.open(member) as file:
        return file.read(member.file_size).decode("utf-8")
