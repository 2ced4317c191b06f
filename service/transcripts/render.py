"""Renders a transcript as lines. Foreign text is wrapped or kept as it is, and never holds control characters."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

from agents.llm.models import is_builtin
from agents.prompting.sections import parse, text_outside_sections
from db.records import EventRecord
from service.jobs.query import REMEASURED
from service.transcripts.calls import CandidateResult, Entry, LinkedCall
from tasks.outcomes import NO_CANDIDATE, candidate_hash, clock_of, shown_untimed

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
_LASTING = ("device", "platform", "exemplar", "reference", "task")  # the same in all prompts of a job
_PROSE = ("platform", "note")


def transcript(entries: Sequence[Entry]) -> Iterator[Line]:
    """The lines of a job's whole transcript."""
    prompts: dict[str, _PromptState] = {}
    shown = _JobState()
    last = ""
    for entry in entries:
        if isinstance(entry, EventRecord):
            if entry.kind == "candidate":
                shown.files.setdefault(str(entry.data.get("hash")), entry.round)
            line = event_line(entry)
            if line and line != last:
                last = line
                short = line if len(line) <= MAX_EVENT_CHARS else f"{line[: MAX_EVENT_CHARS - 3]}..."
                yield from wrapped("event", f"* {short}", indent="  ")
            continue
        yield Line("text", "")
        yield from _call(entry, prompts.setdefault(entry.role, _PromptState()), shown)


def transcript_json(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """The transcript for scripts: `{"entry": "call", …}` with all messages, and `{"entry": "event", …}`."""
    return [
        {"entry": "event", "kind": entry.kind, "round": entry.round, "data": dict(entry.data), "at": entry.created_at}
        if isinstance(entry, EventRecord)
        else {"entry": "call", **_call_json(entry)}
        for entry in entries
    ]


def _call_json(call: LinkedCall) -> dict[str, Any]:
    values = asdict(call)
    candidate, variants = values.pop("candidate"), values.pop("candidates")
    return {**values, "led": candidate, "variants": variants}


def event_line(event: EventRecord) -> str | None:
    """An event as one line; None for events that the lines of a call contain, or that hold no news."""
    data = event.data
    match event.kind:
        case "job_started":
            return (
                f"the job starts: {data.get('task_id')} on {data.get('platform')}, at most {data.get('rounds')} rounds"
            )
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


@dataclass
class _JobState:
    """The parts of the job that have been shown, in calls of any role."""

    lasting: dict[str, str] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)  # hash of a candidate to the round that wrote it

    def round_of(self, source: str) -> int | None:
        """The round that wrote exactly this file."""
        return self.files.get(candidate_hash(source))


@dataclass
class _PromptState:
    """The parts of one role's prompts that have been shown."""

    messages: tuple[Mapping[str, Any], ...] = ()
    sections: dict[str, str] = field(default_factory=dict)
    rest: set[str] = field(default_factory=set)
    answer: tuple[str, list[Any]] | None = None  # text and tool calls of the last reply
    number: int = 0


def _call(call: LinkedCall, seen: _PromptState, shown: _JobState) -> Iterator[Line]:
    title = f"-- call {call.number}, round {call.round}: {call.role}, {call.purpose} "
    yield Line("heading", clean(title)[:WIDTH].ljust(WIDTH, "-"))
    yield from wrapped("label", _cost_of(call))
    yield from _prompt(call, seen, shown)
    if call.reasoning:
        yield label("reasoning", f"{len(call.reasoning)} characters")
        yield from prose(call.reasoning)
    yield label("reply", "cut off" if call.truncated else "")
    yield from prose(call.reply or "(nothing)")
    for tool_call in call.tool_calls:
        yield from _tool_call(tool_call, shown)
    if call.rejected is not None:
        yield from wrapped("result", f"=> rejected: {call.rejected}", indent="   ")
    for candidate in call.candidates or ((call.candidate,) if call.candidate is not None else ()):
        yield from wrapped("result", f"=> {result_line(candidate)}", indent="   ")
    seen.messages, seen.answer, seen.number = call.messages, (call.reply, [*call.tool_calls]), call.number


def tokens_text(model: str, prompt: object, reply: object) -> str:
    """The tokens of one call of a model."""
    return f"{NO_TOKENS} tokens" if is_builtin(model) else f"{prompt} tokens in, {reply} out"


def _cost_of(call: LinkedCall) -> str:
    reasoning = "" if call.reasoning_tokens is None else f", {call.reasoning_tokens} of them reasoning"
    tokens = tokens_text(call.model, call.prompt_tokens, call.completion_tokens) + reasoning
    cost = "price unknown" if call.cost_usd is None else f"${call.cost_usd:.4f}"
    attempts = f", {call.attempts} attempts" if call.attempts > 1 else ""
    return f"{call.model}: {tokens}, {cost}, {call.latency_s:.1f} s{attempts}"


def _prompt(call: LinkedCall, seen: _PromptState, shown: _JobState) -> Iterator[Line]:
    """The lines of a prompt, without the messages that the last prompt of this role began with, too."""
    known = 0
    for before, now in zip(seen.messages, call.messages, strict=False):
        if before != now:
            break
        known += 1
    if known:
        which = "system" if known == 1 and call.messages[0].get("role") == "system" else f"its first {known} messages"
        yield label("as before", which)
    for message in call.messages[known:]:
        role, content = str(message.get("role")), _content(message)
        asked = message.get("tool_calls")
        tool_calls = [*asked] if isinstance(asked, list | tuple) else []
        if role == "assistant" and (content, tool_calls) == seen.answer:
            yield label("assistant", f"the reply of call {seen.number}")
            continue
        sections = parse(content) if role == "user" else {}
        if sections:
            yield from _sections(content, sections, seen, shown)
            continue
        yield label(role)
        yield from prose(content)
        for tool_call in tool_calls:
            yield from _tool_call(tool_call, shown)


def _sections(content: str, sections: Mapping[str, str], seen: _PromptState, shown: _JobState) -> Iterator[Line]:
    as_before = [name for name, body in sections.items() if name in _LASTING and shown.lasting.get(name) == body]
    if as_before:
        yield from wrapped("label", f"[as before] {', '.join(as_before)}")
    for name, body in sections.items():
        if name in as_before:
            continue
        number = shown.round_of(body) if name in ("candidate", "best") else None
        if name in _LASTING:
            shown.lasting[name] = body
        if number is not None:
            yield label(name, f"the file of round {number}")
        elif seen.sections.get(name) == body:
            yield label(name, "as before")
        elif "\n" not in body and len(body) + len(name) + 3 <= WIDTH:
            yield label(name, body)
        elif name == "history":
            yield from _history(body, seen.sections.get(name, ""))
        else:
            yield label(name)
            yield from (prose if name in _PROSE else verbatim)(body)
    seen.sections.update(sections)
    rest = text_outside_sections(content)
    if rest and rest not in seen.rest:
        seen.rest.add(rest)
        yield from prose(rest)


def _history(body: str, before: str) -> Iterator[Line]:
    """The lines of the history, without the rounds that the last prompt listed."""
    try:
        told, now = json.loads(before or "[]"), json.loads(body)
    except (ValueError, RecursionError):
        told, now = None, None
    if not isinstance(told, list) or not isinstance(now, list) or not told or now[: len(told)] != told:
        yield label("history")
        yield from verbatim(body)
        return
    yield label("history", f"{len(told)} as before, and:")
    yield from verbatim(json.dumps(now[len(told) :], ensure_ascii=False, indent=1))


def _content(message: Mapping[str, Any]) -> str:
    """A message's text. The content of a message in several parts is shown as JSON."""
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, default=str) if content else ""


def _tool_call(tool_call: object, shown: _JobState) -> Iterator[Line]:
    """The lines of a tool call with its arguments. Files among these are shown unchanged."""
    inner = tool_call.get("function", tool_call) if isinstance(tool_call, Mapping) else tool_call
    name, arguments = (inner.get("name"), inner.get("arguments")) if isinstance(inner, Mapping) else (inner, "")
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        values = None
    yield label("tool call", str(name))
    if not isinstance(values, dict):
        yield from verbatim(arguments if isinstance(arguments, str) else json.dumps(arguments, default=str))
        return
    files = {key: value for key, value in values.items() if isinstance(value, str) and "\n" in value}
    if others := {key: value for key, value in values.items() if key not in files}:
        yield from verbatim(json.dumps(others, ensure_ascii=False, default=str))
    for key, text in files.items():
        number = shown.round_of(text.rstrip() + "\n")
        yield label(key, "" if number is None else f"the file of round {number}")
        if number is None:
            yield from verbatim(text)
