"""From what LiteLLM received to a `Reply`: refusals told apart, thoughts from text, tokens and money counted."""

import re
from collections.abc import Collection, Sequence
from types import ModuleType

from agents.errors import LLMRefused, ReplyLost
from agents.llm.error_mapping import shown
from agents.llm.pricing import believable_usage, cost_of
from agents.llm.stream import Received
from agents.prompting.parse import MAX_REPLY_CHARS
from agents.protocols import Message, Reply, Tool
from tasks.text import clean_text

# LiteLLM maps most providers' words to `length` and `content_filter`, but not those of every stream.
_CUT_OFF = frozenset({"length", "max_tokens", "model_length", "compaction"})
_FILTERED = frozenset({"content_filter", "content_filtered", "refusal", "safety", "sensitive", "prohibited_content"})

_THOUGHTS = re.compile(r"\A\s*<think>(.*?)</think>", re.DOTALL)  # LiteLLM splits them only off whole responses


def reply_of(
    litellm: ModuleType,
    model: str,
    messages: Sequence[Message],
    received: Received,
    secrets: Collection[str],
    tools: Sequence[Tool] = (),
) -> Reply:
    """The reply; its latency and attempts are for the caller to fill in.

    Raises:
        ReplyLost: the stream ended before the reply was whole.
        LLMRefused: the model declined, or its provider filtered the reply.
    """
    if received.finish is None:
        raise ReplyLost(model, "the stream ended before the reply was whole.")
    finish = received.finish.lower()
    text, reasoning = received.text, received.reasoning
    if finish in _FILTERED or (received.refusal and not text):
        raise LLMRefused(model, f"the model declined to answer. {shown(received.refusal, secrets)}".rstrip())
    thoughts = None if reasoning else _THOUGHTS.match(text)
    if thoughts is not None:
        text, reasoning = text[thoughts.end() :], thoughts[1]
    text, reasoning = clean_text(text), clean_text(reasoning)
    usage = believable_usage(litellm, model, messages, received.written, received.usage, tools)
    return Reply(
        text=text[:MAX_REPLY_CHARS],
        model=model,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=cost_of(litellm, model, usage),
        latency_s=0.0,
        truncated=finish in _CUT_OFF or len(text) > MAX_REPLY_CHARS,
        reasoning=reasoning[:MAX_REPLY_CHARS],
        reasoning_tokens=received.counted_reasoning,
        tool_calls=tuple(call.cleaned() for call in received.tool_calls),
    )
