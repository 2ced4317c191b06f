"""Pages of a job's transcript, for whom it is too long as a whole."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from db.evaluations import results
from db.jobs import jobs
from db.records import EventRecord
from db.store import Store
from service.transcripts.calls import calls_in, read_entries
from service.transcripts.parts import CallParts, in_parts
from service.transcripts.redaction import event_without_secrets, parts_without_secrets

MAX_PAGE_CHARS = 8_000_000
"""A page with calls of so much text ends early."""


@dataclass(frozen=True)
class Page:
    """A page of a transcript. `next_cursor` is the number of its last call; None on the last page."""

    entries: tuple[CallParts | EventRecord, ...]
    next_cursor: int | None


def transcript_page(
    store: Store, job_id: int, *, after: int, limit: int, messages: bool, secrets: Collection[str]
) -> Page:
    """The calls of a job after the one with this number, at most `limit`, with the events that stand before each.

    What happened after the last call is on its page.

    Raises:
        NotInStore: there is no such job.
    """
    with store.read() as session:
        jobs.get_job(session, job_id)
        events = results.list_events(session, job_id)
        entries = read_entries(session, job_id, events, range(after + 1, after + limit + 1))
    placed = with_calls(list(in_parts(entries)))
    chars, last = 0, after
    for entry, number in placed:
        if not isinstance(entry, CallParts) or not after < number <= after + limit:
            continue
        chars += _chars(entry, messages=messages)
        if last > after and chars > MAX_PAGE_CHARS:
            break
        last = number
    more = last > after and any(number > last for _, number in placed)
    shown = [entry for entry, number in placed if after < number <= (last if calls_in(entries) else number)]
    return Page(tuple(_clean(entry, secrets, messages=messages) for entry in shown), last if more else None)


def with_calls(entries: Sequence[CallParts | EventRecord]) -> list[tuple[CallParts | EventRecord, int]]:
    """Each entry with the number of the call that it belongs to.

    An event belongs to the next call, one after the last call to that, and one of a job without calls to call 1.
    """
    numbers = [entry.call.number for entry in entries if isinstance(entry, CallParts)]
    number = numbers[-1] if numbers else 1
    placed: list[tuple[CallParts | EventRecord, int]] = []
    for entry in reversed(entries):
        number = entry.call.number if isinstance(entry, CallParts) else number
        placed.append((entry, number))
    return placed[::-1]


def _chars(found: CallParts, *, messages: bool) -> int:
    parts = sum(part.chars for part in (*found.prompt, *found.said))
    return parts + (sum(len(str(message)) for message in found.call.messages) if messages else 0)


def _clean(entry: CallParts | EventRecord, secrets: Collection[str], *, messages: bool) -> CallParts | EventRecord:
    if isinstance(entry, EventRecord):
        return event_without_secrets(entry, secrets)
    return parts_without_secrets(entry, secrets, messages=messages)
