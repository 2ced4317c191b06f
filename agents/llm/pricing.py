"""What models cost and how much they may write, by the list that LiteLLM brings along."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from agents.llm.names import is_builtin, provider_of
from agents.protocols import FREE, Message, Price, Tool

# Providers that are a program on this machine. LiteLLM would ask Ollama's server for facts, which need not run.
_OWN_MACHINE = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile"})

_STEP = re.compile(r"(input|output)_cost_per_token_above_(\d+)k_tokens")

MAX_TOKENS = 10**9  # counted of one prompt or reply, whatever a provider says
MAX_COUNTED_CHARS = 200_000  # LiteLLM's tokenizer is slow on more
_CHARS_A_TOKEN = 4  # rough, as for English text and code


def price_of(litellm: ModuleType, model: str) -> Price | None:
    """The model's price, None where it is not known. Reasoning tokens that cost more than others set the reply's."""
    if is_builtin(model) or provider_of(model) in _OWN_MACHINE:
        return FREE
    # The list itself and not `get_model_info`, which takes a price that is missing for 0.
    listed = litellm.model_cost.get(_model_info(litellm, model).get("key")) or {}
    prompt, reply = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
    if prompt is None or reply is None:
        return None
    reply = float(max(reply, listed.get("output_cost_per_reasoning_token") or 0.0))
    return Price(float(prompt), reply, _longer(listed, float(prompt), reply))


def _longer(listed: Mapping[str, Any], prompt: float, reply: float) -> tuple[tuple[int, float, float], ...]:
    """The steps in a price, such as `input_cost_per_token_above_200k_tokens`."""
    steps: dict[int, list[float]] = {}
    for name, value in listed.items():
        found = _STEP.fullmatch(name)
        if found and isinstance(value, int | float):
            step = steps.setdefault(int(found[2]) * 1000, [prompt, reply])
            place = 0 if found[1] == "input" else 1
            step[place] = max(step[place], float(value))
    return tuple((above, *costs) for above, costs in sorted(steps.items()))  # type: ignore[misc]  # two costs each


def most_reply_tokens(litellm: ModuleType, model: str) -> int | None:
    """The longest reply that the model can give, None where it is not known."""
    if is_builtin(model) or provider_of(model) in _OWN_MACHINE:
        return None
    most = _model_info(litellm, model).get("max_output_tokens")
    return most if isinstance(most, int) and most > 0 else None


def cost_of(litellm: ModuleType, model: str, usage: Any) -> float | None:
    """Dollars for this `litellm.Usage` with its discounts (cached prompts), None where no price is known."""
    price = price_of(litellm, model)
    if price is None or price == FREE:
        return None if price is None else 0.0
    prompt_tokens, reply_tokens = usage.prompt_tokens or 0, usage.completion_tokens or 0
    try:
        prompt_usd, reply_usd = litellm.cost_per_token(
            model=model, prompt_tokens=prompt_tokens, completion_tokens=reply_tokens, usage_object=usage
        )
    except Exception:  # it raises whatever its provider's calculation stumbles over
        return prompt_tokens * price.prompt_usd + reply_tokens * price.reply_usd
    return max(float(prompt_usd + reply_usd), 0.0)


def believable_usage(
    litellm: ModuleType, model: str, messages: Sequence[Message], written: str, usage: Any, tools: Sequence[Tool] = ()
) -> Any:
    """`usage` as far as it can be true: no count is negative, and what was sent and written is not counted as nothing.

    Where a count is missing, zero or less, it is estimated; `written` is all that the model wrote.
    """
    prompt, reply = token_count(getattr(usage, "prompt_tokens", 0)), token_count(getattr(usage, "completion_tokens", 0))
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None) or 0
    if prompt and (reply or not written) and 0 <= cached <= prompt:
        if (prompt, reply) == (usage.prompt_tokens, usage.completion_tokens):
            return usage
    else:
        estimate = estimate_usage(litellm, model, messages, written, tools)
        prompt, reply = prompt or estimate.prompt_tokens, reply or estimate.completion_tokens
    return litellm.Usage(prompt_tokens=prompt, completion_tokens=reply, total_tokens=prompt + reply)


def token_count(value: object) -> int:
    """A provider's count of tokens: at least 0, and at most what every store holds."""
    return min(max(value, 0), MAX_TOKENS) if isinstance(value, int) else 0


def estimate_usage(
    litellm: ModuleType, model: str, messages: Sequence[Message], written: str, tools: Sequence[Tool] = ()
) -> Any:
    """A `litellm.Usage` for a reply that came without one; `written` is all that the model wrote."""
    asked = [message.content for message in messages]
    asked += [call.name + call.arguments for message in messages for call in message.tool_calls]
    asked += [f"{tool.name} {tool.description} {json.dumps(tool.parameters)}" for tool in tools]
    prompt = _count(litellm, model, "\n".join(asked)) + 4 * len(asked)
    reply = _count(litellm, model, written)
    return litellm.Usage(prompt_tokens=prompt, completion_tokens=reply, total_tokens=prompt + reply)


def _count(litellm: ModuleType, model: str, text: str) -> int:
    if len(text) <= MAX_COUNTED_CHARS:
        with contextlib.suppress(Exception):  # an estimate must not cost a reply that is there
            return int(litellm.token_counter(model=model, text=text))
    return -(-len(text) // _CHARS_A_TOKEN)


def _model_info(litellm: ModuleType, model: str) -> dict[str, Any]:
    """LiteLLM's facts on a model; empty where it has none."""
    try:
        return dict(litellm.get_model_info(model))
    except Exception:  # it raises a bare Exception for an unknown model
        return {}
