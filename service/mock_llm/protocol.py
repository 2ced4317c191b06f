"""The Chat Completions protocol of the mock server: it turns a scripted entry into a response or a stream's events."""

import ast
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.llm.models import CHARS_PER_TOKEN
from service.mock_llm.script import Entry, ScriptedCall, ScriptedUsage, content_text, fenced, request_digest, request_of
from tasks import syntax

MOST_PIECES = 50  # into which one text of a stream is split
_INPUT_FUNCTIONS = ("get_inputs", "get_init_inputs")
_ADVICE = {
    "bottleneck": "not known: this advice is scripted, and nothing was looked at",
    "change": "none; the candidate stays as it is",
    "expected_speedup": 1.0,
    "stop": True,
}
END_OF_SCRIPT = "The script of this server is at its end: it holds no entry for this request that is not used up."


@dataclass(frozen=True)
class Answer:
    """The answer of a model. `text` is None if it says nothing, or says `refusal` instead. Tool calls are JSON."""

    digest: str
    text: str | None
    reasoning: str
    refusal: str | None
    tool_calls: tuple[dict[str, Any], ...]
    finish: str
    usage: dict[str, Any] | None

    @property
    def ident(self) -> str:
        """The id of the response, which is the same for the same request."""
        return f"chatcmpl-{self.digest[:24]}"


@dataclass(frozen=True)
class Events:
    """The events of a stream: pieces of the message, the finish reason, and the usage if the client asked for it."""

    pieces: tuple[dict[str, Any], ...]
    finish: dict[str, Any]
    usage: dict[str, Any] | None


def answer_of(entry: Entry | None, messages: Sequence[Mapping[str, Any]]) -> Answer:
    """The answer of an entry to messages. Without an entry, the answer says that the script is at its end."""
    digest = request_digest(messages)
    entry = entry or Entry(text=END_OF_SCRIPT)
    refusal = (entry.text or "I cannot help with that.") if entry.fault == "refusal" else None
    scripted = entry.tool_calls
    if entry.answer == "reference" and request_of(messages).get("request") == "tools":
        scripted = (_call_for(messages),)
    text = None if refusal is not None or scripted != entry.tool_calls else _text_of(entry, messages)
    calls = tuple(
        {
            "id": f"call_{digest[:16]}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_text},
        }
        for number, call in enumerate(scripted)
    )
    written = entry.reasoning + (text or refusal or "") + "".join(call.arguments_text for call in scripted)
    usage = None if entry.fault == "no_usage" else _usage(entry.usage, messages, entry.reasoning, written)
    finish = entry.finish or ("tool_calls" if calls else "stop")
    return Answer(digest, text, entry.reasoning, refusal, calls, finish, usage)


def response_json(answer: Answer, model: str) -> dict[str, Any]:
    """The answer as one whole response."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": answer.refusal}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = list(answer.tool_calls)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    shown = {**_head(answer, model, "chat.completion"), "choices": [choice]}
    return shown if answer.usage is None else {**shown, "usage": answer.usage}


def stream_events(answer: Answer, model: str, *, with_usage: bool) -> Events:
    """The answer as the events of a stream."""
    head = _head(answer, model, "chat.completion.chunk")

    def event(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**head, "choices": [choice], **({"usage": None} if with_usage else {})}

    pieces = [event({"role": "assistant", "content": ""})]
    pieces += [event({"reasoning_content": piece}) for piece in _split(answer.reasoning)]
    pieces += [event({"content": piece}) for piece in _split(answer.text or "")]
    pieces += [event({"refusal": piece}) for piece in _split(answer.refusal or "")]
    for index, call in enumerate(answer.tool_calls):
        function = call["function"]
        opening = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        pieces.append(event({"tool_calls": [opening]}))
        for piece in _split(function["arguments"]):
            pieces.append(event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    usage = {**head, "choices": [], "usage": answer.usage} if with_usage and answer.usage is not None else None
    return Events(tuple(pieces), event({}, answer.finish), usage)


def error_json(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """An error in the protocol's form."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def models_json(models: Sequence[str]) -> dict[str, Any]:
    """The list of models."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "kernelwright"} for name in models],
    }


def reference_as_candidate(reference: str) -> str | None:
    """The op itself as a candidate: its class `Model` renamed `ModelNew`, without the functions that make inputs.

    The source is parsed, never executed. The result is None if it is no Python or holds no such class.
    """
    try:
        tree = syntax.parse(reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not any(isinstance(node, ast.ClassDef) and node.name == "Model" for node in tree.body):
        return None
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in _INPUT_FUNCTIONS)
    ]
    return ast.unparse(_Renaming().visit(tree)) + "\n"


class _Renaming(ast.NodeTransformer):
    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = _renamed(node.name)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = _renamed(node.id)
        return node


def _renamed(name: str) -> str:
    return "ModelNew" if name == "Model" else name


def _text_of(entry: Entry, messages: Sequence[Mapping[str, Any]]) -> str | None:
    if entry.answer == "advice":
        return fenced(json.dumps({**_ADVICE, "evidence": _evidence(messages)}, indent=1), "json")
    if entry.answer == "reference":
        candidate = reference_as_candidate(request_of(messages).get("reference", ""))
        if candidate is None:
            return "There is no op in a <reference> section of this request that could be given back."
        return f"This is the op itself, as a candidate.\n\n{fenced(candidate, 'python')}"
    return None if entry.text is None else fenced(entry.text, entry.fence)


def _evidence(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first figure of the Judge's request, because evidence must cite one of the figures."""
    try:
        metrics = json.loads(request_of(messages).get("metrics", "{}"))
    except ValueError:
        return []
    return [f"{name} {value}" for name, value in metrics.items()][:1] if isinstance(metrics, dict) else []


def _call_for(messages: Sequence[Mapping[str, Any]]) -> ScriptedCall:
    """The tool call for a Coder with tools: first it reads the op, then it submits the op."""
    for message in reversed(messages):
        candidate = reference_as_candidate(content_text(message)) if message.get("role") == "tool" else None
        if candidate is not None:
            return ScriptedCall(name="submit", arguments={"source": candidate})
    return ScriptedCall(name="read_reference")


def _usage(
    given: ScriptedUsage | None, messages: Sequence[Mapping[str, Any]], reasoning: str, written: str
) -> dict[str, Any]:
    if given is None:
        asked = sum(len(content_text(message)) for message in messages)
        given = ScriptedUsage(
            prompt_tokens=_tokens(asked),
            completion_tokens=_tokens(len(written)),
            reasoning_tokens=_tokens(len(reasoning)) if reasoning else None,
        )
    shown: dict[str, Any] = {
        "prompt_tokens": given.prompt_tokens,
        "completion_tokens": given.completion_tokens,
        "total_tokens": given.prompt_tokens + given.completion_tokens,
    }
    if given.reasoning_tokens is not None:
        shown["completion_tokens_details"] = {"reasoning_tokens": given.reasoning_tokens}
    return shown


def _tokens(characters: int) -> int:
    return -(-characters // CHARS_PER_TOKEN)


def _split(text: str) -> list[str]:
    size = max(24, -(-len(text) // MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _head(answer: Answer, model: str, kind: str) -> dict[str, Any]:
    return {"id": answer.ident, "object": kind, "created": int(time.time()), "model": model}
