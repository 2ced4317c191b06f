"""Models by LiteLLM's names (`provider/model`, or a bare name): their provider, price, and token counts.

LiteLLM is imported here and nowhere else: late because that takes seconds, without output, and without the network.
"""

import contextlib
import json
import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from agents.protocols import FREE, Message, Price, Tool

BUILTIN = "builtin"  # the provider of the built-in models
BUILTIN_MODELS = (f"{BUILTIN}/compiler",)
MANUAL = "manual"  # the provider of `manual/DIR`, whose replies are files

# Providers that speak the OpenAI protocol at any address. `api_base` applies to them; others have their own address.
OPENAI_COMPATIBLE = frozenset(
    {
        "openai",
        "text-completion-openai",
        "custom_openai",
        "hosted_vllm",
        "vllm",
        "ollama",
        "ollama_chat",
        "lm_studio",
        "llamafile",
        "litellm_proxy",
        "xinference",
    }
)

# Providers that are a program on this machine. LiteLLM would ask Ollama's server for facts, which need not run.
_LOCAL_PROVIDERS = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile"})

_LONG_PROMPT_PRICE = re.compile(r"(input|output)_cost_per_token_above_(\d+)k_tokens")

MAX_TOKENS = 10**9  # in a count of one prompt or reply, whatever a provider says
MAX_COUNTED_CHARS = 200_000  # LiteLLM's tokenizer is slow on longer texts
CHARS_PER_TOKEN = 4  # a rough average of English text and code
_TOKENS_PER_MESSAGE = 4


def provider_of(model: str) -> str:
    """The provider of a model. A bare name belongs to an OpenAI-compatible server."""
    return model.partition("/")[0] if "/" in model else "openai"


def is_builtin(model: str) -> bool:
    """Whether a name is one of the provider `builtin`; `check_builtin` refuses those that do not exist."""
    return provider_of(model) == BUILTIN


def check_builtin(model: str) -> None:
    """Check that a model of the provider `builtin` exists.

    Raises:
        ValueError: it does not; the text names those that do.
    """
    if is_builtin(model) and model not in BUILTIN_MODELS:
        raise ValueError(f"model {model[:80]!r} is unknown; built in: {', '.join(BUILTIN_MODELS)}")


def only_builtin(model: str | None, judge_model: str | None) -> bool:
    """Whether a job uses the built-in model only, so that it costs nothing and runs no foreign code.

    Args:
        model: the Coder's model; None: the job has none, which is not built in.
        judge_model: the Judge's; None: the Coder's.
    """
    return model is not None and all(is_builtin(name) for name in (model, judge_model or model))


def import_litellm() -> ModuleType:
    """The `litellm` module, imported at the first call (which takes seconds) and configured.

    Prices come from the list in the package and not from the network, no `.env` is read, nothing is reported, and
    nothing is printed. LiteLLM reads the environment at import, so every import must go through here.
    """
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm

    # LiteLLM's own types make pydantic warn at their first use, and while streams are read.
    warnings.filterwarnings("ignore", message=".* is using the `ReadOnly` qualifier", category=UserWarning)
    warnings.filterwarnings("ignore", message=".* are using the `ReadOnly` qualifier", category=UserWarning)
    warnings.filterwarnings("ignore", message="Accessing the 'model_", category=DeprecationWarning)
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.drop_params = True  # a parameter that a model does not know is left out
    litellm.disable_streaming_logging = True  # else it starts an event loop in a thread for every chunk
    litellm.disable_hf_tokenizer_download = True  # an estimate of tokens is not worth a download
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def register_provider(litellm: Any, provider: str, handler: object) -> None:
    """Make LiteLLM answer `provider/…` by `handler` (a `litellm.CustomLLM`), which replaces an earlier one."""
    others = [entry for entry in litellm.custom_provider_map if entry["provider"] != provider]
    litellm.custom_provider_map = [*others, {"provider": provider, "custom_handler": handler}]
    litellm.utils.custom_llm_setup()


def missing_keys(litellm: ModuleType, model: str) -> tuple[str, ...]:
    """The variables of which one must hold the key of a model's provider, if none does; empty where that is not known.

    Only providers that need a key and nothing else are judged: others have roles, addresses or files.
    """
    with contextlib.suppress(Exception):  # of a name that LiteLLM does not know
        missing = [str(name) for name in litellm.validate_environment(model)["missing_keys"]]
        if all(name.endswith("_API_KEY") for name in missing):
            return tuple(missing)
    return ()


def price_of(litellm: ModuleType, model: str) -> Price | None:
    """The price of a model's tokens by LiteLLM's list; None: not known.

    If reasoning tokens cost more than other reply tokens, their price counts for the whole reply.
    """
    if is_builtin(model) or provider_of(model) in _LOCAL_PROVIDERS:
        return FREE
    # Not `get_model_info`, which gives 0 for a price that is missing from the list.
    listed = litellm.model_cost.get(_model_info(litellm, model).get("key")) or {}
    prompt, reply = listed.get("input_cost_per_token"), listed.get("output_cost_per_token")
    if prompt is None or reply is None:
        return None
    reply = float(max(reply, listed.get("output_cost_per_reasoning_token") or 0.0))
    return Price(float(prompt), reply, _long_prompt_prices(listed, float(prompt), reply))


def _long_prompt_prices(listed: Mapping[str, Any], prompt: float, reply: float) -> tuple[tuple[int, float, float], ...]:
    """`Price.long_prompts`, from keys such as `input_cost_per_token_above_200k_tokens`."""
    steps: dict[int, list[float]] = {}
    for name, value in listed.items():
        found = _LONG_PROMPT_PRICE.fullmatch(name)
        if found and isinstance(value, int | float):
            step = steps.setdefault(int(found[2]) * 1000, [prompt, reply])
            index = 0 if found[1] == "input" else 1
            step[index] = max(step[index], float(value))
    return tuple((above, *prices) for above, prices in sorted(steps.items()))  # type: ignore[misc]  # two prices each


def max_reply_tokens(litellm: ModuleType, model: str) -> int | None:
    """The longest reply that a model can give, in tokens; None: not known."""
    if is_builtin(model) or provider_of(model) in _LOCAL_PROVIDERS:
        return None
    most = _model_info(litellm, model).get("max_output_tokens")
    return most if isinstance(most, int) and most > 0 else None


def cost_of(litellm: ModuleType, model: str, usage: Any) -> float | None:
    """Dollars for a `litellm.Usage`, discounts for cached prompts included; None: no price is known."""
    price = price_of(litellm, model)
    if price is None or price == FREE:
        return None if price is None else 0.0
    prompt_tokens, reply_tokens = usage.prompt_tokens or 0, usage.completion_tokens or 0
    try:
        prompt_usd, reply_usd = litellm.cost_per_token(
            model=model, prompt_tokens=prompt_tokens, completion_tokens=reply_tokens, usage_object=usage
        )
    except Exception:  # it raises whatever a provider's calculation fails with
        return prompt_tokens * price.prompt_usd + reply_tokens * price.reply_usd
    return max(float(prompt_usd + reply_usd), 0.0)


def plausible_usage(
    litellm: ModuleType, model: str, messages: Sequence[Message], written: str, usage: Any, tools: Sequence[Tool] = ()
) -> Any:
    """A `litellm.Usage` with the counts of `usage` that can be true; the others are estimated.

    A count cannot be true if it is missing or negative, or if it is zero although text was sent or written. A built-in
    model is no language model and has no tokens.

    Args:
        litellm: the module.
        model: the model's name.
        messages: the prompt.
        written: all that the model wrote.
        usage: what the provider reported, or None.
        tools: the tools that were offered.
    """
    if is_builtin(model):
        return litellm.Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
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
    """A provider's count of tokens, within 0 and MAX_TOKENS; 0 for anything that is no integer."""
    return min(max(value, 0), MAX_TOKENS) if isinstance(value, int) else 0


def estimate_usage(
    litellm: ModuleType, model: str, messages: Sequence[Message], written: str, tools: Sequence[Tool] = ()
) -> Any:
    """A `litellm.Usage` for a prompt and all that the model wrote (`written`), estimated by LiteLLM's tokenizer."""
    sent = [message.content for message in messages]
    sent += [call.name + call.arguments for message in messages for call in message.tool_calls]
    sent += [f"{tool.name} {tool.description} {json.dumps(tool.parameters)}" for tool in tools]
    prompt = _estimated_tokens(litellm, model, "\n".join(sent)) + _TOKENS_PER_MESSAGE * len(sent)
    reply = _estimated_tokens(litellm, model, written)
    return litellm.Usage(prompt_tokens=prompt, completion_tokens=reply, total_tokens=prompt + reply)


def _estimated_tokens(litellm: ModuleType, model: str, text: str) -> int:
    if len(text) <= MAX_COUNTED_CHARS:
        with contextlib.suppress(Exception):  # a reply must not be lost for the sake of an estimate
            return int(litellm.token_counter(model=model, text=text))
    return -(-len(text) // CHARS_PER_TOKEN)


def _model_info(litellm: ModuleType, model: str) -> dict[str, Any]:
    """LiteLLM's facts about a model; empty if it has none."""
    try:
        return dict(litellm.get_model_info(model))
    except Exception:  # it raises a bare Exception for an unknown model
        return {}
