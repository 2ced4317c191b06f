"""`builtin/compiler` as a custom provider of LiteLLM: chat messages in, a chat completion out."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents.builtin.advisor import FALLBACK_CHANGE, Case, encode, explain, judge
from agents.builtin.catalog import read_recipe
from agents.builtin.compiler import Compiler, Written
from agents.builtin.errors import BuiltinError
from agents.prompting.sections import parse
from sandbox.base import Sandbox

MODEL = "builtin/compiler"
ABOUT = (
    "I am builtin/compiler, a compiler search and not a language model. I answer kernelwright's Coder and Judge"
    " requests: messages with a <request> and a <reference> section. I cannot chat."
)
_CHARACTERS_A_TOKEN = 4  # rough, as for English text and code


def open_builtin(sandbox: Sandbox) -> "CompilerLLM":
    """The handler to give to `agents.llm.client.open_llm`."""
    return CompilerLLM(Compiler(sandbox))


class CompilerLLM:
    """A handler with the methods that LiteLLM calls on a `CustomLLM` (its base is not imported: that takes seconds)."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The reply to a conversation: a ```python fence for the Coder's requests, a ```json fence for the Judge's.

        What cannot be answered gets a reply in plain words, as any model would give one.

        Raises:
            SandboxUnavailable: kernels cannot be generated at present.
        """
        sections = _last_request(messages)
        reference, request = sections.get("reference"), sections.get("request", "").strip()
        if reference is None or not request:
            return ABOUT
        try:
            if request in ("write", "improve", "repair"):
                return self._code(request, reference, sections)
            if request in ("judge-improve", "judge-repair"):
                return self._advise(request, reference, sections)
        except BuiltinError as error:
            return f"{MODEL} could not generate kernels for this op. {error}"
        return f"{ABOUT} The request {request[:40]!r} is none of them."

    def _code(self, request: str, reference: str, sections: Mapping[str, str]) -> str:
        if request == "write":
            return _coded(self._compiler.write(reference, ()))
        change = str(_object(sections.get("advice")).get("change", ""))
        if change.partition(":")[0].strip() == FALLBACK_CHANGE:
            return _coded(self._compiler.fallback(reference, "its own kernels failed the evaluation"))
        names = read_recipe(change)
        if names is None:
            # Advice that this search did not write: there is no language to follow it with, so it takes its own.
            names = read_recipe(str(self._own_advice(request, reference, sections)["change"]))
        if names is None:
            return f"{MODEL} knows no variation that fits this advice, and none of its own is left to try."
        return _coded(self._compiler.write(reference, names))

    def _advise(self, request: str, reference: str, sections: Mapping[str, str]) -> str:
        return encode(self._own_advice(request, reference, sections))

    def _own_advice(self, request: str, reference: str, sections: Mapping[str, str]) -> dict[str, Any]:
        history = _read(sections.get("history"))
        case = Case(
            repair=request.endswith("repair"),
            candidate=sections.get("candidate", ""),
            best=sections.get("best"),
            evaluation=_object(sections.get("evaluation")),
            history=[entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else [],
        )

        return judge(case, lambda base, name: self._compiler.predict(reference, base, name))

    def completion(self, model: str, messages: list[dict[str, Any]], model_response: Any, **_: Any) -> Any:
        """LiteLLM's call. Token counts are rough (four characters each), and the cost is zero."""
        return self._complete(messages, model_response)

    async def acompletion(self, model: str, messages: list[dict[str, Any]], model_response: Any, **_: Any) -> Any:
        """As `completion`; it blocks while the sandbox works."""
        return self._complete(messages, model_response)

    def _complete(self, messages: list[dict[str, Any]], model_response: Any) -> Any:
        import litellm

        text = self.answer(messages)
        asked = sum(len(_text(message)) for message in messages)
        prompt, completion = -(-asked // _CHARACTERS_A_TOKEN), -(-len(text) // _CHARACTERS_A_TOKEN)
        model_response.choices[0].message.content = text
        model_response.choices[0].finish_reason = "stop"
        model_response.model = MODEL
        model_response.usage = litellm.Usage(
            prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion
        )
        return model_response


def _coded(written: Written) -> str:
    if written.reason is not None:
        about = f"There are no kernels of its own in this candidate, only torch.compile: {written.reason}"
    else:
        about = explain(written.variations)
    return f"{MODEL}, a compiler search, generated this candidate.\n{about}\n\n```python\n{written.source}```\n"


def _last_request(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The sections of the last user message that holds a request: a reminder may have come after it."""
    for message in reversed(messages):
        if message.get("role") == "user":
            sections = parse(_text(message))
            if "request" in sections:
                return sections
    return {}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _read(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _object(text: str | None) -> dict[str, Any]:
    value = _read(text)
    return value if isinstance(value, dict) else {}
