"""Access to every model through LiteLLM, the built-in one included."""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from agents.errors import LLMCancelled, LLMFailed, ModelUnavailable, ReplyLost
from agents.llm.error_mapping import Fault, Shape, classify
from agents.llm.litellm_import import import_litellm, register_provider
from agents.llm.names import BUILTIN, is_builtin, provider_of
from agents.llm.pricing import most_reply_tokens, price_of
from agents.llm.redact import scrub
from agents.llm.reply import reply_of
from agents.llm.stream import Hearing, Received, most_chars, read_response, read_stream, read_unasked, wait_for
from agents.protocols import FREE, LLM, Message, Price, Reply, Tool, ignore_fault
from tasks.text import clean_text

MAX_WAIT_S = 120.0  # a longer Retry-After is not worth waiting for
CONNECT_S = 20.0

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


# LiteLLM gives each event of their streams the finish reason `stop`, so that an early end could not be told.
_ENDLESS_STREAMS = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})


@dataclass(frozen=True)
class CallLimits:
    """Bounds on one call.

    `idle_s` is the longest silence in the middle of a reply; before its first piece only `timeout_s`, the limit on the
    whole, holds, because models think in silence. `retries` is how often a fault that costs nothing is tried again.
    """

    timeout_s: float = 600.0
    idle_s: float = 120.0
    reply_tokens: int = 32_768
    retries: int = 4


def open_llm(
    *,
    builtin: object | None = None,
    api_base: str | None = None,
    keys: Mapping[str, str] | None = None,
    limits: CallLimits | None = None,
    secrets: Collection[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> LLM:
    """Models by LiteLLM's names. LiteLLM itself is imported at the first call.

    `builtin` is the handler (a `litellm.CustomLLM`) that answers `builtin/…`. `api_base` sends every model of an
    OpenAI-compatible provider (`openai/…`, `hosted_vllm/…`, a bare name) there. `keys` are by
    provider; for those without one LiteLLM reads the provider's own environment variable. `secrets` are values to keep
    out of error texts besides these keys and what looks like one by itself.
    """
    return LiteLLMAccess(builtin, api_base, dict(keys or {}), limits or CallLimits(), secrets, sleep)


class LiteLLMAccess:
    """`agents.protocols.LLM` through `litellm.completion`."""

    def __init__(
        self,
        builtin: object | None,
        api_base: str | None,
        keys: Mapping[str, str],
        limits: CallLimits,
        secrets: Collection[str],
        sleep: Callable[[float], None],
    ) -> None:
        self._builtin = builtin
        self._api_base = api_base
        self._limits = limits
        self._keys = keys
        self._secrets = (*secrets, *keys.values())
        self._sleep = sleep
        self._shapes: dict[str, Shape] = {}  # by model, once its server has rejected the first one

    def price(self, model: str) -> Price | None:
        """As `LLM.price`."""
        return FREE if is_builtin(model) else price_of(import_litellm(), model)

    def reply_limit(self, model: str) -> int:
        """As `LLM.reply_limit`."""
        if is_builtin(model):
            return self._limits.reply_tokens
        most = most_reply_tokens(import_litellm(), model)
        return min(self._limits.reply_tokens, most or self._limits.reply_tokens)

    def complete(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        should_stop: Callable[[], bool],
        reply_tokens: int | None = None,
        tools: Sequence[Tool] = (),
        on_fault: Callable[[str], None] = ignore_fault,
    ) -> Reply:
        """As `LLM.complete`.

        Raises:
            ModelUnavailable: no key, a key that is rejected, an unknown model, nobody listening.
            LLMRefused: the model or its provider declined.
            ContextTooLong: the prompt does not fit.
            ReplyLost: the reply did not arrive whole; it may have been paid for.
            LLMFailed: the provider failed, and so did the retries.
            LLMCancelled: `should_stop()` held before, between or while waiting (`sent`).
        """
        litellm = import_litellm()
        if is_builtin(model):
            if self._builtin is None:
                raise ModelUnavailable(model, "the built-in model is not set up here.", "Choose another model.")
            register_provider(litellm, BUILTIN, self._builtin)
        arguments = self._arguments(model, messages, reply_tokens, tools)
        started = time.monotonic()
        attempts = failures = 0
        shortened = False
        while True:
            if should_stop():
                raise LLMCancelled(model, "cancelled before it was asked.", sent=False)
            attempts += 1
            shape = self._shapes.get(model, _first_shape(model))
            result = self._attempt(litellm, model, messages, tools, arguments, shape, should_stop)
            if isinstance(result, Reply):
                return replace(result, latency_s=time.monotonic() - started, attempts=attempts)
            if result.no_key and "api_base" in arguments and "api_key" not in arguments:
                arguments["api_key"] = "none"  # a server of one's own often wants no key, but the client does
                attempts -= 1  # nothing was sent
                continue
            if not shortened and result.fitting_tokens is not None and result.fitting_tokens < arguments["max_tokens"]:
                shortened = True  # once: a server may name a smaller context each time
                arguments["max_tokens"] = result.fitting_tokens
                self._tell(on_fault, f"{result.error} Asking again at once for {result.fitting_tokens} reply tokens.")
                continue
            if result.shape is not None and result.shape > shape:
                self._shapes[model] = result.shape
                if not isinstance(result.error, ReplyLost):
                    self._tell(on_fault, f"{result.error} Asking again at once in a simpler way.")
                    continue
            failures += 1
            if failures > result.retries or (result.retry_after_s or 0.0) > MAX_WAIT_S:
                raise result.error
            wait_s = _backoff_s(failures) if result.retry_after_s is None else result.retry_after_s
            self._tell(on_fault, f"{result.error} Trying again in {wait_s:.0f} s ({failures} of {result.retries}).")
            self._wait(model, wait_s, should_stop)

    def _arguments(
        self, model: str, messages: Sequence[Message], reply_tokens: int | None, tools: Sequence[Tool]
    ) -> dict[str, Any]:
        limit = self.reply_limit(model)
        arguments: dict[str, Any] = {
            "model": model,
            "messages": [replace(message, content=clean_text(message.content)).to_json() for message in messages],
            "max_tokens": limit if reply_tokens is None else min(reply_tokens, limit),
            "num_retries": 0,  # retries are counted here, not once more by LiteLLM and again by its client
            "max_retries": 0,
        }
        if is_builtin(model):
            return arguments
        from openai import Timeout  # LiteLLM has imported it

        # Whoever waits gives up first; the client's own limit then ends the thread that is left behind.
        arguments["timeout"] = Timeout(self._limits.timeout_s + 5.0, connect=CONNECT_S)
        if key := self._keys.get(provider_of(model)):
            arguments["api_key"] = key
        if tools:
            arguments["tools"] = [_tool_json(tool) for tool in tools]
        if self._api_base is not None and provider_of(model) in _COMPATIBLE:
            arguments["api_base"] = self._api_base
            if "/" not in model:
                arguments["custom_llm_provider"] = "openai"
        return arguments

    def _attempt(
        self,
        litellm: ModuleType,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        arguments: dict[str, Any],
        shape: Shape,
        should_stop: Callable[[], bool],
    ) -> Reply | Fault:
        """One try. Raised outside of the `except`, an error of ours drags no exception that may
        hold a key along as its context."""
        hearing = Hearing()
        try:
            if is_builtin(model):  # in this thread, so that Ctrl-C reaches its sandbox
                received: Received | None = read_response(litellm.completion(**arguments))
            else:
                received = wait_for(
                    model,
                    lambda: _receive(litellm, {**arguments, **_shape_arguments(shape)}, hearing),
                    hearing,
                    timeout_s=self._limits.timeout_s,
                    idle_s=self._limits.idle_s,
                    should_stop=should_stop,
                )
            if received is None:
                simpler = Shape(shape + 1) if shape is not Shape.WHOLE else None
                return Fault(LLMFailed(model, "the provider rejected the request (422)."), shape=simpler)
            if not received.streamed:
                self._shapes[model] = Shape.WHOLE  # its server knows no streams
            elif not received.written and (received.finish is None or hearing.events <= 1):
                # Perhaps a whole response, which LiteLLM takes for one empty event.
                self._shapes[model] = Shape.WHOLE
                raise ReplyLost(model, "the stream held no reply.")
            return reply_of(litellm, model, messages, received, self._secrets, tools)
        except Exception as error:
            fault = classify(
                litellm,
                model,
                error,
                retries=0 if is_builtin(model) else self._limits.retries,
                sending=not hearing.answered,
                api_base=arguments.get("api_base"),
                secrets=self._secrets,
            )
        asked_again = fault.retries or fault.shape is not None or fault.fitting_tokens is not None
        if hearing.answered and asked_again and not isinstance(fault.error, ReplyLost):
            return Fault(ReplyLost(model, fault.error.problem))
        if is_builtin(model) and isinstance(fault.error, ReplyLost):
            return Fault(LLMFailed(model, fault.error.problem))  # it costs nothing, and would fail again
        return fault

    def _tell(self, on_fault: Callable[[str], None], line: str) -> None:
        on_fault(scrub(" ".join(line.split()), self._secrets))

    def _wait(self, model: str, seconds: float, should_stop: Callable[[], bool]) -> None:
        left = seconds
        while left > 0:
            if should_stop():
                raise LLMCancelled(model, "cancelled while waiting to try again.", sent=False)
            self._sleep(min(left, 1.0))
            left -= 1.0


def _receive(litellm: ModuleType, arguments: dict[str, Any], hearing: Hearing) -> Received | None:
    """Ask and read the answer; None where LiteLLM hides that the request was rejected with status 422."""
    response = litellm.completion(**arguments)
    if response is None:
        return None
    if hasattr(response, "completion_stream"):
        hearing.answered = response.completion_stream is not None  # else it is only opened at the first read
        most = most_chars(arguments["max_tokens"])
        return read_unasked(litellm, response) or read_stream(response, hearing, most)
    hearing.answered = True
    return read_response(response)


def _first_shape(model: str) -> Shape:
    return Shape.WHOLE if provider_of(model) in _ENDLESS_STREAMS else Shape.FULL


def _shape_arguments(shape: Shape) -> dict[str, Any]:
    if shape is Shape.WHOLE:
        return {}
    return {"stream": True} | ({"stream_options": {"include_usage": True}} if shape is Shape.FULL else {})


def _tool_json(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def _backoff_s(failures: int) -> float:
    """1, 2, 4 … s with up to a quarter of jitter, so that parallel jobs do not come back all at once."""
    return min(2.0 ** (failures - 1), 30.0) * random.uniform(1.0, 1.25)  # noqa: S311  # no secret depends on it
