"""The client of all models: `manual/DIR` through files, all others (the built-in one too) through LiteLLM."""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from agents.llm.error_mapping import Fault, ResponseMode, classify_error, redact
from agents.llm.models import (
    BUILTIN,
    MANUAL,
    OPENAI_COMPATIBLE,
    import_litellm,
    is_builtin,
    max_reply_tokens,
    price_of,
    provider_of,
    register_provider,
)
from agents.llm.response import (
    Response,
    StreamProgress,
    max_stream_chars,
    read_stream,
    read_unstreamed,
    read_whole,
    reply_from,
    run_with_limits,
)
from agents.protocols import (
    FREE,
    LLM,
    LLMCancelled,
    LLMFailed,
    Message,
    ModelUnavailable,
    Price,
    Reply,
    ReplyLost,
    Tool,
    ignore_fault,
)
from tasks.text import clean_text

MAX_RETRY_AFTER_S = 120.0  # a request with a longer wait is given up
CONNECT_TIMEOUT_S = 20.0

# LiteLLM gives every event of their streams the finish reason `stop`, so a stream that ends early looks whole.
_NO_STREAMS = frozenset({"gemini", "vertex_ai", "vertex_ai_beta"})


@dataclass(frozen=True)
class CallLimits:
    """Limits on one call.

    Attributes:
        timeout_s: on the whole call.
        idle_s: on the time between two pieces of a reply. It does not apply before the first one, because models think
            in silence.
        reply_tokens: the most reply tokens that are asked for.
        retries: how often a fault that costs nothing is tried again.
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
    """A client for models by LiteLLM's names. LiteLLM itself is imported at the first call.

    Args:
        builtin: the handler (a `litellm.CustomLLM`) that answers `builtin/…`.
        api_base: the address for models of OpenAI-compatible providers (`openai/…`, `hosted_vllm/…`, a bare name).
        keys: API keys by provider. Without one, LiteLLM reads the provider's own environment variable.
        limits: limits on each call.
        secrets: values to keep out of error texts, besides `keys` and whatever looks like a key.
        sleep: waits so many seconds.
    """
    return LiteLLMClient(builtin, api_base, dict(keys or {}), limits or CallLimits(), secrets, sleep)


class ModelRouter:
    """An `agents.protocols.LLM` that sends calls of `manual/DIR` to one client and all others to another."""

    def __init__(self, others: LLM, manual: LLM) -> None:
        self._others = others
        self._manual = manual

    def complete(
        self, model: str, messages: Sequence[Message], *, should_stop: Callable[[], bool], **options: Any
    ) -> Reply:
        """The reply of the model's client."""
        return self._client_of(model).complete(model, messages, should_stop=should_stop, **options)

    def price(self, model: str) -> Price | None:
        """The price by the model's client."""
        return self._client_of(model).price(model)

    def reply_limit(self, model: str) -> int:
        """The limit by the model's client."""
        return self._client_of(model).reply_limit(model)

    def _client_of(self, model: str) -> LLM:
        return self._manual if provider_of(model) == MANUAL else self._others


class LiteLLMClient:
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
        self._modes: dict[str, ResponseMode] = {}  # of models whose server rejected the first mode

    def price(self, model: str) -> Price | None:
        """The price by LiteLLM's list."""
        return FREE if is_builtin(model) else price_of(import_litellm(), model)

    def reply_limit(self, model: str) -> int:
        """`CallLimits.reply_tokens`, or the model's own limit by LiteLLM's list if that is lower."""
        if is_builtin(model):
            return self._limits.reply_tokens
        most = max_reply_tokens(import_litellm(), model)
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
            ModelUnavailable: no key, a rejected key, an unknown model, or no connection.
            LLMRefused: the model or its provider declined.
            ContextTooLong: the prompt does not fit.
            ReplyLost: the reply did not arrive whole; it may have been billed.
            LLMFailed: the provider failed, and so did the retries.
            LLMCancelled: `should_stop()` held; `sent` tells whether a request was under way.
        """
        litellm = import_litellm()
        if is_builtin(model):
            if self._builtin is None:
                raise ModelUnavailable(model, "the built-in model is not set up here.", "Choose another model.")
            register_provider(litellm, BUILTIN, self._builtin)

        def report(line: str) -> None:
            on_fault(redact(" ".join(line.split()), self._secrets))

        arguments = self._arguments(model, messages, reply_tokens, tools)
        started = time.monotonic()
        attempts = failures = 0
        reduced = False
        while True:
            if should_stop():
                raise LLMCancelled(model, "cancelled before it was asked.", sent=False)
            attempts += 1
            mode = self._modes.get(model, _first_mode(model))
            result = self._attempt(litellm, model, messages, tools, arguments, mode, should_stop)
            if isinstance(result, Reply):
                return replace(result, latency_s=time.monotonic() - started, attempts=attempts)
            if result.no_key and "api_base" in arguments and "api_key" not in arguments:
                arguments["api_key"] = "none"  # local servers often need no key, but the client demands one
                attempts -= 1  # nothing was sent
                continue
            if not reduced and result.fitting_tokens is not None and result.fitting_tokens < arguments["max_tokens"]:
                reduced = True  # once only: a server may report a smaller context each time
                arguments["max_tokens"] = result.fitting_tokens
                report(f"{result.error} Asking again at once for {result.fitting_tokens} reply tokens.")
                continue
            if result.mode is not None and result.mode > mode:
                self._modes[model] = result.mode
                if not isinstance(result.error, ReplyLost):
                    report(f"{result.error} Asking again at once in a simpler way.")
                    continue
            failures += 1
            if failures > result.retries or (result.retry_after_s or 0.0) > MAX_RETRY_AFTER_S:
                raise result.error
            wait_s = _backoff_s(failures) if result.retry_after_s is None else result.retry_after_s
            report(f"{result.error} Trying again in {wait_s:.0f} s ({failures} of {result.retries}).")
            self._wait(model, wait_s, should_stop)

    def _arguments(
        self, model: str, messages: Sequence[Message], reply_tokens: int | None, tools: Sequence[Tool]
    ) -> dict[str, Any]:
        limit = self.reply_limit(model)
        arguments: dict[str, Any] = {
            "model": model,
            "messages": [replace(message, content=clean_text(message.content)).to_json() for message in messages],
            "max_tokens": limit if reply_tokens is None else min(reply_tokens, limit),
            "num_retries": 0,  # this class retries; LiteLLM and its client must not
            "max_retries": 0,
        }
        if is_builtin(model):
            return arguments
        from openai import Timeout  # LiteLLM has imported it

        # A little longer than `run_with_limits` waits: this limit only ends the thread that it abandoned.
        arguments["timeout"] = Timeout(self._limits.timeout_s + 5.0, connect=CONNECT_TIMEOUT_S)
        if key := self._keys.get(provider_of(model)):
            arguments["api_key"] = key
        if tools:
            arguments["tools"] = [tool.to_json() for tool in tools]
        if self._api_base is not None and provider_of(model) in OPENAI_COMPATIBLE:
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
        mode: ResponseMode,
        should_stop: Callable[[], bool],
    ) -> Reply | Fault:
        """One request: its reply, or what went wrong.

        The caller raises the fault's error outside of an `except` block. It then has no context, so no exception that
        may hold a key.
        """
        progress = StreamProgress()
        try:
            if is_builtin(model):  # in this thread, so that Ctrl-C reaches its sandbox
                response: Response | None = read_whole(litellm.completion(**arguments))
            else:
                response = run_with_limits(
                    model,
                    lambda: _request(litellm, {**arguments, **_mode_arguments(mode)}, progress),
                    progress,
                    timeout_s=self._limits.timeout_s,
                    idle_s=self._limits.idle_s,
                    should_stop=should_stop,
                )
            if response is None:
                next_mode = ResponseMode(mode + 1) if mode is not ResponseMode.WHOLE else None
                return Fault(LLMFailed(model, "the provider rejected the request (422)."), mode=next_mode)
            if not response.streamed:
                self._modes[model] = ResponseMode.WHOLE  # its server does not stream
            elif not response.written and (response.finish is None or progress.events <= 1):
                # This may be a whole response, which LiteLLM reads as a stream of one empty event.
                self._modes[model] = ResponseMode.WHOLE
                raise ReplyLost(model, "the stream held no reply.")
            return reply_from(litellm, model, messages, response, self._secrets, tools, arguments["max_tokens"])
        except Exception as error:
            fault = classify_error(
                litellm,
                model,
                error,
                retries=0 if is_builtin(model) else self._limits.retries,
                sending=not progress.accepted,
                api_base=arguments.get("api_base"),
                secrets=self._secrets,
            )
        tried_again = fault.retries or fault.mode is not None or fault.fitting_tokens is not None
        if progress.accepted and tried_again and not isinstance(fault.error, ReplyLost):
            return Fault(ReplyLost(model, fault.error.problem))
        if is_builtin(model) and isinstance(fault.error, ReplyLost):
            return Fault(LLMFailed(model, fault.error.problem))  # it cost nothing, and would fail again
        return fault

    def _wait(self, model: str, seconds: float, should_stop: Callable[[], bool]) -> None:
        left = seconds
        while left > 0:
            if should_stop():
                raise LLMCancelled(model, "cancelled while waiting to try again.", sent=False)
            self._sleep(min(left, 1.0))
            left -= 1.0


def _request(litellm: ModuleType, arguments: dict[str, Any], progress: StreamProgress) -> Response | None:
    """Send a request and read its response; None: it was rejected with status 422, for which LiteLLM raises nothing."""
    completion = litellm.completion(**arguments)
    if completion is None:
        return None
    if hasattr(completion, "completion_stream"):
        progress.accepted = completion.completion_stream is not None  # None: it is opened at the first read
        max_chars = max_stream_chars(arguments["max_tokens"])
        return read_unstreamed(litellm, completion) or read_stream(completion, progress, max_chars)
    progress.accepted = True
    return read_whole(completion)


def _first_mode(model: str) -> ResponseMode:
    return ResponseMode.WHOLE if provider_of(model) in _NO_STREAMS else ResponseMode.STREAM_WITH_USAGE


def _mode_arguments(mode: ResponseMode) -> dict[str, Any]:
    match mode:
        case ResponseMode.STREAM_WITH_USAGE:
            return {"stream": True, "stream_options": {"include_usage": True}}
        case ResponseMode.STREAM:
            return {"stream": True}
        case ResponseMode.WHOLE:
            return {}


def _backoff_s(failures: int) -> float:
    """`min(2 ** (failures - 1), 30)` seconds, plus up to 25 % so that parallel jobs retry at different times."""
    return min(2.0 ** (failures - 1), 30.0) * random.uniform(1.0, 1.25)  # noqa: S311  # no secret depends on it
