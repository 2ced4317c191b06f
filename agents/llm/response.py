"""Receives a reply through LiteLLM, whole or as a stream and within limits of time, and makes a `Reply` of it."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

from agents.llm.budget import max_prompt_tokens, max_tokens
from agents.llm.error_mapping import provider_text
from agents.llm.models import cost_of, is_builtin, plausible_usage, token_count
from agents.prompting.parse import MAX_REPLY_CHARS
from agents.protocols import (
    BOUND,
    ESTIMATED,
    REPORTED,
    LLMCancelled,
    LLMRefused,
    Message,
    Reply,
    ReplyLost,
    Tool,
    ToolCall,
)
from tasks.text import clean_text

POLL_S = 0.1
USAGE_WITHIN_S = 2.0
"""How long the rest of a stream that is too long is read for its usage. A provider may be paid for what it sends."""

_MAX_CHARS_PER_TOKEN = 16  # far above the average of any tokenizer
_SPARE_CHARS = 64 * 1024

# LiteLLM maps the finish reasons of most providers to `length` and `content_filter`, but not those of every stream.
_TRUNCATED = frozenset({"length", "max_tokens", "model_length", "compaction"})
_FILTERED = frozenset({"content_filter", "content_filtered", "refusal", "safety", "sensitive", "prohibited_content"})

_THINK_BLOCK = re.compile(r"\A\s*<think>(.*?)</think>", re.DOTALL)  # LiteLLM separates it in whole responses only

T = TypeVar("T")


@dataclass
class StreamProgress:
    """What the thread that reads a response and the one that waits for it tell each other.

    Attributes:
        accepted: the provider took the request; a failure from here on may be billed.
        events: how many events of the stream have come.
        last_event_s: `time.monotonic()` of the latest event.
        has_content: a piece of the reply has come.
        abandoned: whether the caller has stopped waiting for the response.
    """

    accepted: bool = False
    events: int = 0
    last_event_s: float = 0.0
    has_content: bool = False
    abandoned: bool = False

    def count_event(self) -> None:
        """Note that an event of the stream has come."""
        self.accepted = True
        self.events += 1
        self.last_event_s = time.monotonic()


@dataclass
class Response:
    """What a provider sent.

    Attributes:
        finish: the finish reason; None: the stream ended without one, so the reply may not be whole.
        usage: LiteLLM's usage, or None.
        reasoning_tokens: the provider's own count, or None.
        streamed: whether it came as a stream.
        cut: whether the stream was too long, so that the rest of it was dropped.
        has_sent_usage: whether `usage` is the provider's and no estimate of LiteLLM's; of a whole response LiteLLM does
            not tell.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Any = None
    reasoning_tokens: int | None = None
    streamed: bool = False
    cut: bool = False
    has_sent_usage: bool = True

    @property
    def written(self) -> str:
        """All that the model wrote, for counting."""
        calls = (call.name + call.arguments for call in self.tool_calls)
        return "".join((self.reasoning, self.text, self.refusal, *calls))


def reply_from(
    litellm: ModuleType,
    model: str,
    messages: Sequence[Message],
    response: Response,
    secrets: Collection[str],
    tools: Sequence[Tool],
    reply_tokens: int,
) -> Reply:
    """The reply that a response holds, with its tokens and cost. Its latency is 0 and its attempts are 1.

    A response that was cut and whose usage is not known counts what it can have cost: the tokens that were asked for,
    or those of what was read if that can be more.

    Args:
        litellm: the module.
        model: the model's name.
        messages: the prompt.
        response: what the provider sent.
        secrets: values to keep out of error texts.
        tools: the tools that were offered.
        reply_tokens: the most reply tokens that were asked for.

    Raises:
        ReplyLost: the stream ended before the reply was whole.
        LLMRefused: the model declined, or its provider filtered the reply.
    """
    if response.finish is None:
        raise ReplyLost(model, "the stream ended before the reply was whole.")
    finish = response.finish.lower()
    text, reasoning = response.text, response.reasoning
    if finish in _FILTERED or (response.refusal and not text):
        raise LLMRefused(model, f"the model declined to answer. {provider_text(response.refusal, secrets)}".rstrip())
    think = None if reasoning else _THINK_BLOCK.match(text)
    if think is not None:
        text, reasoning = text[think.end() :], think[1]
    text, reasoning = clean_text(text), clean_text(reasoning)
    usage = plausible_usage(litellm, model, messages, response.written, response.usage, tools)
    believed = response.has_sent_usage and usage is response.usage
    origin = REPORTED if believed or is_builtin(model) else ESTIMATED
    if response.cut and origin is ESTIMATED:
        prompt, most = max_prompt_tokens(messages, tools), max(reply_tokens, max_tokens(response.written))
        usage = litellm.Usage(prompt_tokens=prompt, completion_tokens=most, total_tokens=prompt + most)
        origin = BOUND
    return Reply(
        text=text[:MAX_REPLY_CHARS],
        model=model,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost_usd=cost_of(litellm, model, usage),
        latency_s=0.0,
        truncated=finish in _TRUNCATED or len(text) > MAX_REPLY_CHARS,
        reasoning=reasoning[:MAX_REPLY_CHARS],
        reasoning_tokens=response.reasoning_tokens,
        tool_calls=tuple(call.cleaned() for call in response.tool_calls),
        usage=origin,
    )


def read_whole(completion: Any) -> Response:
    """The response in a completion of LiteLLM that is no stream."""
    choice = completion.choices[0]
    message = choice.message
    calls = tuple(
        ToolCall(call.id or f"call_{number}", call.function.name or "", call.function.arguments or "")
        for number, call in enumerate(getattr(message, "tool_calls", None) or ())
        if getattr(call, "function", None) is not None
    )
    usage = getattr(completion, "usage", None)
    return Response(
        text=message.content or "",
        reasoning=getattr(message, "reasoning_content", None) or "",
        refusal=(getattr(message, "provider_specific_fields", None) or {}).get("refusal") or "",
        finish=choice.finish_reason or "stop",
        tool_calls=calls,
        usage=usage,
        reasoning_tokens=_reasoning_tokens(usage),
    )


def read_unstreamed(litellm: ModuleType, stream: Any) -> Response | None:
    """The whole response of a server that was asked for a stream and sent none; None: it is a stream.

    Only the OpenAI client shows what the server sent. With other clients such a response is a stream without events.

    Raises:
        ValueError: the server sent JSON that is no completion.
    """
    response = getattr(stream.completion_stream, "response", None)
    headers = getattr(response, "headers", None)
    if response is None or headers is None or not str(headers.get("content-type", "")).startswith("application/json"):
        return None
    value = json.loads(response.read())
    if not isinstance(value, dict) or not value.get("choices"):
        raise ValueError("a JSON value without choices")
    return read_whole(litellm.ModelResponse(**value))


def max_stream_chars(reply_tokens: int) -> int:
    """How many characters of a stream are read if at most `reply_tokens` were asked for."""
    return min(MAX_REPLY_CHARS, _MAX_CHARS_PER_TOKEN * reply_tokens + _SPARE_CHARS)


def read_stream(stream: Any, progress: StreamProgress, max_chars: int = MAX_REPLY_CHARS) -> Response:
    """Read a stream of LiteLLM (`CustomStreamWrapper`) to its end.

    Of a stream with more than `max_chars` characters the rest is dropped, and the finish reason is `length`. The rest
    is looked through for the usage, which comes last, for `USAGE_WITHIN_S`. Else the finish reason is the one that the
    provider gave: LiteLLM also gives `stop` for a stream that only ended early.

    Raises:
        Exception: whatever LiteLLM raises while the reply is not finished.
    """
    stream.send_stream_usage = True  # LiteLLM then adds the usage up at the end, or estimates it if none was sent
    parts = _StreamedParts()
    source: Any = stream.completion_stream
    counts_source_events = hasattr(source, "__next__")
    if counts_source_events:
        stream.completion_stream = _watched(source, progress, parts)
    late_usage: Any = None
    finished_size: int | None = None  # of the parts when the finish reason came
    try:
        for chunk in stream:
            if not counts_source_events:
                progress.count_event()
            parts.add(chunk)
            progress.has_content = progress.has_content or parts.size > 0
            if finished_size is None and _finish_reason(stream) is not None:
                finished_size = parts.size
            if progress.abandoned:
                break
            if parts.size > max_chars:
                late_usage = _last_usage(source, progress) if counts_source_events else None
                break
    except Exception:
        if finished_size != parts.size:
            raise
        # The reply is whole and only its usage is missing, which can be estimated.
    finally:
        opened: list[Any] = [source, stream.completion_stream]
        for each in opened:
            with contextlib.suppress(Exception):  # not every provider's stream has a close
                each.close()
    response = parts.joined()
    response.streamed = True
    response.cut = parts.size > max_chars
    response.finish = "length" if response.cut else _finish_reason(stream)
    # The usage as the provider sent it. LiteLLM's sum adds guesses, and may be missing if the stream failed late.
    sent = [usage for chunk in reversed(stream.chunks) if (usage := getattr(chunk, "usage", None)) is not None]
    response.has_sent_usage = late_usage is not None or bool(sent)
    response.usage = late_usage if response.cut else response.usage or next(iter(sent), None)
    response.reasoning_tokens = next((count for count in map(_reasoning_tokens, sent) if count is not None), None)
    return response


def run_with_limits(
    model: str,
    work: Callable[[], T],
    progress: StreamProgress,
    *,
    timeout_s: float,
    idle_s: float,
    should_stop: Callable[[], bool],
) -> T:
    """The result of `work()`, which runs in a thread of its own and is abandoned at a limit.

    A thread is needed because a socket's own time limit restarts with every byte.

    Args:
        model: for error texts.
        work: reads a response and keeps `progress` up to date.
        progress: shared with `work`.
        timeout_s: limit on the whole call.
        idle_s: limit on the time between two events once a piece of the reply has come; a model may think in silence
            before that.
        should_stop: cancels the call.

    Raises:
        ReplyLost: a limit was reached.
        LLMCancelled: `should_stop()` held.
        Exception: whatever `work` raises.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"llm {model}", daemon=True)
    deadline = time.monotonic() + timeout_s
    thread.start()
    try:
        while True:
            thread.join(POLL_S)
            if not thread.is_alive():
                break  # before the limits: a reply that has arrived is used
            if should_stop():
                raise LLMCancelled(model, "cancelled while waiting for the reply.")
            now = time.monotonic()
            if now > deadline:
                raise ReplyLost(model, f"no whole answer within {timeout_s:.0f} s.")
            if progress.has_content and now - progress.last_event_s > idle_s:
                raise ReplyLost(model, f"nothing came for {idle_s:.0f} s in the middle of the reply.")
    finally:
        progress.abandoned = True
    if errors:
        raise errors[0]
    return results[0]


@dataclass
class _StreamedParts:
    """The pieces of a streamed reply in the order in which they came; `size` counts their characters."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: list["_StreamedCall"] = field(default_factory=list)
    usage: Any = None
    size: int = 0

    def add(self, chunk: Any) -> None:
        self.usage = getattr(chunk, "usage", None) or self.usage
        for choice in getattr(chunk, "choices", None) or ():
            self._append(self.text, getattr(choice.delta, "content", None))
            self._append(self.reasoning, getattr(choice.delta, "reasoning_content", None))
            for fragment in getattr(choice.delta, "tool_calls", None) or ():
                self._add_call(fragment)

    def add_refusal(self, event: Any) -> None:
        """Add the refusal in an event of the provider. LiteLLM turns it into an empty piece."""
        for choice in getattr(event, "choices", None) or ():
            self._append(self.refusal, getattr(getattr(choice, "delta", None), "refusal", None))

    def joined(self) -> Response:
        calls = tuple(
            ToolCall(call.id or f"call_{number}", call.name, "".join(call.arguments))
            for number, call in enumerate(self.calls)
        )
        return Response(
            "".join(self.text), "".join(self.reasoning), "".join(self.refusal), tool_calls=calls, usage=self.usage
        )

    def _append(self, pieces: list[str], piece: object) -> None:
        if isinstance(piece, str) and piece:
            pieces.append(piece)
            self.size += len(piece)

    def _add_call(self, fragment: Any) -> None:
        function = getattr(fragment, "function", None)
        if function is None:
            return
        index = getattr(fragment, "index", 0) or 0
        call = next((call for call in reversed(self.calls) if call.index == index), None)
        if call is None or (fragment.id and call.id and fragment.id != call.id and function.name):
            call = _StreamedCall(index)  # some providers give every call the index 0
            self.calls.append(call)
        call.id = call.id or fragment.id or ""
        call.name = call.name or function.name or ""
        self._append(call.arguments, function.arguments)
        self.size += 1 + len(fragment.id or "") + len(function.name or "")


@dataclass
class _StreamedCall:
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


def _watched(source: Iterator[Any], progress: StreamProgress, parts: _StreamedParts) -> Iterator[Any]:
    """The provider's events, counted as they pass: LiteLLM hands on only some of them."""
    for event in source:
        progress.count_event()
        parts.add_refusal(event)
        yield event


def _last_usage(source: Iterator[Any], progress: StreamProgress) -> Any:
    """The usage that the rest of a stream ends with, if it ends within `USAGE_WITHIN_S`; else None.

    Of a stream that breaks off the last usage is not the final one: some providers send it as it grows.

    Its events are read in another thread, which the caller ends by closing the stream: the next one may never come.
    """
    found: list[Any] = []
    ended = threading.Event()

    def read() -> None:
        with contextlib.suppress(Exception):  # it was closed, or broke; both end the thread
            for event in source:
                progress.count_event()
                if (usage := getattr(event, "usage", None)) is not None:
                    found.append(usage)
            ended.set()

    thread = threading.Thread(target=read, name="rest of a reply", daemon=True)
    thread.start()
    thread.join(USAGE_WITHIN_S)
    return found[-1] if found and ended.is_set() else None


def _finish_reason(stream: Any) -> str | None:
    """The finish reason that the provider gave; None: the stream has none so far."""
    return stream.received_finish_reason or stream.intermittent_finish_reason or None


def _reasoning_tokens(usage: Any) -> int | None:
    count = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None)
    return token_count(count) if isinstance(count, int) else None
