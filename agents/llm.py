"""Access to every model through LiteLLM, the built-in one included."""

import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from agents.errors import BudgetTooSmall, LLMCancelled, LLMFailed, LLMRefused, ModelUnavailable, PriceUnknown
from agents.litellm_setup import import_litellm, register_provider
from agents.llm_errors import Fault, classify
from agents.parse import MAX_REPLY_CHARS
from agents.ports import LLM, Message, Reply

BUILTIN = "builtin"  # provider of the built-in model, `builtin/compiler`
MIN_REPLY_TOKENS = 1024  # fewer cannot hold a candidate
MAX_WAIT_S = 120.0  # a longer Retry-After is not worth waiting for
POLL_S = 0.1

# Providers that speak the OpenAI protocol at any address; `api_base` is for them, the others have their own.
_COMPATIBLE = frozenset(
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


@dataclass(frozen=True)
class CallLimits:
    """Bounds on one call; `retries` is how often a passing fault (rate limit, server error) is tried again."""

    timeout_s: float = 600.0
    reply_tokens: int = 32_768
    retries: int = 4


def open_llm(
    *,
    builtin: object | None = None,
    api_base: str | None = None,
    limits: CallLimits | None = None,
    secrets: Collection[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> LLM:
    """Models by LiteLLM's names. LiteLLM itself is imported at the first call.

    `builtin` is the handler (a `litellm.CustomLLM`) that answers `builtin/…`. `api_base` sends every model of an
    OpenAI-compatible provider (`openai/…`, `hosted_vllm/…`, a bare name) there. Keys are LiteLLM's affair: it reads
    each provider's own environment variable. `secrets` are values to keep out of error texts besides what looks like a
    key by itself.
    """
    return LiteLLMAccess(builtin, api_base, limits or CallLimits(), secrets, sleep)


class LiteLLMAccess:
    """`agents.ports.LLM` through `litellm.completion`."""

    def __init__(
        self,
        builtin: object | None,
        api_base: str | None,
        limits: CallLimits,
        secrets: Collection[str],
        sleep: Callable[[float], None],
    ) -> None:
        self._builtin = builtin
        self._api_base = api_base
        self._limits = limits
        self._secrets = tuple(secrets)
        self._sleep = sleep

    def complete(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        should_stop: Callable[[], bool],
        max_cost_usd: float | None = None,
    ) -> Reply:
        """As `LLM.complete`.

        Raises:
            ModelUnavailable: no key, a key that is rejected, an unknown model, nobody listening.
            LLMRefused: the model or its provider declined.
            ContextTooLong: the prompt does not fit.
            LLMFailed: the provider failed, and so did the retries.
            LLMCancelled: `should_stop()` held while waiting.
            BudgetTooSmall, PriceUnknown: `max_cost_usd` cannot be kept; nothing was sent.
        """
        litellm = import_litellm()
        own = _is_builtin(model)
        if own and self._builtin is None:
            raise ModelUnavailable(model, "the built-in model is not set up here.", "Choose another model.")
        if own:
            register_provider(litellm, BUILTIN, self._builtin)
        reply_tokens = self._limits.reply_tokens
        if max_cost_usd is not None and not own:
            reply_tokens = affordable_tokens(litellm, model, messages, max_cost_usd, reply_tokens)
        arguments = self._arguments(litellm, model, messages, reply_tokens)
        started = time.monotonic()
        attempts = 0
        while True:
            attempts += 1
            result = self._attempt(litellm, model, arguments, should_stop)
            if isinstance(result, Reply):
                return replace(result, latency_s=time.monotonic() - started, attempts=attempts)
            if result.no_key and "api_base" in arguments and "api_key" not in arguments:
                arguments["api_key"] = "none"  # a server of one's own often wants no key, but the client does
            elif attempts > result.retries or (result.retry_after_s or 0.0) > MAX_WAIT_S:
                raise result.error
            else:
                wait_s = result.retry_after_s
                self._wait(model, _backoff_s(attempts) if wait_s is None else wait_s, should_stop)

    def _arguments(
        self, litellm: ModuleType, model: str, messages: Sequence[Message], reply_tokens: int
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": model,
            "messages": [message.to_json() for message in messages],
            "max_tokens": min(reply_tokens, _most_reply_tokens(litellm, model) or reply_tokens),
            "timeout": self._limits.timeout_s,
            "num_retries": 0,  # retries are counted here, not once more by LiteLLM and again by its client
            "max_retries": 0,
        }
        if self._api_base is not None and ("/" not in model or model.partition("/")[0] in _COMPATIBLE):
            arguments["api_base"] = self._api_base
            if "/" not in model:
                arguments["custom_llm_provider"] = "openai"
        return arguments

    def _attempt(
        self, litellm: ModuleType, model: str, arguments: dict[str, Any], should_stop: Callable[[], bool]
    ) -> Reply | Fault:
        """One try. Raised outside of the `except`, an error of ours drags no exception that may
        hold a key along as its context."""
        own = _is_builtin(model)
        try:
            if own:  # in this thread, so that Ctrl-C reaches its sandbox
                return _read(model, litellm.completion(**arguments))
            return _read(model, self._bounded(model, lambda: litellm.completion(**arguments), should_stop))
        except Exception as error:
            return classify(
                litellm,
                model,
                error,
                retries=0 if own else self._limits.retries,
                api_base=arguments.get("api_base"),
                secrets=self._secrets,
            )

    def _bounded(self, model: str, call: Callable[[], Any], should_stop: Callable[[], bool]) -> Any:
        """`call()` in a thread that is left behind when time is up: a socket's own limit restarts with every byte."""
        results: list[Any] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                results.append(call())
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=work, name=f"llm {model}", daemon=True)
        thread.start()
        deadline = time.monotonic() + self._limits.timeout_s + 1.0  # the client's own limit comes first, if it can
        while thread.is_alive():
            thread.join(POLL_S)
            if should_stop():
                raise LLMCancelled(model, "cancelled while waiting for the reply.")
            if time.monotonic() > deadline:
                raise LLMFailed(model, f"no whole answer within {self._limits.timeout_s:.0f} s.")
        if errors:
            raise errors[0]
        return results[0]

    def _wait(self, model: str, seconds: float, should_stop: Callable[[], bool]) -> None:
        left = seconds
        while left > 0:
            if should_stop():
                raise LLMCancelled(model, "cancelled while waiting to try again.")
            self._sleep(min(left, 1.0))
            left -= 1.0


def affordable_tokens(
    litellm: ModuleType, model: str, messages: Sequence[Message], max_cost_usd: float, reply_tokens: int
) -> int:
    """How many reply tokens, at most `reply_tokens`, the money pays for after the prompt.

    The prompt is taken at one token for two bytes, about twice what code takes, so that the bound holds.

    Raises:
        PriceUnknown: LiteLLM has no price for the model.
        BudgetTooSmall: fewer than MIN_REPLY_TOKENS.
    """
    info = _model_info(litellm, model)
    price_in, price_out = info.get("input_cost_per_token"), info.get("output_cost_per_token")
    if price_in is None or price_out is None:
        raise PriceUnknown(
            model, "LiteLLM knows no price for it, so a budget in dollars cannot be kept.", "Run without."
        )
    prompt_usd = sum(len(message.content.encode()) / 2 + 16 for message in messages) * price_in
    left_usd = max_cost_usd - prompt_usd
    affordable = reply_tokens if price_out == 0 and left_usd >= 0 else int(left_usd / price_out) if price_out else 0
    if affordable < MIN_REPLY_TOKENS:
        raise BudgetTooSmall(model, f"${max(max_cost_usd, 0.0):.4f} left does not pay for the next call.")
    return min(affordable, reply_tokens)


def _is_builtin(model: str) -> bool:
    return model.partition("/")[0] == BUILTIN


def _model_info(litellm: ModuleType, model: str) -> dict[str, Any]:
    """LiteLLM's facts on a model; empty where it has none."""
    try:
        return dict(litellm.get_model_info(model))
    except Exception:  # it raises a bare Exception for an unknown model
        return {}


def _most_reply_tokens(litellm: ModuleType, model: str) -> int | None:
    most = _model_info(litellm, model).get("max_output_tokens")
    return most if isinstance(most, int) and most > 0 else None


def _read(model: str, response: Any) -> Reply:
    """What LiteLLM's response says.

    Raises:
        LLMRefused: the reply was filtered or is a refusal.
    """
    choice = response.choices[0]
    text = choice.message.content or ""
    refusal = (getattr(choice.message, "provider_specific_fields", None) or {}).get("refusal")
    if choice.finish_reason == "content_filter" or (refusal and not text):
        raise LLMRefused(model, f"the model declined to answer. {refusal or ''}".rstrip())
    usage = getattr(response, "usage", None)
    cost = 0.0 if _is_builtin(model) else (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return Reply(
        text=text[:MAX_REPLY_CHARS],
        model=model,
        prompt_tokens=getattr(usage, "prompt_tokens", None) or 0,
        completion_tokens=getattr(usage, "completion_tokens", None) or 0,
        cost_usd=float(cost) if cost is not None else None,
        latency_s=0.0,
        truncated=choice.finish_reason == "length" or len(text) > MAX_REPLY_CHARS,
    )


def _backoff_s(attempts: int) -> float:
    """1, 2, 4 … s with up to a quarter of jitter, so that parallel jobs do not come back all at once."""
    return min(2.0 ** (attempts - 1), 30.0) * random.uniform(1.0, 1.25)  # noqa: S311  # no secret depends on it
