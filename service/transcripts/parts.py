"""The parts of a call as people read it: of the prompt what is new against earlier prompts, and what the model said."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.prompting.sections import parse, text_outside_sections
from db.records import EventRecord
from service.transcripts.calls import Entry, LinkedCall
from tasks.outcomes import candidate_hash

AS_BEFORE = "as before"
"""The label of a part whose detail names what is left out because an earlier prompt had it, too."""

FILES_APART = 8
"""So many files in the arguments of a tool call are parts of their own; further ones stay in the JSON of the others."""

ONE_LINE_CHARS = 80
_LASTING = (  # the same in all prompts of a job
    "device",
    "platform",
    "exemplar",
    "known_kernels",
    "known_lessons",
    "reference",
    "task",
)
_PROSE = ("platform", "note")


@dataclass(frozen=True)
class Part:
    """A part of a prompt or a reply.

    Attributes:
        label: what it is: a role, the name of a section, `reasoning`, `reply`, `tool call`; empty: text between these.
        detail: more about that, such as where the text stood before.
        text: the text; None: the label says all.
        form: whether the text is prose, or to be kept as it is.
        lasting: whether it is the same in all prompts of the job.
    """

    label: str
    detail: str = ""
    text: str | None = None
    form: Literal["prose", "code"] = "code"
    lasting: bool = False

    @property
    def chars(self) -> int:
        """The characters of all that it holds."""
        return len(self.label) + len(self.detail) + len(self.text or "")


@dataclass(frozen=True)
class CallParts:
    """A call in parts: what is new in its prompt, and what the model said."""

    call: LinkedCall
    prompt: tuple[Part, ...]
    said: tuple[Part, ...]


def in_parts(entries: Sequence[Entry]) -> Iterator[CallParts | EventRecord]:
    """The calls of a job's whole transcript in parts, and the events between them."""
    prompts: dict[str, _PromptState] = {}
    shown = _JobState()
    for entry in entries:
        if isinstance(entry, EventRecord):
            if entry.kind == "candidate":
                shown.files.setdefault(str(entry.data.get("hash")), entry.round)
            yield entry
            continue
        seen = prompts.setdefault(entry.role, _PromptState())
        yield CallParts(entry, tuple(_prompt(entry, seen, shown)), tuple(_said(entry, shown)))
        seen.messages, seen.answer, seen.number = entry.messages, (entry.reply, [*entry.tool_calls]), entry.number


def whole_parts(call: LinkedCall) -> tuple[Part, ...]:
    """All messages of a call as they were sent, and all that the model said."""
    shown = _JobState()
    parts: list[Part] = []
    for message in call.messages:
        parts += _message(message, shown)
    return (*parts, *_said(call, shown))


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


def _said(call: LinkedCall, shown: _JobState) -> Iterator[Part]:
    """The parts of what a model answered."""
    if call.reasoning:
        yield Part("reasoning", f"{len(call.reasoning)} characters", call.reasoning, "prose")
    yield Part("reply", "cut off" if call.truncated else "", call.reply or "(nothing)", "prose")
    for tool_call in call.tool_calls:
        yield from _tool_call(tool_call, shown)


def _prompt(call: LinkedCall, seen: _PromptState, shown: _JobState) -> Iterator[Part]:
    """The parts of a prompt, without the messages that the last prompt of this role began with, too."""
    known = 0
    for before, now in zip(seen.messages, call.messages, strict=False):
        if before != now:
            break
        known += 1
    if known:
        which = "system" if known == 1 and call.messages[0].get("role") == "system" else f"its first {known} messages"
        yield Part(AS_BEFORE, which)
    for message in call.messages[known:]:
        role, content = str(message.get("role")), _content(message)
        if role == "assistant" and (content, _asked(message)) == seen.answer:
            yield Part("assistant", f"the reply of call {seen.number}")
            continue
        sections = parse(content) if role == "user" else {}
        if sections:
            yield from _sections(content, sections, seen, shown)
            continue
        yield from _message(message, shown)


def _message(message: Mapping[str, Any], shown: _JobState) -> Iterator[Part]:
    """A whole message, with the tool calls in it."""
    role = str(message.get("role"))
    yield Part(role, text=_content(message), form="prose", lasting=role == "system")
    for tool_call in _asked(message):
        yield from _tool_call(tool_call, shown)


def _sections(content: str, sections: Mapping[str, str], seen: _PromptState, shown: _JobState) -> Iterator[Part]:
    as_before = [name for name, body in sections.items() if name in _LASTING and shown.lasting.get(name) == body]
    if as_before:
        yield Part(AS_BEFORE, ", ".join(as_before))
    for name, body in sections.items():
        if name in as_before:
            continue
        number = shown.round_of(body) if name in ("candidate", "best") else None
        if name in _LASTING:
            shown.lasting[name] = body
        if number is not None:
            yield Part(name, f"the file of round {number}")
        elif seen.sections.get(name) == body:
            yield Part(name, AS_BEFORE)
        elif "\n" not in body and len(body) + len(name) + 3 <= ONE_LINE_CHARS:
            yield Part(name, body)
        elif name == "history":
            yield _history(body, seen.sections.get(name, ""))
        else:
            yield Part(name, text=body, form="prose" if name in _PROSE else "code", lasting=name in _LASTING)
    seen.sections.update(sections)
    rest = text_outside_sections(content)
    if rest and rest not in seen.rest:
        seen.rest.add(rest)
        yield Part("", text=rest, form="prose")


def _history(body: str, before: str) -> Part:
    """The history, without the rounds that the last prompt listed."""
    try:
        told, now = json.loads(before or "[]"), json.loads(body)
    except (ValueError, RecursionError):
        told, now = None, None
    if not isinstance(told, list) or not isinstance(now, list) or not told or now[: len(told)] != told:
        return Part("history", text=body)
    new = json.dumps(now[len(told) :], ensure_ascii=False, indent=1)
    return Part("history", f"{len(told)} as before, and:", new)


def _asked(message: Mapping[str, Any]) -> list[Any]:
    asked = message.get("tool_calls")
    return [*asked] if isinstance(asked, list | tuple) else []


def _content(message: Mapping[str, Any]) -> str:
    """A message's text. The content of a message in several parts is shown as JSON."""
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, default=str) if content else ""


def _tool_call(tool_call: object, shown: _JobState) -> Iterator[Part]:
    """The parts of a tool call: its name, its arguments, and the first files among these, which are shown unchanged."""
    inner = tool_call.get("function", tool_call) if isinstance(tool_call, Mapping) else tool_call
    name, arguments = (inner.get("name"), inner.get("arguments")) if isinstance(inner, Mapping) else (inner, "")
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        yield Part("tool call", str(name), raw)
        return
    texts = [key for key, value in values.items() if isinstance(value, str) and "\n" in value]
    files = {key: values[key] for key in texts[:FILES_APART] if len(key) <= ONE_LINE_CHARS}
    others = {key: value for key, value in values.items() if key not in files}
    yield Part("tool call", str(name), json.dumps(others, ensure_ascii=False, default=str) if others else None)
    for key, text in files.items():
        number = shown.round_of(text.rstrip() + "\n")
        yield Part(key, "", text) if number is None else Part(str(key), f"the file of round {number}")
