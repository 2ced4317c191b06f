"""Receiving a reply through LiteLLM: whole, or as a stream that is put together here, within limits of time."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeVar

from agents.errors import LLMCancelled, ReplyLost
from agents.llm.pricing import token_count
from agents.prompting.parse import MAX_REPLY_CHARS
from agents.protocols import ToolCall

POLL_S = 0.1
_CHARS_A_TOKEN = 16  # far more than any tokenizer's average
_SPARE_CHARS = 64 * 1024

T = TypeVar("T")


@dataclass
class Hearing:
    """What the thread that reads an answer and the one that waits for it tell each other."""

    answered: bool = False  # the provider took the request; what fails from here on may have been paid for
    events: int = 0  # of the stream, as they come from the provider
    last_s: float = 0.0  # time.monotonic() of the latest event
    writing: bool = False  # a piece of the reply is there
    given_up: bool = False  # nobody waits any more

    def note(self) -> None:
        """An event has come."""
        self.answered = True
        self.events += 1
        self.last_s = time.monotonic()


@dataclass
class Received:
    """What came. `finish` None: the stream ended without saying that the reply is whole. `usage`: LiteLLM's, or None.

    `counted_reasoning` is the provider's own count of reasoning tokens, None where it gave none.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Any = None
    counted_reasoning: int | None = None
    streamed: bool = False

    @property
    def written(self) -> str:
        """All that the model wrote, for counting."""
        calls = (call.name + call.arguments for call in self.tool_calls)
        return "".join((self.reasoning, self.text, self.refusal, *calls))


def read_response(response: Any) -> Received:
    """What a whole response of LiteLLM's holds."""
    choice = response.choices[0]
    message = choice.message
    calls = tuple(
        ToolCall(call.id or f"call_{number}", call.function.name or "", call.function.arguments or "")
        for number, call in enumerate(getattr(message, "tool_calls", None) or ())
        if getattr(call, "function", None) is not None
    )
    usage = getattr(response, "usage", None)
    return Received(
        text=message.content or "",
        reasoning=getattr(message, "reasoning_content", None) or "",
        refusal=(getattr(message, "provider_specific_fields", None) or {}).get("refusal") or "",
        finish=choice.finish_reason or "stop",
        tool_calls=calls,
        usage=usage,
        counted_reasoning=_counted_reasoning(usage),
    )


def read_unasked(litellm: ModuleType, stream: Any) -> Received | None:
    """The whole response that a server sent though it was asked for a stream, None if it is a stream.

    Only the OpenAI client shows what came; with others such a response is a stream without events.

    Raises:
        ValueError: it is no response.
    """
    response = getattr(stream.completion_stream, "response", None)
    headers = getattr(response, "headers", None)
    if response is None or headers is None or not str(headers.get("content-type", "")).startswith("application/json"):
        return None
    value = json.loads(response.read())
    if not isinstance(value, dict) or not value.get("choices"):
        raise ValueError("a JSON value without choices")
    return read_response(litellm.ModelResponse(**value))


def most_chars(reply_tokens: int) -> int:
    """The characters after which a stream that was asked for at most so many tokens is no longer read."""
    return min(MAX_REPLY_CHARS, _CHARS_A_TOKEN * reply_tokens + _SPARE_CHARS)


def read_stream(stream: Any, hearing: Hearing, most: int = MAX_REPLY_CHARS) -> Received:
    """Read a stream of LiteLLM's (`CustomStreamWrapper`) to its end and put the pieces together.

    Of a stream of more than `most` characters the rest is not read, and what was is a reply that was cut off.

    At the end LiteLLM says `stop` also of a stream that only ended early, so the reason counts that the provider gave.
    """
    stream.send_stream_usage = True  # have LiteLLM add up the usage at the end, or estimate it where none was sent
    pieces = _Pieces()
    source: Any = stream.completion_stream
    listening = hasattr(source, "__next__")
    if listening:
        stream.completion_stream = _listened(source, hearing, pieces)
    finished: int | None = None  # how much there was when the finish reason came
    try:
        for chunk in stream:
            if not listening:
                hearing.note()
            pieces.add(chunk)
            hearing.writing = hearing.writing or pieces.size > 0
            if finished is None and _finish_of(stream) is not None:
                finished = pieces.size
            if hearing.given_up or pieces.size > most:
                break
    except Exception:
        if finished != pieces.size:
            raise  # else only the usage is missing, which can be estimated
    finally:
        opened: list[Any] = [source, stream.completion_stream]
        for each in opened:
            with contextlib.suppress(Exception):  # not every provider's stream has a close
                each.close()
    received = pieces.joined()
    received.streamed = True
    received.finish = "length" if pieces.size > most else _finish_of(stream)
    # As the provider sent it; LiteLLM's sum at the end, which it may have failed to reach, adds guesses.
    sent = [usage for chunk in reversed(stream.chunks) if (usage := getattr(chunk, "usage", None)) is not None]
    received.usage = received.usage or next(iter(sent), None)
    received.counted_reasoning = next((count for count in map(_counted_reasoning, sent) if count is not None), None)
    return received


def wait_for(
    model: str,
    work: Callable[[], T],
    hearing: Hearing,
    *,
    timeout_s: float,
    idle_s: float,
    should_stop: Callable[[], bool],
) -> T:
    """`work()` in a thread that is left behind when time is up: a socket's own limit restarts with every byte.

    `timeout_s` bounds the whole call. `idle_s` bounds the silence between two events once the model writes; before,
    it may think without a word.

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
                break  # a reply that is there is taken, whatever else holds
            if should_stop():
                raise LLMCancelled(model, "cancelled while waiting for the reply.")
            now = time.monotonic()
            if now > deadline:
                raise ReplyLost(model, f"no whole answer within {timeout_s:.0f} s.")
            if hearing.writing and now - hearing.last_s > idle_s:
                raise ReplyLost(model, f"nothing came for {idle_s:.0f} s in the middle of the reply.")
    finally:
        hearing.given_up = True
    if errors:
        raise errors[0]
    return results[0]


@dataclass
class _Pieces:
    """The parts of a reply in the order in which they came."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: list["_Call"] = field(default_factory=list)
    usage: Any = None
    size: int = 0  # characters of all of them

    def add(self, chunk: Any) -> None:
        self.usage = getattr(chunk, "usage", None) or self.usage
        for choice in getattr(chunk, "choices", None) or ():
            self._add_to(self.text, getattr(choice.delta, "content", None))
            self._add_to(self.reasoning, getattr(choice.delta, "reasoning_content", None))
            for fragment in getattr(choice.delta, "tool_calls", None) or ():
                self._add_call(fragment)

    def add_refusal(self, event: Any) -> None:
        """LiteLLM drops a streamed refusal as an empty piece, so it is read from the provider's own events."""
        for choice in getattr(event, "choices", None) or ():
            self._add_to(self.refusal, getattr(getattr(choice, "delta", None), "refusal", None))

    def joined(self) -> Received:
        calls = tuple(
            ToolCall(call.id or f"call_{number}", call.name, "".join(call.arguments))
            for number, call in enumerate(self.calls)
        )
        return Received(
            "".join(self.text), "".join(self.reasoning), "".join(self.refusal), tool_calls=calls, usage=self.usage
        )

    def _add_to(self, parts: list[str], piece: object) -> None:
        if isinstance(piece, str) and piece:
            parts.append(piece)
            self.size += len(piece)

    def _add_call(self, fragment: Any) -> None:
        function = getattr(fragment, "function", None)
        if function is None:
            return
        index = getattr(fragment, "index", 0) or 0
        call = next((call for call in reversed(self.calls) if call.index == index), None)
        if call is None or (fragment.id and call.id and fragment.id != call.id and function.name):
            call = _Call(index)  # some providers give every call the index 0
            self.calls.append(call)
        call.id = call.id or fragment.id or ""
        call.name = call.name or function.name or ""
        self._add_to(call.arguments, function.arguments)
        self.size += 1 + len(fragment.id or "") + len(function.name or "")


@dataclass
class _Call:
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


def _listened(source: Iterator[Any], hearing: Hearing, pieces: _Pieces) -> Iterator[Any]:
    """The provider's events, noted as they pass: LiteLLM hands on only some of them."""
    for event in source:
        hearing.note()
        pieces.add_refusal(event)
        yield event


def _finish_of(stream: Any) -> str | None:
    """The finish reason that the provider gave, None if the stream ended without one."""
    return stream.received_finish_reason or stream.intermittent_finish_reason or None


def _counted_reasoning(usage: Any) -> int | None:
    count = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None)
    return token_count(count) if isinstance(count, int) else None
