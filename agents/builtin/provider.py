"""`builtin/compiler` as a custom provider of LiteLLM: it answers chat messages by a chat completion."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents.builtin.advisor import FALLBACK_CHANGE, JudgeInput, advice_reply, advise, describe_variations
from agents.builtin.catalog import parse_names
from agents.builtin.compiler import Compiler, WrittenCandidate
from agents.builtin.errors import BuiltinError, GenerationCancelled
from agents.llm.models import BUILTIN_MODELS
from agents.memory import gains_of
from agents.prompting.sections import parse
from agents.protocols import LLMCancelled
from sandbox.base import Sandbox

(MODEL,) = BUILTIN_MODELS
ABOUT = (
    "I am builtin/compiler, a compiler search and not a language model. I answer kernelwright's Coder and Judge"
    " requests: messages with a <request> and a <reference> section. I cannot chat."
)


def open_builtin(sandbox: Sandbox) -> "CompilerLLM":
    """The handler of `builtin/…` for `agents.llm.client.open_llm`; it generates kernels in `sandbox`."""
    return CompilerLLM(Compiler(sandbox))


class CompilerLLM:
    """Has the methods that LiteLLM calls on a `CustomLLM`. It does not inherit from it: that import takes seconds."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def answer(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The reply to a conversation: a ```python block for the Coder's requests, a ```json block for the Judge's.

        A request that cannot be answered gets a reply without a block.

        Raises:
            SandboxUnavailable: no sandbox is available.
            LLMCancelled: the job was cancelled; there is no reply.
        """
        sections = _last_request(messages)
        reference, request = sections.get("reference"), sections.get("request", "").strip()
        if reference is None or not request:
            return ABOUT
        try:
            if request in ("write", "improve", "repair"):
                return self._write(request, reference, sections)
            if request in ("judge-improve", "judge-repair"):
                return self._advise(request, reference, sections)
        except GenerationCancelled:
            raise LLMCancelled(MODEL, "cancelled while it generated kernels.") from None
        except BuiltinError as error:
            return f"{MODEL} could not generate kernels for this op. {error}"
        return f"{ABOUT} The request {request[:40]!r} is none of them."

    def _write(self, request: str, reference: str, sections: Mapping[str, str]) -> str:
        if request == "write":
            known = gains_of(_json_value(sections.get("known_lessons")), None)
            return _candidate_reply(self._compiler.write_first(reference, known))
        change = str(_json_object(sections.get("advice")).get("change", ""))
        if change.partition(":")[0].strip() == FALLBACK_CHANGE:
            return _candidate_reply(self._compiler.write_fallback(reference, "its own kernels failed the evaluation"))
        names = parse_names(change)
        if names is None:
            # This search did not write the advice and cannot read its words, so it follows advice of its own.
            names = parse_names(str(self._own_advice(request, reference, sections)["change"]))
        if names is None:
            return f"{MODEL} knows no variation that fits this advice, and none of its own is left to try."
        return _candidate_reply(self._compiler.write(reference, names))

    def _advise(self, request: str, reference: str, sections: Mapping[str, str]) -> str:
        return advice_reply(self._own_advice(request, reference, sections))

    def _own_advice(self, request: str, reference: str, sections: Mapping[str, str]) -> dict[str, Any]:
        history, lessons = _json_value(sections.get("history")), _json_value(sections.get("known_lessons"))
        evaluation = _json_object(sections.get("evaluation"))
        bound = evaluation.get("roofline_bound")
        judged = JudgeInput(
            repair=request.endswith("repair"),
            candidate=sections.get("candidate", ""),
            best=sections.get("best"),
            evaluation=evaluation,
            history=[entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else [],
            known=gains_of(lessons, None if bound is None else str(bound)),
            known_at_first=gains_of(lessons, None),
        )
        return advise(judged, lambda base, name: self._compiler.predict(reference, base, name))

    def completion(self, model: str, messages: list[dict[str, Any]], model_response: Any, **_: Any) -> Any:
        """Called by LiteLLM. A compiler has no tokens."""
        return self._complete(messages, model_response)

    async def acompletion(self, model: str, messages: list[dict[str, Any]], model_response: Any, **_: Any) -> Any:
        """Called by LiteLLM. It blocks while the sandbox works."""
        return self._complete(messages, model_response)

    def _complete(self, messages: list[dict[str, Any]], model_response: Any) -> Any:
        import litellm

        text = self.answer(messages)
        model_response.choices[0].message.content = text
        model_response.choices[0].finish_reason = "stop"
        model_response.model = MODEL
        model_response.usage = litellm.Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
        return model_response


def _candidate_reply(candidate: WrittenCandidate) -> str:
    if candidate.fallback_reason is not None:
        about = f"There are no kernels of its own in this candidate, only torch.compile: {candidate.fallback_reason}"
    else:
        about = describe_variations(candidate.variations)
    return f"{MODEL}, a compiler search, generated this candidate.\n{about}\n\n```python\n{candidate.source}```\n"


def _last_request(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The sections of the last user message with a request. A message that only asks again may follow it."""
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


def _json_value(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _json_object(text: str | None) -> dict[str, Any]:
    value = _json_value(text)
    return value if isinstance(value, dict) else {}
