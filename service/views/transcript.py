"""The view of what models said in a job: its calls in order, in parts, with what came of them."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agents.llm.error_mapping import redact
from db.errors import NotInStore
from db.evaluations import results
from db.jobs import jobs
from db.records import OPEN, EventRecord, JobRecord
from db.store import Store
from service.jobs.activity import MODEL, Activity, read_activity
from service.jobs.query import mark_dead_jobs
from service.transcripts.calls import CandidateResult, LinkedCall, calls_in, read_entries
from service.transcripts.pages import with_calls
from service.transcripts.parts import CallParts, Part, in_parts, whole_parts
from service.transcripts.redaction import parts_without_secrets
from service.transcripts.render import event_line, tokens_text

CALLS_A_PAGE = 20
PART_CHARS = 8_000
"""The characters of a part that a page with many calls shows; the page of the call shows all."""

WHOLE_PAGE_CHARS = 200_000
"""The characters of a call that one page of it shows."""

PARTS_OF_A_CALL = 100
"""The parts of a prompt, and of a reply, that a page with many calls shows; the page of the call shows all."""

WHOLE_PAGE_PARTS = 500
"""The parts of a call that one page of it shows."""

_PREVIEW_CHARS = 160
_FENCE = re.compile(r"`{3,}\w*")
_OPEN_CHARS = 4_000  # a longer prompt's part, or reasoning, is folded


@dataclass(frozen=True)
class PartView:
    """A part with as much of its text as is shown. `chars` are those of the whole text, `place` counts parts from 1."""

    part: Part
    place: int
    text: str | None
    chars: int
    open: bool

    @property
    def left_out(self) -> int:
        """The characters that are not shown."""
        return self.chars - len(self.text or "")


@dataclass(frozen=True)
class CallView:
    """A call as a page of many shows it.

    Attributes:
        preview: the beginning of what the model said.
        prompt, said: the first parts of what was new in the prompt, and of the reply.
        prompt_left_out, said_left_out: how many parts follow these.
    """

    call: LinkedCall
    tokens: str
    preview: str
    prompt: tuple[PartView, ...]
    said: tuple[PartView, ...]
    prompt_left_out: int
    said_left_out: int

    @property
    def results(self) -> tuple[CandidateResult, ...]:
        """The candidates that the call led to."""
        return results_of(self.call)


@dataclass(frozen=True)
class EventLine:
    """Something that happened between two calls. `failed`: a model failed or gave no reply."""

    at: datetime | None
    text: str
    failed: bool


@dataclass(frozen=True)
class ContentsLine:
    """A call in the table of contents, with the page that shows it."""

    call: LinkedCall
    page: int

    @property
    def result(self) -> CandidateResult | None:
        """The candidate that the call led to: the best one of several."""
        return self.call.candidate


@dataclass(frozen=True)
class TranscriptView:
    """A page of a job's transcript.

    Attributes:
        job: the job.
        items: the calls of the page, and what happened between them.
        contents: all calls of the job, without their texts.
        page: the number of the page, from 1.
        pages: how many there are.
        failed: how many requests gave no reply, or had to be sent again.
        unpriced: how many calls have no known price.
        under_way: the call that is under way.
    """

    job: JobRecord
    items: tuple[CallView | EventLine, ...]
    contents: tuple[ContentsLine, ...]
    page: int
    pages: int
    failed: int
    unpriced: int
    under_way: Activity | None

    @property
    def is_open(self) -> bool:
        """Whether more calls may follow."""
        return self.job.status in OPEN

    @property
    def cost_usd(self) -> float:
        """What all calls have cost."""
        return sum(line.call.cost_usd or 0.0 for line in self.contents)

    @property
    def waited_s(self) -> float:
        """How long all calls took."""
        return sum(line.call.latency_s for line in self.contents)


@dataclass(frozen=True)
class WholeCallView:
    """A page of one call with all that was sent and said. `before` and `after` are the calls beside it, if any."""

    job: JobRecord
    call: LinkedCall
    tokens: str
    parts: tuple[PartView, ...]
    page: int
    pages: int
    before: int | None
    after: int | None
    list_page: int

    @property
    def results(self) -> tuple[CandidateResult, ...]:
        """The candidates that the call led to."""
        return results_of(self.call)


def transcript_view(store: Store, job_id: int, *, page: int, secrets: Collection[str]) -> TranscriptView:
    """A page of what models said in a job, without these secrets. A page past the end is the last.

    Raises:
        NotInStore: there is no such job.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        job, events = jobs.get_job(session, job_id), results.list_events(session, job_id)
        pages = max(-(-results.count_llm_calls(session, job_id) // CALLS_A_PAGE), 1)
        page = min(max(page, 1), pages)
        numbers = range(CALLS_A_PAGE * (page - 1) + 1, CALLS_A_PAGE * page + 1)
        entries = list(in_parts(read_entries(session, job_id, events, numbers)))
        activity = read_activity(session, job, events)
    calls = [entry.call for entry in entries if isinstance(entry, CallParts)]
    return TranscriptView(
        job=job,
        items=tuple(_items(entries, page, secrets)),
        contents=tuple(ContentsLine(_without_texts(call), page_of(call.number)) for call in calls),
        page=page,
        pages=pages,
        failed=sum(_is_failure(entry) for entry in entries if isinstance(entry, EventRecord)),
        unpriced=sum(call.cost_usd is None for call in calls),
        under_way=activity if activity is not None and activity.phase == MODEL else None,
    )


def whole_call_view(store: Store, job_id: int, number: int, *, page: int, secrets: Collection[str]) -> WholeCallView:
    """A page of one call, without these secrets. A page past the end is the last.

    Raises:
        NotInStore: there is no such job or call.
    """
    job, calls = _read(store, job_id, number)
    if not 1 <= number <= len(calls):
        raise NotInStore(f"job {job_id} has no call {number}")
    call = next(each for each in calls if each.number == number)
    clean = parts_without_secrets(CallParts(call, whole_parts(call), ()), secrets)
    pieces = [piece for place, part in enumerate(clean.prompt, 1) for piece in _pieces(part, place)]
    sheets = _sheets(pieces)
    page = min(max(page, 1), len(sheets))
    return WholeCallView(
        job=job,
        call=clean.call,
        tokens=_tokens(call),
        parts=tuple(sheets[page - 1]),
        page=page,
        pages=len(sheets),
        before=number - 1 if number > 1 else None,
        after=number + 1 if number < len(calls) else None,
        list_page=page_of(number),
    )


def call_that_wrote(store: Store, job_id: int, candidate_hash: str) -> int | None:
    """The number of the Coder's call that led to a candidate of a job; None: nobody knows of one.

    Raises:
        NotInStore: there is no such job.
    """
    _, calls = _read(store, job_id)
    led = [call for call in calls if candidate_hash in {each.candidate_hash for each in results_of(call)}]
    return next((call.number for call in led if call.role == "coder"), None)


def page_of(number: int) -> int:
    """The page of a transcript that shows a call."""
    return (number - 1) // CALLS_A_PAGE + 1


def results_of(call: LinkedCall) -> tuple[CandidateResult, ...]:
    """The candidates that a call led to."""
    return call.candidates or ((call.candidate,) if call.candidate is not None else ())


def _read(store: Store, job_id: int, number: int = 0) -> tuple[JobRecord, list[LinkedCall]]:
    """A job and its calls, of which only the one with this number has texts."""
    mark_dead_jobs(store)
    with store.read() as session:
        job, events = jobs.get_job(session, job_id), results.list_events(session, job_id)
        entries = read_entries(session, job_id, events, range(number, number + 1), before=False)
    return job, calls_in(entries)


def _items(
    entries: Sequence[CallParts | EventRecord], page: int, secrets: Collection[str]
) -> Iterator[CallView | EventLine]:
    """The calls of a page, and what happened between them."""
    last = ""
    for entry, number in with_calls(entries):
        if page_of(number) != page:
            continue
        if isinstance(entry, CallParts):
            yield _call_view(entry, secrets)
            continue
        line = event_line(entry)
        if line and line != last:
            last = line
            yield EventLine(entry.created_at, redact(line, secrets), _is_failure(entry))


def _without_texts(call: LinkedCall) -> LinkedCall:
    """A call without what was sent and said."""
    led = None if call.candidate is None else replace(call.candidate, message="", label="")
    rejected = None if call.rejected is None else "rejected"
    empty = replace(call, messages=(), reply="", reasoning="", tool_calls=(), candidates=())
    return replace(empty, candidate=led, rejected=rejected)


def _call_view(whole: CallParts, secrets: Collection[str]) -> CallView:
    first = replace(whole, prompt=whole.prompt[:PARTS_OF_A_CALL], said=whole.said[:PARTS_OF_A_CALL])
    found = parts_without_secrets(first, secrets)
    prompt = tuple(_part_view(part, place) for place, part in enumerate(found.prompt, 1))
    said = tuple(
        _part_view(part, place, answer=part.label != "reasoning")
        for place, part in enumerate(found.said, 1 + len(whole.prompt))
    )
    call = found.call
    preview = call.reply or ", ".join(part.detail for part in found.said if part.label == "tool call")
    return CallView(
        call=call,
        tokens=_tokens(call),
        preview=_FENCE.sub(" ", preview[: 2 * _PREVIEW_CHARS])[:_PREVIEW_CHARS],
        prompt=prompt,
        said=said,
        prompt_left_out=len(whole.prompt) - len(prompt),
        said_left_out=len(whole.said) - len(said),
    )


def _part_view(part: Part, place: int, *, answer: bool = False) -> PartView:
    chars = len(part.text or "")
    unfolded = answer or (chars <= _OPEN_CHARS and not part.lasting)
    return PartView(part, place, None if part.text is None else part.text[:PART_CHARS], chars, unfolded)


def _pieces(part: Part, place: int) -> Iterator[PartView]:
    """A part, in pieces if it is longer than a page."""
    text = part.text
    if text is None or len(text) <= WHOLE_PAGE_CHARS:
        yield PartView(part, place, text, len(text or ""), open=True)
        return
    for begin in range(0, len(text), WHOLE_PAGE_CHARS):
        piece = text[begin : begin + WHOLE_PAGE_CHARS]
        detail = f"{part.detail} characters {begin + 1:,} to {begin + len(piece):,} of {len(text):,}".strip()
        yield PartView(replace(part, detail=detail), place, piece, len(piece), open=True)


def _sheets(pieces: Sequence[PartView]) -> list[list[PartView]]:
    """The pages of a call, of bounded length and number of parts each; one without parts, too."""
    sheets: list[list[PartView]] = [[]]
    chars = 0
    for piece in pieces:
        own = len(piece.text or "")
        if sheets[-1] and (chars + own > WHOLE_PAGE_CHARS or len(sheets[-1]) >= WHOLE_PAGE_PARTS):
            sheets.append([])
            chars = 0
        sheets[-1].append(piece)
        chars += own
    return sheets


def _tokens(call: LinkedCall) -> str:
    reasoning = "" if call.reasoning_tokens is None else f", {call.reasoning_tokens} of them reasoning"
    return tokens_text(call.model, call.prompt_tokens, call.completion_tokens) + reasoning


def _is_failure(event: EventRecord) -> bool:
    return event.kind in ("llm_fault", "llm_failed")
