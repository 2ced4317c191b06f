"""Renders a transcript as lines. Foreign text is wrapped or kept as it is, and never holds control characters."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from textwrap import wrap
from typing import Any

from agents.llm.models import is_builtin
from db.records import EventRecord
from service.jobs.memory import MEMORY, memory_counts, without_sources
from service.jobs.query import REMEASURED
from service.transcripts.calls import CandidateResult, Entry, LinkedCall
from service.transcripts.parts import AS_BEFORE, CallParts, Part, in_parts
from tasks.outcomes import NO_CANDIDATE, clock_of, shown_untimed

WIDTH = 80
NO_TOKENS = "–"  # stands where the tokens of a compiler search would: it is no language model and has none
_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})")
_BULLET = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)]) ")


@dataclass(frozen=True)
class Line:
    """One line. `kind` is heading, label, text, code, result or event, and selects the colour."""

    kind: str
    text: str


def label(name: str, detail: str = "") -> Line:
    """A line of the form `[name] detail`."""
    return Line("label", clean(f"[{name}] {detail}".rstrip()))


def prose(text: str) -> Iterator[Line]:
    """The lines of a text: sentences are wrapped, fenced blocks stay as they are."""
    mark: str | None = None
    for raw in _lines(text):
        fence = _FENCE.match(raw)
        if mark is None and fence:
            mark = fence["mark"]
            yield Line("code", clean(raw))
        elif mark is not None:
            yield Line("code", clean(raw))
            if fence and fence["mark"].startswith(mark) and raw.strip() == fence["mark"]:
                mark = None
        else:
            bullet = _BULLET.match(raw)
            yield from wrapped("text", raw, indent=" " * len(clean(bullet[0])) if bullet else "")


def verbatim(text: str) -> Iterator[Line]:
    """The lines of a text, unchanged but for control characters."""
    return (Line("code", clean(raw)) for raw in _lines(text))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


def wrapped(kind: str, text: str, *, indent: str = "") -> Iterator[Line]:
    """One paragraph in lines of `WIDTH`. All lines but the first are indented, and words stay whole."""
    shown = clean(" ".join(text.split("\n")))
    for line in wrap(shown, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]:
        yield Line(kind, line)


def clean(text: str) -> str:
    """One line of foreign text without control characters, on which a terminal would act."""
    return "".join(char if char.isprintable() else " " for char in text.expandtabs(4))


MAX_EVENT_CHARS = 160


def transcript(entries: Sequence[Entry]) -> Iterator[Line]:
    """The lines of a job's whole transcript."""
    last = ""
    for entry in in_parts(entries):
        if isinstance(entry, EventRecord):
            line = event_line(entry)
            if line and line != last:
                last = line
                short = line if len(line) <= MAX_EVENT_CHARS else f"{line[: MAX_EVENT_CHARS - 3]}..."
                yield from wrapped("event", f"* {short}", indent="  ")
            continue
        yield Line("text", "")
        yield from _call(entry)


def transcript_json(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The transcript for scripts: `{"entry": "call", …}` with all messages, and `{"entry": "event", …}`."""
    return [entry_json(entry) for entry in in_parts(entries)]


def entry_json(entry: CallParts | EventRecord, *, messages: bool = True) -> dict[str, Any]:
    """An entry for scripts. The `prompt` of a call is what is new in it; its `messages` are left out unless wanted."""
    if isinstance(entry, EventRecord):
        data = without_sources(entry.data) if entry.kind == MEMORY else dict(entry.data)
        about = {"kind": entry.kind, "round": entry.round, "data": data, "at": entry.created_at}
        return {"entry": "event", **about}
    values = asdict(entry.call if messages else replace(entry.call, messages=()))
    led, variants = values.pop("candidate"), values.pop("candidates")
    prompt = [asdict(part) for part in entry.prompt]
    return {"entry": "call", **values, "prompt": prompt, "led": led, "variants": variants}


def entry_of_json(values: Mapping[str, Any]) -> Entry:
    """The entry that `entry_json` gave, with all messages."""
    at = datetime.fromisoformat(values["at"]) if isinstance(values["at"], str) else values["at"]
    if values["entry"] == "event":
        return EventRecord(0, values["kind"], values["round"], values["data"], at)
    known = {each.name: values[each.name] for each in fields(LinkedCall) if each.name in values}
    known |= {name: tuple(known[name]) for name in ("messages", "tool_calls")}
    led = None if values["led"] is None else _result_of_json(values["led"])
    return LinkedCall(
        **known | {"at": at, "candidate": led, "candidates": tuple(map(_result_of_json, values["variants"]))}
    )


def _result_of_json(values: Mapping[str, Any]) -> CandidateResult:
    known = {each.name: values[each.name] for each in fields(CandidateResult) if each.name in values}
    return CandidateResult(**known | {"tags": tuple(known["tags"])})


def event_line(event: EventRecord) -> str | None:
    """An event as one line; None for events that the lines of a call contain, or that hold no news."""
    data = event.data
    match event.kind:
        case "job_started":
            return (
                f"the job starts: {data.get('task_id')} on {data.get('platform')}, at most {data.get('rounds')} rounds"
            )
        case kind if kind == MEMORY:
            return f"it is told of earlier jobs: {memory_counts(data)}"
        case "round_started":
            parent = data.get("parent")
            return f"round {event.round} starts: {data.get('request')}{f', on round {parent}' if parent else ''}"
        case "llm_fault":
            return f"the {data.get('role')}'s model failed and is asked again: {data.get('message')}"
        case "llm_failed":
            return f"the {data.get('role')}'s model gave no reply: {data.get('message')}"
        case "advice":
            return f"advice after round {event.round}: {data.get('change')}"
        case "best":
            speedup = data.get("speedup")
            told = data.get("tags")
            tags = told if isinstance(told, list | tuple) else ()
            if not isinstance(speedup, int | float):
                return f"best so far: round {event.round}, {shown_untimed(tags)}"
            return f"best so far: round {event.round}, {clock_of(tags).beside(f'{speedup:.2f} times eager')}"
        case "round_done" if data.get("verdict") == NO_CANDIDATE:
            return f"round {event.round} brought no candidate"
        case "job_stopped" | "ended":
            detail = f": {data['detail']}" if data.get("detail") else ""
            what = "the rounds end" if event.kind == "job_stopped" else "the job ends"  # the proof lies between
            return f"{what}, {data.get('reason')}{detail}"
        case kind if kind == REMEASURED:
            outcome = "it counts now" if data.get("counts") else "it does not count yet"
            return f"round {event.round}: measured again while the device was quiet: {data.get('verdict')}, {outcome}"
        case "candidate" | "evaluated" | "reply_rejected" | "round_done" | "llm_started" | "evaluation_started":
            return None
        case "proof_started" | "proved" | "phase":
            return None
    said = next((str(data[key]) for key in ("message", "reason", "detail", "text") if data.get(key)), "")
    return f"{event.kind} in round {event.round}{f': {said}' if said else ''}"


def variant_text(data: Mapping[str, Any]) -> str:
    """Which of several variants the data of a `candidate` event are about; empty if there is one candidate."""
    return f", variant {data['variant']} of {data.get('variants')}: {data.get('label')}" if "variant" in data else ""


def result_line(candidate: CandidateResult) -> str:
    """A candidate's result as one line."""
    code = f" ({candidate.code})" if candidate.code else ""
    shown = f"round {candidate.round}, {candidate.candidate_hash[:8]}: {candidate.verdict or 'not evaluated'}{code}"
    if candidate.label:
        shown = f"{candidate.label}: {shown}"
    if candidate.repeat_of_round is not None:
        shown += f", the same file as in round {candidate.repeat_of_round}"
    if candidate.speedup is not None:
        low, high = candidate.speedup_low, candidate.speedup_high
        interval = "" if low is None or high is None else f" ({low:.2f}-{high:.2f})"
        shown += clock_of(candidate.tags).beside(f", {candidate.speedup:.2f}{interval} times eager")
    if candidate.tags:
        shown += f" [{', '.join(candidate.tags)}]"
    return shown + (f": {candidate.message}" if candidate.message else "")


def _call(found: CallParts) -> Iterator[Line]:
    call = found.call
    title = f"-- call {call.number}, round {call.round}: {call.role}, {call.purpose} "
    yield Line("heading", clean(title)[:WIDTH].ljust(WIDTH, "-"))
    yield from wrapped("label", cost_text(call))
    for part in (*found.prompt, *found.said):
        yield from _part(part)
    if call.rejected is not None:
        yield from wrapped("result", f"=> rejected: {call.rejected}", indent="   ")
    for candidate in call.candidates or ((call.candidate,) if call.candidate is not None else ()):
        yield from wrapped("result", f"=> {result_line(candidate)}", indent="   ")


def _part(part: Part) -> Iterator[Line]:
    if part.label == AS_BEFORE:
        yield from wrapped("label", f"[{AS_BEFORE}] {part.detail}")
    elif part.label:
        yield label(part.label, part.detail)
    if part.text is not None:
        yield from (prose if part.form == "prose" else verbatim)(part.text)


def tokens_text(model: str, prompt: object, reply: object) -> str:
    """The tokens of one call of a model."""
    return f"{NO_TOKENS} tokens" if is_builtin(model) else f"{prompt} tokens in, {reply} out"


def cost_text(call: LinkedCall) -> str:
    """What a call cost: model, tokens, dollars, seconds."""
    reasoning = "" if call.reasoning_tokens is None else f", {call.reasoning_tokens} of them reasoning"
    tokens = tokens_text(call.model, call.prompt_tokens, call.completion_tokens) + reasoning
    cost = "price unknown" if call.cost_usd is None else f"${call.cost_usd:.4f}"
    attempts = f", {call.attempts} attempts" if call.attempts > 1 else ""
    return f"{call.model}: {tokens}, {cost}, {call.latency_s:.1f} s{attempts}"
