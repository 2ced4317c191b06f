"""Models through LiteLLM, against servers on this machine: the scripted one of `dev llm-server`, and a rawer one."""

import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.job import JobSpec, run_job
from agents.llm.client import CallLimits, open_llm
from agents.llm.error_mapping import redact
from agents.llm.models import cost_of, estimate_usage, import_litellm, plausible_usage
from agents.protocols import (
    LLM,
    ContextTooLong,
    Event,
    LLMCancelled,
    LLMError,
    LLMFailed,
    LLMRefused,
    Message,
    ModelUnavailable,
    Outcome,
    Price,
    Reply,
    ReplyLost,
    Tool,
    ToolCall,
)
from db.types import clean_json
from sandbox.base import SandboxUnavailable
from service.mock_llm import LlmServer, start_llm_server
from tasks.outcomes import candidate_hash
from tests.support.cpu_platform import PROMPTS

KEY = "sk-verysecret-0123456789abcdef"
ODD_KEY = "Zyxw98Vuts76Rqpo54"  # looks like no key of any provider
HELLO = [Message("system", "You are terse."), Message("user", "hello")]
USAGE = {"prompt_tokens": 12, "completion_tokens": 7}
SUM = Tool("sum", "Adds numbers.", {"type": "object", "properties": {"of": {"type": "array"}}})

Answer = tuple[int, dict[str, str], bytes]
Serve = Callable[..., LlmServer]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers with these entries as their script."""
    running: list[LlmServer] = []

    def start(*entries: dict[str, Any], **script: Any) -> LlmServer:
        running.append(start_llm_server({"replies": entries, **script}))
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture(params=["stream", "whole"])
def way(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The entries that come first: none, or one that makes the client ask without a stream from then on."""
    return [] if request.param == "stream" else [{"fault": "no_stream"}]


@dataclass
class Raw:
    """A server for what the scripted one cannot say: answers as bytes, in order (the last one again and again)."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    drip_s: float = 0.0
    left: threading.Event = field(default_factory=threading.Event)  # a client went before it had everything


@pytest.fixture
def raw() -> Iterator[Raw]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.paths.append(self.path)
            state.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, headers, body = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **headers,
            }.items():
                self.send_header(name, value)
            try:
                self.end_headers()
                for start in range(0, len(body), 1 if state.drip_s else len(body)):
                    self.wfile.write(body[start : start + 1] if state.drip_s else body)
                    self.wfile.flush()
                    time.sleep(state.drip_s)
            except OSError:
                state.left.set()

        def log_message(self, *arguments: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Raw(f"http://127.0.0.1:{running.server_address[1]}/v1")
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    running.shutdown()
    running.server_close()
    thread.join()


def says(text: str | None) -> Answer:
    """A whole response, whatever was asked for."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice]}
    return 200, {}, json.dumps({**body, "usage": {**USAGE, "total_tokens": 19}}).encode()


def streams(*events: dict[str, Any] | str) -> Answer:
    """A stream of these events, which ends as HTTP wants it."""
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return 200, {"Content-Type": "text/event-stream"}, "".join(f"data: {line}\n\n" for line in lines).encode()


def piece(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice], **more}


def fails(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    return status, headers, json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()


def ask(llm: LLM, model: str = "openai/x", **more: Any) -> Reply:
    return llm.complete(model, HELLO, should_stop=lambda: False, **more)


class Waits(list[float]):
    """Stands for time.sleep and notes how long was waited in all."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def test_reply_carries_text_tokens_and_latency(serve: Serve, way: list[dict[str, Any]]) -> None:
    server = serve(*way, {"text": "hi there", "usage": USAGE}, key=KEY)
    reply = ask(open_llm(api_base=server.url))
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("hi there", 12, 7)
    assert reply.cost_usd is None, "LiteLLM has no price for openai/x"
    assert 0 < reply.latency_s < 30
    assert (reply.attempts, reply.truncated, reply.reasoning_tokens) == (1 + len(way), False, None)
    body = server.requests[-1]
    assert body["messages"] == [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "hello"}]
    assert body["max_tokens"] == 32_768, "the reply's size is bounded"
    assert (body.get("stream"), body.get("stream_options")) == (
        (None, None) if way else (True, {"include_usage": True})
    )


def test_long_reply_arrives_as_it_was_sent(serve: Serve, way: list[dict[str, Any]]) -> None:
    text = "\n".join(f"line {number}: tabs\t, ünïcödé ✓, `fences`" for number in range(3000)) + "\n"
    reply = ask(open_llm(api_base=serve(*way, {"text": text}).url))
    assert reply.text == text
    assert reply.completion_tokens == -(-len(text) // 4)


def test_known_model_has_a_price_and_its_own_reply_limit(serve: Serve, way: list[dict[str, Any]]) -> None:
    server = serve(*way, {"text": "hi", "usage": USAGE})
    llm = open_llm(api_base=server.url)
    reply = ask(llm, "openai/gpt-4o")
    assert reply.cost_usd == pytest.approx(12 * 2.5e-6 + 7 * 10e-6)
    assert server.requests[0]["max_tokens"] == llm.reply_limit("openai/gpt-4o") == 16_384
    assert llm.price("openai/gpt-4o") == Price(2.5e-6, 10e-6)


def test_reply_is_bounded_as_asked(serve: Serve) -> None:
    server = serve({"text": "hi", "repeat": True})
    llm = open_llm(api_base=server.url)
    ask(llm, reply_tokens=2000)
    ask(llm, "openai/gpt-4o", reply_tokens=10**6)
    assert [body["max_tokens"] for body in server.requests] == [2000, 16_384]


def test_price_and_limit_of_models_that_are_not_in_the_list() -> None:
    llm = open_llm(limits=CallLimits(reply_tokens=5000))
    assert (llm.price("openai/x"), llm.reply_limit("openai/x")) == (None, 5000)
    assert llm.price("frob/nicate") is None
    for model in ("builtin/compiler", "ollama/anything", "lm_studio/anything"):
        assert (llm.price(model), llm.reply_limit(model)) == (Price(0.0, 0.0), 5000)


def test_bare_model_name_goes_to_the_api_base(serve: Serve) -> None:
    server = serve({"text": "hi"})
    assert ask(open_llm(api_base=server.url), "my-own-model").text == "hi"
    assert server.requests[0]["model"] == "my-own-model"


def test_server_of_ones_own_needs_no_key(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert ask(open_llm(api_base=serve({"text": "hi"}).url)).text == "hi"


def test_cut_off_reply_says_so(serve: Serve, way: list[dict[str, Any]]) -> None:
    reply = ask(open_llm(api_base=serve(*way, {"text": "half a", "finish": "length"}).url))
    assert (reply.text, reply.truncated) == ("half a", True)


def test_empty_content_is_an_empty_reply(serve: Serve, way: list[dict[str, Any]]) -> None:
    assert ask(open_llm(api_base=serve(*way, {"text": ""}).url)).text == ""


def test_reasoning_is_kept_apart_and_counted(serve: Serve, way: list[dict[str, Any]]) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 40, "reasoning_tokens": 33}
    server = serve(*way, {"text": "so: 4", "reasoning": "two and two " * 20, "usage": usage})
    reply = ask(open_llm(api_base=server.url))
    assert (reply.text, reply.reasoning) == ("so: 4", "two and two " * 20)
    assert (reply.completion_tokens, reply.reasoning_tokens) == (40, 33)


def test_thoughts_in_tags_are_reasoning_too(serve: Serve, way: list[dict[str, Any]]) -> None:
    reply = ask(open_llm(api_base=serve(*way, {"text": "<think>\ntwo and two\n</think>\n\nso: 4"}).url))
    assert (reply.text.strip(), reply.reasoning.strip()) == ("so: 4", "two and two")


def test_reasoning_under_its_other_name(raw: Raw) -> None:
    event = piece("")
    event["choices"][0]["delta"] = {"reasoning": "two and two"}
    raw.answers = [streams(event, piece("so: 4", "stop"), "[DONE]")]
    reply = ask(open_llm(api_base=raw.url))
    assert (reply.text, reply.reasoning) == ("so: 4", "two and two")


def test_tools_go_there_and_back(serve: Serve, way: list[dict[str, Any]]) -> None:
    calls = [{"name": "sum", "arguments": {"of": list(range(30))}}, {"name": "sum", "arguments": "{broken"}]
    server = serve(*way, {"tool_calls": calls}, {"text": "435"})
    llm = open_llm(api_base=server.url)
    reply = ask(llm, tools=[SUM])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("sum", json.dumps({"of": list(range(30))})),
        ("sum", "{broken"),
    ]
    assert len({call.id for call in reply.tool_calls}) == 2
    assert server.requests[-1]["tools"] == [
        {"type": "function", "function": {"name": "sum", "description": "Adds numbers.", "parameters": SUM.parameters}}
    ]
    first = reply.tool_calls[0]
    conversation = [*HELLO, Message("assistant", "", (first,)), Message("tool", "435", tool_call_id=first.id)]
    assert llm.complete("openai/x", conversation, should_stop=lambda: False, tools=[SUM]).text == "435"
    sent = server.requests[-1]["messages"]
    assert (sent[2]["tool_calls"], sent[3]["tool_call_id"]) == ([first.to_json()], first.id)


@pytest.mark.parametrize("whole", [False, True])
def test_reply_is_clean_by_the_stores_rule(raw: Raw, whole: bool) -> None:
    bad = "a\ud800b\0c"
    call = {"index": 0, "id": bad, "type": "function", "function": {"name": bad, "arguments": bad}}
    message = {"role": "assistant", "content": bad, "reasoning_content": bad, "tool_calls": [call]}
    event = {**piece("", "tool_calls"), "usage": {**USAGE, "total_tokens": 19}}
    event["choices"][0]["message" if whole else "delta"] = message
    raw.answers = [(200, {}, json.dumps(event).encode()) if whole else streams(event, "[DONE]")]
    reply = ask(open_llm(api_base=raw.url), tools=[SUM])
    clean = "a\ufffd\ufffd\ufffdb\ufffdc"
    assert (reply.text, reply.reasoning) == (clean, clean)
    assert reply.tool_calls == (ToolCall(clean, clean, clean),)
    kept = [reply.text, reply.reasoning, [call.to_json() for call in reply.tool_calls]]
    assert clean_json(kept) == kept, "a job that is taken up again works with the same"


def test_cut_reply_is_not_made_longer_by_cleaning(raw: Raw) -> None:
    raw.answers = [says("\ud800" * 1_000_000)]
    assert len(ask(open_llm(api_base=raw.url)).text) == 2 * 1024 * 1024


def test_prompt_that_no_encoding_carries_is_sent_clean(raw: Raw) -> None:
    raw.answers = [streams(piece("hi", "stop"), "[DONE]")]
    llm = open_llm(api_base=raw.url)
    assert llm.complete("openai/x", [Message("user", "a\ud800b\0")], should_stop=lambda: False).text == "hi"
    assert raw.asked[0]["messages"][0]["content"] == "a\ufffd\ufffd\ufffdb\ufffd"


def test_what_cannot_be_encoded_was_not_sent(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    raw.answers = [streams(piece("hi", "stop"), "[DONE]")]
    llm = open_llm(api_base=raw.url, sleep=Waits())
    with pytest.raises(LLMFailed, match="nothing was sent") as failed:
        ask(llm, tools=[Tool("odd", "\ud800", {})])
    assert not isinstance(failed.value, ReplyLost), "it would be booked as paid"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-schl\u00fcssel")
    with pytest.raises(ModelUnavailable, match=r"no header carries.*OPENAI_API_KEY"):
        ask(llm)
    assert raw.asked == []


def test_tool_calls_that_all_have_the_index_0(raw: Raw) -> None:
    def calling(**call: Any) -> dict[str, Any]:
        event = piece("")
        event["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "type": "function", **call}]}
        return event

    raw.answers = [
        streams(
            calling(id="a", function={"name": "sum", "arguments": '{"of": '}),
            calling(function={"arguments": "[1]}"}),
            calling(id="b", function={"name": "sum", "arguments": '{"of": [2]}'}),
            piece("", "tool_calls"),
            "[DONE]",
        )
    ]
    reply = ask(open_llm(api_base=raw.url), tools=[SUM])
    assert reply.tool_calls == (ToolCall("a", "sum", '{"of": [1]}'), ToolCall("b", "sum", '{"of": [2]}'))


def test_without_usage_tokens_are_estimated(serve: Serve, way: list[dict[str, Any]]) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 20
    reply = ask(open_llm(api_base=serve(*way, {"text": text, "fault": "no_usage"}).url), "openai/gpt-4o")
    assert reply.text == text
    assert 150 < reply.completion_tokens < 250
    assert 3 < reply.prompt_tokens < 40
    assert reply.cost_usd == pytest.approx(reply.prompt_tokens * 2.5e-6 + reply.completion_tokens * 10e-6)


@pytest.mark.parametrize("fault", ["drop", "stall", "reset", "timeout", "garbage"])
def test_lost_reply_is_not_asked_for_again(serve: Serve, way: list[dict[str, Any]], fault: str) -> None:
    server = serve(*way, {"text": "x" * 200, "fault": fault}, {"text": "a second one, paid for again"})
    told: list[str] = []
    llm = open_llm(api_base=server.url, sleep=Waits(), limits=CallLimits(timeout_s=3.0))
    started = time.monotonic()
    with pytest.raises(ReplyLost):
        ask(llm, on_fault=told.append)
    assert len(server.requests) == 1 + len(way)
    assert len(told) == len(way), "only what is tried again is told"
    assert time.monotonic() - started < 20
    assert server.stats()["replies"] == 0


def test_stream_that_only_stops_is_lost(serve: Serve) -> None:
    """LiteLLM ends such a stream with the finish reason `stop`, as if the reply were whole."""
    server = serve({"text": "half a reply", "fault": "no_done"}, {"text": "whole"})
    with pytest.raises(ReplyLost, match="ended before"):
        ask(open_llm(api_base=server.url))
    assert len(server.requests) == 1


def test_stream_that_breaks_after_its_finish_reason_is_whole(serve: Serve) -> None:
    server = serve({"text": "all of it", "fault": "drop_late"})
    reply = ask(open_llm(api_base=server.url))
    assert (reply.text, reply.truncated) == ("all of it", False)
    assert reply.completion_tokens > 0, "estimated"


def test_silence_in_the_middle_of_a_reply_ends_it(serve: Serve) -> None:
    server = serve({"text": "x" * 200, "fault": "stall"})
    llm = open_llm(api_base=server.url, limits=CallLimits(timeout_s=60.0, idle_s=0.5))
    started = time.monotonic()
    with pytest.raises(ReplyLost, match="nothing came for"):
        ask(llm)
    assert time.monotonic() - started < 20


def test_models_may_think_in_silence(serve: Serve) -> None:
    server = serve({"text": "at last", "delay_s": 2.5})
    assert ask(open_llm(api_base=server.url, limits=CallLimits(idle_s=1.0))).text == "at last"


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached",
        "invalid_request_error: streaming is not possible",
        "This model's maximum context length is 9000 tokens and your request has 100 input tokens.",
    ],
)
def test_error_in_a_stream_is_a_lost_reply(raw: Raw, message: str) -> None:
    raw.answers = [streams(piece("half a"), {"error": {"message": message, "type": "error", "code": "429"}}, "[DONE]")]
    with pytest.raises(ReplyLost):
        ask(open_llm(api_base=raw.url, sleep=Waits()))
    assert len(raw.asked) == 1


@pytest.mark.parametrize(("fault", "fields"), [("no_stream_options", (True, None)), ("no_stream", (None, None))])
def test_simpler_way_of_asking_is_remembered(serve: Serve, fault: str, fields: tuple[object, object]) -> None:
    server = serve({"text": "hi", "usage": USAGE, "fault": fault, "repeat": True})
    llm = open_llm(api_base=server.url)
    told: list[str] = []
    replies = [ask(llm, on_fault=told.append) for _ in range(2)]
    assert [(reply.text, reply.attempts) for reply in replies] == [("hi", 2), ("hi", 1)]
    assert [(body.get("stream"), body.get("stream_options")) for body in server.requests[1:]] == [fields, fields]
    assert len(told) == 1 and "simpler way" in told[0]
    expected = 12 if fault == "no_stream" else replies[0].prompt_tokens  # else the server was not asked for usage
    assert replies[1].prompt_tokens == expected > 0
    ask(llm, "openai/y")
    assert server.requests[3]["stream"] is True, "each model has its own server"


def test_server_that_ignores_the_wish_for_a_stream(raw: Raw) -> None:
    raw.answers = [says("hi")]
    llm = open_llm(api_base=raw.url)
    for _ in range(2):
        reply = ask(llm, "openai/gpt-4o")
        assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("hi", 12, 7)
        assert reply.cost_usd == pytest.approx(12 * 2.5e-6 + 7 * 10e-6)
    assert [body.get("stream") for body in raw.asked] == [True, None]


@pytest.mark.parametrize("indent", [None, 1])
def test_where_litellm_hides_such_a_response_it_is_lost_once(raw: Raw, indent: int | None) -> None:
    """LiteLLM takes a line of JSON for an event with a finish reason and no text, which is no empty reply."""
    status, headers, body = says("hi")
    raw.answers = [(status, headers, json.dumps(json.loads(body), indent=indent).encode())]
    llm = open_llm(api_base=raw.url)
    with pytest.raises(ReplyLost, match="held no reply"):
        ask(llm, "hosted_vllm/x")
    assert ask(llm, "hosted_vllm/x").text == "hi"
    assert [body.get("stream") for body in raw.asked] == [True, None]


def test_stream_that_cannot_be_read_is_asked_for_as_a_whole_from_then_on(raw: Raw) -> None:
    raw.answers = [streams(piece("half a"), "{not JSON"), says("hi")]
    llm = open_llm(api_base=raw.url)
    with pytest.raises(ReplyLost, match="cannot be read"):
        ask(llm)
    assert len(raw.asked) == 1, "it may have been paid for"
    assert ask(llm).text == "hi"
    assert [body.get("stream") for body in raw.asked] == [True, None]


def test_status_422_for_the_stream_options(raw: Raw) -> None:
    """LiteLLM leaves such a request's parameters out, sends it again, and returns nothing if that fails too."""
    refusal = fails(422, "stream_options: extra inputs are not permitted")
    raw.answers = [refusal, refusal, streams(piece("hi", "stop"), "[DONE]")]
    assert ask(open_llm(api_base=raw.url)).text == "hi"
    assert "stream_options" not in raw.asked[-1] and raw.asked[-1]["stream"] is True


def test_reply_that_does_not_fit_beside_the_prompt_is_made_shorter(raw: Raw) -> None:
    raw.answers = [
        fails(
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum context length is 8192"
            " tokens and your request has 123 input tokens (32768 > 8192 - 123).",
        ),
        streams(piece("hi", "stop"), "[DONE]"),
    ]
    assert ask(open_llm(api_base=raw.url)).text == "hi"
    assert raw.asked[1]["max_tokens"] == 8192 - 123 - 64


def too_long(context: int) -> Answer:
    return fails(400, f"This model's maximum context length is {context} tokens and your request has 123 input tokens.")


def test_reply_is_made_shorter_only_once(raw: Raw) -> None:
    """A server may name a context that is one token smaller each time."""
    raw.answers = [too_long(8192 - number) for number in range(20)]
    told: list[str] = []
    with pytest.raises(ContextTooLong):
        ask(open_llm(api_base=raw.url, sleep=Waits()), on_fault=told.append)
    assert (len(raw.asked), len(told)) == (2, 1)


def test_nothing_is_asked_once_the_job_is_told_to_stop(raw: Raw) -> None:
    raw.answers = [too_long(8192), streams(piece("hi", "stop"), "[DONE]")]
    llm = open_llm(api_base=raw.url)
    with pytest.raises(LLMCancelled) as before:
        llm.complete("openai/x", HELLO, should_stop=lambda: True)
    assert (raw.asked, before.value.sent) == ([], False)
    told: list[str] = []
    with pytest.raises(LLMCancelled) as between:
        llm.complete("openai/x", HELLO, should_stop=lambda: bool(told), on_fault=told.append)
    assert (len(raw.asked), between.value.sent) == (1, False)


ANTHROPIC_START = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-sonnet-4-5",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
}
ANTHROPIC_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def anthropic_block(index: int, kind: str, key: str, *texts: str) -> list[dict[str, Any]]:
    delta = {"type": f"{kind}_delta"}
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind, key: ""}},
        *({"type": "content_block_delta", "index": index, "delta": {**delta, key: text}} for text in texts),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_end(reason: str) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}, {"type": "message_stop"}]


@pytest.fixture
def anthropic(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> Raw:
    monkeypatch.setenv("ANTHROPIC_API_BASE", raw.url.removesuffix("/v1"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return raw


def test_anthropics_stream(anthropic: Raw) -> None:
    thinking, text = (
        anthropic_block(0, "thinking", "thinking", "hm", "m"),
        anthropic_block(1, "text", "text", "hi ", "x"),
    )
    overloaded = (529, {}, json.dumps(ANTHROPIC_OVERLOADED).encode())
    anthropic.answers = [overloaded, streams(ANTHROPIC_START, *thinking, *text, *anthropic_end("max_tokens"))]
    told: list[str] = []
    reply = ask(open_llm(sleep=Waits()), "anthropic/claude-sonnet-4-5", on_fault=told.append)
    assert (reply.text, reply.reasoning, reply.truncated, reply.attempts) == ("hi x", "hmm", True, 2)
    assert (reply.prompt_tokens, reply.completion_tokens) == (10, 15)
    assert reply.cost_usd == pytest.approx(10 * 3e-6 + 15 * 15e-6)
    assert len(told) == 1 and "Overloaded" in told[0]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([ANTHROPIC_START, *anthropic_block(0, "text", "text", "half a")], ReplyLost),
        ([ANTHROPIC_START, *anthropic_block(0, "text", "text", "half a"), ANTHROPIC_OVERLOADED], ReplyLost),
        ([ANTHROPIC_OVERLOADED], ReplyLost),
        ([ANTHROPIC_START, *anthropic_block(0, "text", "text", "no"), *anthropic_end("refusal")], LLMRefused),
    ],
)
def test_anthropics_stream_that_brings_no_reply(
    anthropic: Raw, events: list[dict[str, Any]], expected: type[LLMError]
) -> None:
    anthropic.answers = [streams(*events)]
    with pytest.raises(expected):
        ask(open_llm(sleep=Waits()), "anthropic/claude-sonnet-4-5")
    assert len(anthropic.asked) == 1


def test_gemini_is_not_asked_for_a_stream(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM says `stop` with each event of its streams, so half a reply would be taken for a whole one."""
    monkeypatch.setenv("GEMINI_API_BASE", raw.url)
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    candidate = {"content": {"parts": [{"text": "hi"}], "role": "model"}, "index": 0, "finishReason": "STOP"}
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 3, "totalTokenCount": 8}
    whole = json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()
    raw.answers = [fails(429, "Resource exhausted", **{"Retry-After": "3"}), (200, {}, whole)]
    waits = Waits()
    reply = ask(open_llm(sleep=waits), "gemini/gemini-2.5-flash")
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens, reply.attempts) == ("hi", 5, 3, 2)
    assert sum(waits) == 3
    assert all(path.endswith(":generateContent") for path in raw.paths)
    for lost in ((200, {"Content-Length": str(len(whole) + 9)}, whole), (200, {}, b"<html>")):
        raw.answers, before = [lost], len(raw.asked)
        with pytest.raises(ReplyLost):  # of the second LiteLLM says that it has the status 422
            ask(open_llm(sleep=waits), "gemini/gemini-2.5-flash")
        assert len(raw.asked) == before + 1


def test_rate_limit_waits_as_asked_then_succeeds(serve: Serve) -> None:
    server = serve({"fault": "rate_limit", "retry_after": 7}, {"text": "hi"})
    waits, told = Waits(), list[str]()
    reply = ask(open_llm(api_base=server.url, sleep=waits), on_fault=told.append)
    assert (reply.text, reply.attempts) == ("hi", 2)
    assert sum(waits) == pytest.approx(7)
    assert told == ["openai/x: rate limit: Rate limit reached for requests. Trying again in 7 s (1 of 4)."]


def test_retry_after_may_be_a_date(serve: Serve) -> None:
    date = formatdate(time.time() + 30, usegmt=True)
    waits = Waits()
    server = serve({"fault": "overloaded", "retry_after": date}, {"text": "hi"})
    assert ask(open_llm(api_base=server.url, sleep=waits)).attempts == 2
    assert 20 < sum(waits) <= 31


def test_too_long_retry_after_is_not_waited_for(serve: Serve) -> None:
    server = serve({"fault": "rate_limit", "retry_after": 86400, "repeat": True})
    waits = Waits()
    with pytest.raises(LLMFailed, match="rate limit: Rate limit reached"):
        ask(open_llm(api_base=server.url, sleep=waits))
    assert (list(waits), len(server.requests)) == ([], 1)


@pytest.mark.parametrize("retry_after", ["soon", "nan", "inf", "-3"])
def test_unusable_retry_after_does_no_harm(serve: Serve, retry_after: str) -> None:
    server = serve({"fault": "rate_limit", "retry_after": retry_after}, {"text": "hi"})
    waits = Waits()
    assert ask(open_llm(api_base=server.url, sleep=waits)).text == "hi"
    assert sum(waits) < 2


def test_server_errors_are_tried_again_with_growing_waits(serve: Serve, way: list[dict[str, Any]]) -> None:
    server = serve(*way, {"fault": "server_error"}, {"fault": "overloaded"}, {"fault": "server_error"}, {"text": "hi"})
    waits, told = Waits(), list[str]()
    assert ask(open_llm(api_base=server.url, sleep=waits), on_fault=told.append).attempts == 4 + len(way)
    assert 7 <= sum(waits) <= 7 * 1.25
    assert [line.rpartition(" (")[2] for line in told[len(way) :]] == ["1 of 4).", "2 of 4).", "3 of 4)."]


def test_lasting_server_error_gives_up(serve: Serve) -> None:
    server = serve({"fault": "server_error", "repeat": True})
    with pytest.raises(LLMFailed, match=r"openai/x: the provider failed \(500\): The server had an error"):
        ask(open_llm(api_base=server.url, sleep=Waits(), limits=CallLimits(retries=2)))
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "All is \\"busy\\"."}}', r'rejected the request \(400\): All is "busy"\.$'),
        (b'{"detail": "All is busy."}', r"rejected the request \(400\): .*All is busy\."),
        (b"All is busy.", r"rejected the request \(400\): .*All is busy\."),
    ],
)
@pytest.mark.parametrize("model", ["openai/x", "hosted_vllm/x"])
def test_errors_say_what_the_provider_said(raw: Raw, model: str, body: bytes, words: str) -> None:
    raw.answers = [(400, {}, body)]
    with pytest.raises(LLMFailed, match=words):
        ask(open_llm(api_base=raw.url), model)


def test_gateway_that_gave_up_waiting_is_a_lost_reply(raw: Raw) -> None:
    raw.answers = [fails(504, "upstream timed out")]
    with pytest.raises(ReplyLost):
        ask(open_llm(api_base=raw.url, sleep=Waits()))
    assert len(raw.asked) == 1


@pytest.mark.parametrize(
    "body", [b"<html>Bad gateway</html>", b"[1, 2]", b"", b'{"choices": []}', b'{"id": 3}', b"\xff"]
)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_garbage_is_a_lost_reply(raw: Raw, body: bytes, kind: str) -> None:
    raw.answers = [(200, {"Content-Type": kind}, body)]
    llm = open_llm(api_base=raw.url, sleep=Waits())
    for asked in (1, 2):  # as a stream, and then as a whole response
        with pytest.raises(ReplyLost):
            ask(llm)
        assert len(raw.asked) == asked


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (fails(403, "Country not supported"), ModelUnavailable, "rejected"),
        (fails(404, "The model `x` does not exist", "model_not_found"), ModelUnavailable, "--api-base"),
        (fails(429, "You exceeded your current quota", "insufficient_quota"), ModelUnavailable, "used up"),
        (fails(400, "The context window of this model is too small.", "too_long"), ContextTooLong, "long"),
        (fails(400, "flagged by content management policy", "content_filter"), LLMRefused, "refused"),
        (fails(400, "temperature must be 1"), LLMFailed, "400"),
        (fails(501, "not here"), LLMFailed, "501"),
    ],
)
def test_lasting_errors_are_told_apart_and_not_tried_again(
    raw: Raw, answer: Answer, expected: type[LLMError], words: str
) -> None:
    raw.answers = [answer]
    with pytest.raises(expected, match=words) as caught:
        ask(open_llm(api_base=raw.url, sleep=Waits()))
    assert type(caught.value) is expected
    assert len(raw.asked) == 1


@pytest.mark.parametrize(
    ("entry", "expected", "words"),
    [
        ({"fault": "unauthorized"}, ModelUnavailable, "OPENAI_API_KEY"),
        ({"fault": "context"}, ContextTooLong, "long"),
        ({"text": "partly", "finish": "content_filter"}, LLMRefused, "declined"),
        ({"fault": "refusal", "text": "I cannot help with that."}, LLMRefused, "cannot help"),
    ],
)
def test_lasting_errors_of_a_model(
    serve: Serve, way: list[dict[str, Any]], entry: dict[str, Any], expected: type[LLMError], words: str
) -> None:
    server = serve(*way, entry, {"text": "hi"})
    with pytest.raises(expected, match=words) as caught:
        ask(open_llm(api_base=server.url, sleep=Waits()))
    assert type(caught.value) is expected
    assert len(server.requests) == 1 + len(way)


def test_nobody_listening() -> None:
    waits, told = Waits(), list[str]()
    with pytest.raises(ModelUnavailable, match=r"nobody answers at http://127\.0\.0\.1:9/v1.*--api-base"):
        ask(open_llm(api_base="http://127.0.0.1:9/v1", sleep=waits), on_fault=told.append)
    assert 3 <= sum(waits) <= 4, "a short outage is waited for, not a long one"
    assert len(told) == 2


def test_address_that_is_none() -> None:
    waits = Waits()
    with pytest.raises(ModelUnavailable, match="--api-base"):
        ask(open_llm(api_base="localhost:8000/v1", sleep=waits))
    assert list(waits) == []


def test_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ModelUnavailable, match="OPENAI_API_KEY"):
        ask(open_llm(), "openai/gpt-4o")
    with pytest.raises(ModelUnavailable, match="ANTHROPIC_API_KEY"):
        ask(open_llm(), "anthropic/claude-sonnet-4-5")


@pytest.mark.parametrize("model", ["frobnicate", "frob/nicate", "", "/"])
def test_unknown_provider_is_refused(model: str) -> None:
    with pytest.raises(ModelUnavailable, match="builtin/compiler"):
        ask(open_llm(), model)


def test_builtin_model_that_is_not_set_up() -> None:
    with pytest.raises(ModelUnavailable, match="not set up"):
        ask(open_llm(), "builtin/compiler")


@pytest.mark.parametrize("secret", [KEY, ODD_KEY])
@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500])
def test_no_error_holds_a_secret(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, status: int, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    bad = f"bad key {secret} in Authorization: Bearer {secret} ?key={secret}"
    raw.answers = [fails(status, bad) if status != 200 else streams(piece("half"), {"error": {"message": bad}})]
    told: list[str] = []
    llm = open_llm(
        api_base=raw.url.replace("http://", f"http://me:{secret}@"),
        sleep=Waits(),
        secrets=[ODD_KEY],
        limits=CallLimits(retries=1),
    )
    with pytest.raises(LLMError) as caught:
        ask(llm, on_fault=told.append)
    error: BaseException | None = caught.value
    assert error is not None and error.__cause__ is None and error.__context__ is None
    assert secret not in f"{error} {error!r} {vars(error)} {told}"
    assert secret not in caplog.text
    assert len(told) == (status in (429, 500))


@pytest.mark.parametrize("echo", ["\\u005ayxw98Vuts76Rqpo54", "Zyxw98\\u001bVuts76\\u200bRqpo54"])
def test_secret_that_is_spelt_in_escapes_is_not_shown(raw: Raw, echo: str) -> None:
    raw.answers = [(401, {}, f'{{"error": {{"message": "bad key {echo}", "code": "x"}}}}'.encode())]
    with pytest.raises(ModelUnavailable, match=r"bad key \[removed\]") as caught:
        ask(open_llm(api_base=raw.url, secrets=[ODD_KEY]))
    assert ODD_KEY not in str(caught.value)


def test_slow_server_hits_the_time_limit(raw: Raw) -> None:
    raw.answers = [streams(*[piece("x") for _ in range(50)])]
    raw.drip_s = 0.2  # each byte restarts a socket's own limit
    started = time.monotonic()
    with pytest.raises(ReplyLost, match="no whole answer within 1 s"):
        ask(open_llm(api_base=raw.url, limits=CallLimits(timeout_s=1.0)))
    assert time.monotonic() - started < 5
    raw.drip_s = 0.0


def test_cancel_while_the_model_thinks(serve: Serve) -> None:
    server = serve({"fault": "timeout"})
    started = time.monotonic()
    with pytest.raises(LLMCancelled) as cancelled:
        open_llm(api_base=server.url).complete("openai/x", HELLO, should_stop=lambda: bool(server.requests))
    assert cancelled.value.sent, "it may be billed"
    assert time.monotonic() - started < 30


def test_stream_that_nobody_waits_for_is_closed(raw: Raw) -> None:
    """A provider stops writing then, and the account is charged for no more."""
    raw.answers = [streams(*[piece("word ") for _ in range(400)])]
    raw.drip_s = 0.001
    with pytest.raises(LLMCancelled):
        open_llm(api_base=raw.url).complete("openai/x", HELLO, should_stop=lambda: bool(raw.asked))
    assert raw.left.wait(20)


def test_cancel_while_waiting_to_try_again(serve: Serve) -> None:
    server = serve({"fault": "rate_limit", "retry_after": 60})
    waits = Waits()
    with pytest.raises(LLMCancelled) as cancelled:
        open_llm(api_base=server.url, sleep=waits).complete("openai/x", HELLO, should_stop=lambda: len(waits) >= 3)
    assert sum(waits) == 3
    assert not cancelled.value.sent, "the rate limit cost nothing"


def test_ctrl_c_while_the_model_thinks(serve: Serve) -> None:
    server = serve({"fault": "timeout"})

    def press() -> bool:
        if server.requests:
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        open_llm(api_base=server.url).complete("openai/x", HELLO, should_stop=press)


def test_control_characters_of_a_provider_do_not_reach_the_terminal(raw: Raw) -> None:
    raw.answers = [fails(400, "no\x1b[2J\x07\nway")]
    with pytest.raises(LLMFailed, match=r"no\[2J way"):
        ask(open_llm(api_base=raw.url))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Incorrect API key provided: sk-proj-abc123def456.", "Incorrect API key provided: [removed]"),
        ("Authorization: Bearer abcdef123456", "[removed]"),
        ('{"api_key": "abc123"}', "[removed]"),
        ("GET https://host/v1?key=AbC123&alt=json failed", "GET https://host/v1?key=[removed]&alt=json failed"),
        ("https://me:pw@host/v1", "https://[removed]@host/v1"),
        ("the monkey-puzzle tree asks for a keyboard", "the monkey-puzzle tree asks for a keyboard"),
        ("max_tokens: 32768 is too large", "max_tokens: 32768 is too large"),
    ],
)
def test_redact(text: str, expected: str) -> None:
    assert expected in redact(text)
    assert "abc123" not in redact(text).lower() and "abcdef" not in redact(text)


def test_whole_job_over_http(serve: Serve) -> None:
    source = "class ModelNew:\n    pass\n"
    advice = {"bottleneck": "memory", "evidence": [], "change": "fuse", "expected_speedup": 2, "stop": False}
    server = serve(
        {"text": source, "fence": "python", "when": {"role": "coder"}, "usage": USAGE},
        {"fault": "overloaded"},
        {"text": json.dumps(advice), "fence": "json", "when": {"request": "judge-improve"}, "usage": USAGE},
        {"fault": "unauthorized"},
    )
    events: list[Event] = []
    spec = JobSpec("local/op", "class Model: ...\n", "other", "float32", "cpu", "2 cores", PROMPTS, "openai/gpt-4o")
    result = run_job(
        spec,
        evaluate=lambda candidate, _: Outcome(candidate_hash(candidate), "passed", speedup=1.5),
        prove=lambda candidate: Outcome(candidate_hash(candidate), "passed", speedup=1.5),
        record=events.append,
        llm=open_llm(api_base=server.url, sleep=Waits()),
        should_stop=lambda: False,
    )
    assert (result.stop_reason, result.best_source, result.rounds_done) == ("model_unavailable", source, 1)
    assert result.spent.cost_usd == pytest.approx(2 * (12 * 2.5e-6 + 7 * 10e-6))
    assert [event.data["attempts"] for event in events if event.kind == "llm_call"] == [1, 2]
    assert KEY not in "".join(json.dumps(event.data) for event in events)


def test_huge_reply_is_cut(serve: Serve, way: list[dict[str, Any]]) -> None:
    reply = ask(open_llm(api_base=serve(*way, {"text": "word " * 700_000}).url))
    most = 2 * 1024 * 1024
    asked_for = 16 * 32_768 + 64 * 1024  # a stream is not read for much longer than that
    assert reply.truncated
    assert len(reply.text) == most if way else asked_for < len(reply.text) < most


def test_stream_that_is_far_longer_than_asked_is_not_read_to_its_end(raw: Raw) -> None:
    raw.answers = [streams(*[piece("x" * 1000) for _ in range(2000)])]
    started = time.monotonic()
    reply = ask(open_llm(api_base=raw.url), reply_tokens=100)
    assert 1600 + 65_536 < len(reply.text) <= 1600 + 65_536 + 1000
    assert reply.truncated
    assert reply.completion_tokens > 1000, "estimated from all that was read"
    assert time.monotonic() - started < 20


def test_stream_that_is_too_long_costs_what_its_end_says(serve: Serve) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 800_000}
    server = serve({"text": "word " * 700_000, "usage": usage})
    reply = ask(open_llm(api_base=server.url), "openai/gpt-4o")
    assert (reply.truncated, reply.completion_tokens, reply.usage) == (True, 800_000, "reported")
    assert reply.cost_usd == pytest.approx(12 * 2.5e-6 + 800_000 * 10e-6)


@pytest.mark.parametrize("text", ["x" * 1000, "語" * 1000])
def test_stream_that_is_too_long_and_does_not_end_costs_the_most_that_it_can_have(raw: Raw, text: str) -> None:
    status, headers, body = streams(*[piece(text) for _ in range(300)])
    raw.answers = [(status, {**headers, "Content-Length": str(len(body) + 1)}, body)]  # silence after all that
    started = time.monotonic()
    reply = ask(open_llm(api_base=raw.url), "openai/gpt-4o", reply_tokens=100)
    read = len(reply.text.encode())
    assert reply.truncated
    assert reply.usage == "bound"
    assert 0.6 * read < reply.completion_tokens <= read, "a token is a byte or more"
    assert reply.cost_usd == pytest.approx(reply.prompt_tokens * 2.5e-6 + reply.completion_tokens * 10e-6)
    assert time.monotonic() - started < 10


def test_the_running_usage_of_a_stream_that_breaks_off_is_not_what_it_cost(raw: Raw) -> None:
    counts = [{"prompt_tokens": 12, "completion_tokens": n, "total_tokens": 12 + n} for n in range(300)]
    grows = [piece("x" * 1000, usage=usage) for usage in counts]
    status, headers, body = streams(*grows)
    raw.answers = [(status, {**headers, "Content-Length": str(len(body) + 1)}, body)]
    reply = ask(open_llm(api_base=raw.url), "openai/gpt-4o", reply_tokens=100)
    assert (reply.truncated, reply.usage) == (True, "bound")
    assert reply.completion_tokens > 10_000
    raw.answers = [streams(*grows, "[DONE]")]
    reply = ask(open_llm(api_base=raw.url), "openai/gpt-4o", reply_tokens=100)
    assert (reply.usage, reply.completion_tokens) == ("reported", 299), "of one that ends it is"


def test_whole_reply_without_usage_is_estimated_and_says_so(serve: Serve) -> None:
    assert ask(open_llm(api_base=serve({"text": "hi", "fault": "no_usage"}).url)).usage == "estimated"


def test_names_of_tool_calls_count_as_length_too(raw: Raw) -> None:
    event = piece("")
    call = {"index": 0, "type": "function", "function": {"name": "n" * 50_000, "arguments": ""}}
    events = []
    for number in range(100):
        event["choices"][0]["delta"] = {"tool_calls": [{**call, "index": number, "id": f"call {number}"}]}
        events.append(json.dumps(event))
    raw.answers = [streams(*events)]
    reply = ask(open_llm(api_base=raw.url), reply_tokens=100, tools=[SUM])
    assert (len(reply.tool_calls), reply.truncated) == (2, True)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -5000, "completion_tokens": -7000, "total_tokens": -12_000},
        {"prompt_tokens": 5000, "completion_tokens": 0, "total_tokens": 5000},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": 0, "completion_tokens": -1, "total_tokens": 10**30},
        {
            "prompt_tokens": 12,
            "completion_tokens": 0,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 10**6},
            "completion_tokens_details": {"reasoning_tokens": -3},
        },
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_usage_that_cannot_be_true_is_not_believed(raw: Raw, whole: bool, usage: dict[str, Any]) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 100
    answer = json.loads(says(text)[2]) | {"usage": usage}
    event = piece(text, "stop", usage=usage)
    raw.answers = [(200, {}, json.dumps(answer).encode()) if whole else streams(event, "[DONE]")]
    reply = ask(open_llm(api_base=raw.url), "openai/gpt-4o")
    assert 800 < reply.completion_tokens < 1200
    assert reply.prompt_tokens == usage["prompt_tokens"] if usage["prompt_tokens"] > 0 else 3 < reply.prompt_tokens < 40
    assert reply.cost_usd == pytest.approx(reply.prompt_tokens * 2.5e-6 + reply.completion_tokens * 10e-6)
    assert (reply.reasoning_tokens or 0) >= 0


@given(*[st.one_of(st.none(), st.integers())] * 4, st.sampled_from(["", "some words"]))
def test_no_usage_is_a_refund(
    prompt: int | None, reply: int | None, cached: int | None, reasoning: int | None, written: str
) -> None:
    litellm = import_litellm()
    usage = litellm.Usage(prompt_tokens=1, completion_tokens=1, total_tokens=2)
    usage.prompt_tokens, usage.completion_tokens = prompt, reply
    usage.prompt_tokens_details = litellm.types.utils.PromptTokensDetailsWrapper(cached_tokens=cached)
    usage.completion_tokens_details = litellm.types.utils.CompletionTokensDetailsWrapper(reasoning_tokens=reasoning)
    seen = plausible_usage(litellm, "openai/gpt-4o", HELLO, written, usage)
    assert 0 < seen.prompt_tokens <= 10**9
    assert bool(written) <= seen.completion_tokens <= 10**9
    assert (cost_of(litellm, "openai/gpt-4o", seen) or 0.0) >= 0


def test_calls_and_tools_are_estimated_too() -> None:
    litellm = import_litellm()
    words = "the quick brown fox jumps over the lazy dog " * 10
    told = [*HELLO, Message("assistant", "", (ToolCall("a", "sum", words),))]
    tool = Tool("sum", words, {"type": "object", "description": words})
    counted = [
        estimate_usage(litellm, "openai/gpt-4o", messages, "hi", tools).prompt_tokens
        for messages, tools in ((HELLO, []), (told, []), (HELLO, [tool]))
    ]
    assert counted[1] >= counted[0] + 80
    assert counted[2] >= counted[0] + 160


def custom_llm(answer: object) -> object:
    """A handler as the built-in model's: LiteLLM calls it in place of a provider."""
    litellm = import_litellm()

    class Handler(litellm.CustomLLM):  # type: ignore[misc, name-defined]
        def completion(self, *arguments: object, **keywords: object) -> object:
            self.thread = threading.current_thread()
            self.keywords = keywords
            if isinstance(answer, BaseException):
                raise answer
            return litellm.completion(model="openai/x", mock_response=answer, messages=[])

    return Handler()


def test_builtin_model_takes_the_same_path() -> None:
    handler = custom_llm("compiled")
    reply = ask(open_llm(builtin=handler, api_base="http://127.0.0.1:9"), "builtin/compiler", tools=[SUM])
    assert (reply.text, reply.cost_usd) == ("compiled", 0.0)
    assert handler.keywords["model"] == "compiler"  # type: ignore[attr-defined]
    assert handler.keywords["messages"][1]["content"] == "hello"  # type: ignore[attr-defined]
    assert handler.thread is threading.current_thread(), "Ctrl-C must reach its sandbox"  # type: ignore[attr-defined]


def test_two_accesses_keep_their_own_builtin_models() -> None:
    first, second = open_llm(builtin=custom_llm("one")), open_llm(builtin=custom_llm("two"))
    assert [ask(llm, "builtin/compiler").text for llm in (first, second, first)] == ["one", "two", "one"]


def test_builtin_model_without_a_sandbox_says_what_to_do() -> None:
    llm = open_llm(builtin=custom_llm(SandboxUnavailable("No Docker daemon answers.", "Start it.")))
    with pytest.raises(ModelUnavailable, match=r"No Docker daemon answers\. Start it\."):
        ask(llm, "builtin/compiler")


def test_builtin_model_that_fails_is_not_tried_again() -> None:
    with pytest.raises(LLMFailed, match="ran out of luck") as caught:
        ask(open_llm(builtin=custom_llm(RuntimeError("ran out of luck")), sleep=Waits()), "builtin/compiler")
    assert type(caught.value) is LLMFailed, "nothing was paid, and asking again would not help"


def test_interrupt_in_the_builtin_model_propagates() -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(open_llm(builtin=custom_llm(KeyboardInterrupt())), "builtin/compiler")


def test_import_is_late_and_a_failing_call_prints_nothing(serve: Serve) -> None:
    server = serve({"fault": "server_error"}, {"text": "half", "fault": "no_done"}, {"text": "x" * 99, "fault": "drop"})
    program = f"""
import sys
from agents.protocols import ReplyLost
from agents.llm.client import open_llm
from agents.protocols import Message
llm = open_llm(api_base={server.url!r}, sleep=lambda seconds: None)
assert "litellm" not in sys.modules, "5 s that most commands do not need"
for _ in range(2):
    try:
        llm.complete("openai/x", [Message("user", "hello")], should_stop=lambda: False)
    except ReplyLost:
        print("as expected")
"""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("as expected\n" * 2, "", 0)
