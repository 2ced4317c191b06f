"""The texts in the files of `manual/DIR`: the whole prompt, and a reply in one of three forms."""

import json
import re
from collections.abc import Sequence
from typing import Any

from agents.prompting.sections import parse
from agents.protocols import JSON, Message, Tool, ToolCall
from tasks.text import clean_text

_TITLES = {"system": "System", "user": "Prompt", "assistant": "Your earlier reply", "tool": "What the tool answered"}
_NO_REQUEST = "prompt"
_FENCES = re.compile(r"`{3,}")


def request_of(messages: Sequence[Message]) -> str:
    """What a prompt requests, as part of a file name: `write`, `judge-improve` …; `prompt` if it does not say."""
    for message in messages:
        request = parse(message.content).get("request") if message.role == "user" else None
        if request is not None:
            return re.sub(r"[^a-z0-9]+", "-", request.strip().lower())[:40].strip("-") or _NO_REQUEST
    return _NO_REQUEST


def prompt_text(messages: Sequence[Message], tools: Sequence[Tool], stem: str) -> str:
    """The text of a prompt file: the whole conversation, the tools, and how to answer."""
    parts = [f"# {stem}"]
    for message in messages:
        parts.append(f"# {_TITLES.get(message.role, message.role)}")
        parts.append(message.content)
        parts.extend(_call_text(call) for call in message.tool_calls)
    if tools:
        parts.append("# Tools")
        parts.extend(_tool_text(tool) for tool in tools)
    parts.append("# How to answer")
    parts.append(_how_to_answer(stem, tools))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def read_reply(text: str, kind: str, *, stem: str, offered: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
    """Read a reply file.

    Args:
        text: the text of the file.
        kind: its suffix.
        stem: the stem of its prompt.
        offered: the tools that the prompt offers.

    Returns:
        The text of the reply (a .py or .json file is put into a fenced block) and its calls of tools, both cleaned.
    """
    if kind == "py":
        return _fenced(clean_text(text), "python"), ()
    if kind == "json":
        called = _tool_calls(text, stem) if offered else None
        if called is None:
            return _fenced(clean_text(text), "json"), ()
        return clean_text(called[0]), tuple(call.cleaned() for call in called[1])
    return clean_text(text), ()


def _how_to_answer(stem: str, tools: Sequence[Tool]) -> str:
    lines = [
        "Write your reply into the folder of this file, under one of these names:",
        "",
        f"- `{stem}.reply.md`: the reply as the text above asks for it, fenced block included;",
        f"- `{stem}.reply.py`: nothing but the candidate, where a Python file is asked for;",
        f"- `{stem}.reply.json`: nothing but the JSON object, where one is asked for.",
        "",
        "It is read once it has not changed for half a second; to be sure that it is whole, write it under another"
        " name and rename it. UTF-8, at most 2 MiB, a regular file. Then wait for the next prompt in this folder.",
    ]
    if tools:
        example = {"text": "why", "tool_calls": [{"name": tools[0].name, "arguments": {}}]}
        lines += ["", f"To call tools, answer with `{stem}.reply.json` in this form:", "", json.dumps(example)]
    return "\n".join(lines)


def _tool_text(tool: Tool) -> str:
    schema = json.dumps(tool.parameters, indent=1, ensure_ascii=False)
    return f"`{tool.name}`: {tool.description}\n\n{_fenced(schema, 'json')}"


def _call_text(call: ToolCall) -> str:
    return f"It called the tool `{call.name}` ({call.id}):\n\n{_fenced(call.arguments, 'json')}"


def _tool_calls(text: str, stem: str) -> tuple[str, tuple[ToolCall, ...]] | None:
    """Text and calls of `{"text": …, "tool_calls": [{"name": …, "arguments": …}]}`; None: it has another form."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    wanted = value.get("tool_calls") if isinstance(value, dict) else None
    if not isinstance(wanted, list) or not wanted:
        return None
    calls = [_tool_call(f"{stem}-{number}", each) for number, each in enumerate(wanted, start=1)]
    whole = [call for call in calls if call is not None]
    return (str(value.get("text", "")), tuple(whole)) if len(whole) == len(calls) else None


def _tool_call(default_id: str, value: Any) -> ToolCall | None:
    """One call. Name and arguments may stand in `{"function": {…}}`, and the arguments may be a string of JSON."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function", value)
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str) or not name:
        return None
    arguments: JSON = inner.get("arguments", {})
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(str(value.get("id") or default_id), name, shown)


def _fenced(text: str, language: str) -> str:
    """`text` in a fence that is longer than any fence in it."""
    longest = max((len(mark[0]) for mark in _FENCES.finditer(text)), default=2)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{text.rstrip()}\n{mark}\n"
