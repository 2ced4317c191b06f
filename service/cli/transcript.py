"""Shows a job's transcript: colours on a terminal, plain text in a pipe, everything as JSON."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.cli.output import job_json, make_console, note, print_json

if TYPE_CHECKING:
    from db.records import JobRecord
    from service.chats import Entry

_STYLES = {"heading": "bold", "label": "cyan", "result": "bold yellow", "event": "dim"}


def show_transcript(job: "JobRecord", story: "Sequence[Entry]", *, as_json: bool) -> None:
    """Print a job's story on stdout."""
    from service.chats import chats_in
    from service.transcript import transcript, transcript_json

    if as_json:
        entries = transcript_json(story)
        print_json({"schema": "kernelwright.transcript/1", "job": job_json(job), "entries": entries})
        return
    if not chats_in(story):
        note(f"job {job.id} has asked no model; `kernelwright jobs show {job.id}` shows its result")
    if not sys.stdout.isatty():
        for line in transcript(story):
            print(line.text)
        return
    from rich.text import Text

    console = make_console()
    for line in transcript(story):
        console.print(Text(line.text, style=_STYLES.get(line.kind, "")), soft_wrap=True)
