"""Models through LiteLLM, against a real server on this machine that speaks Chat Completions and can fail."""

import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

from agents.errors import (
    BudgetTooSmall,
    ContextTooLong,
    LLMCancelled,
    LLMError,
    LLMFailed,
    LLMRefused,
    ModelUnavailable,
    PriceUnknown,
)
from agents.job import JobSpec, run_job
from agents.litellm_setup import import_litellm
from agents.llm import CallLimits, open_llm
from agents.ports import LLM, Event, Message, Outcome, Reply, candidate_hash
from agents.scrub import scrub
from sandbox.base import SandboxUnavailable

KEY = "sk-verysecret-0123456789abcdef"
ODD_KEY = "Zyxw98Vuts76Rqpo54"  # looks like no key of any provider
HELLO = [Message("system", "You are terse."), Message("user", "hello")]

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Server:
    """What the server will answer, in order (the last one again and again), and what it was asked."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[dict[str, object]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    drip_s: float = 0.0


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            state.keys.append(self.headers["Authorization"])
            status, headers, body = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for start in range(0, len(body), 1 if state.drip_s else len(body)):
                    self.wfile.write(body[start : start + 1] if state.drip_s else body)
                    self.wfile.flush()
                    time.sleep(state.drip_s)
            except OSError:
                pass  # the client has gone

        def log_message(self, *arguments: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{running.server_address[1]}/v1")
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield state
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def says(text: str | None, finish: str = "stop", **message: object) -> Answer:
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "x",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19},
    }
    return 200, {}, json.dumps(body).encode()


def fails(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    return status, headers, json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()


def ask(llm: LLM, model: str = "openai/x", max_cost_usd: float | None = None) -> Reply:
    return llm.complete(model, HELLO, should_stop=lambda: False, max_cost_usd=max_cost_usd)


class Waits(list[float]):
    """Stands for time.sleep and notes how long was waited in all."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def test_reply_carries_text_tokens_and_latency(server: Server) -> None:
    server.answers = [says("hi there")]
    reply = ask(open_llm(api_base=server.url))
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("hi there", 12, 7)
    assert reply.cost_usd is None, "LiteLLM has no price for openai/x"
    assert 0 < reply.latency_s < 30
    assert (reply.attempts, reply.truncated) == (1, False)
    assert server.asked[0]["messages"] == [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "hello"},
    ]
    assert server.asked[0]["max_tokens"] == 32_768, "the reply's size is bounded"
    assert server.keys == [f"Bearer {KEY}"]


def test_known_model_has_a_price_and_its_own_reply_limit(server: Server) -> None:
    server.answers = [says("hi")]
    reply = ask(open_llm(api_base=server.url), "openai/gpt-4o")
    assert reply.cost_usd == pytest.approx(12 * 2.5e-6 + 7 * 10e-6)
    assert server.asked[0]["max_tokens"] == 16_384


def test_bare_model_name_goes_to_the_api_base(server: Server) -> None:
    server.answers = [says("hi")]
    assert ask(open_llm(api_base=server.url), "my-own-model").text == "hi"
    assert server.asked[0]["model"] == "my-own-model"


def test_server_of_ones_own_needs_no_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server.answers = [says("hi")]
    assert ask(open_llm(api_base=server.url)).text == "hi"


def test_cut_off_reply_says_so(server: Server) -> None:
    server.answers = [says("half a", finish="length")]
    assert ask(open_llm(api_base=server.url)).truncated


def test_empty_content_is_an_empty_reply(server: Server) -> None:
    server.answers = [says(None)]
    assert ask(open_llm(api_base=server.url)).text == ""


def test_rate_limit_waits_as_asked_then_succeeds(server: Server) -> None:
    server.answers = [fails(429, "slow down", **{"Retry-After": "7"}), says("hi")]
    waits = Waits()
    reply = ask(open_llm(api_base=server.url, sleep=waits))
    assert (reply.text, reply.attempts) == ("hi", 2)
    assert sum(waits) == pytest.approx(7)


def test_retry_after_may_be_a_date(server: Server) -> None:
    server.answers = [fails(503, "busy", **{"Retry-After": formatdate(time.time() + 30, usegmt=True)}), says("hi")]
    waits = Waits()
    assert ask(open_llm(api_base=server.url, sleep=waits)).attempts == 2
    assert 20 < sum(waits) <= 31


def test_too_long_retry_after_is_not_waited_for(server: Server) -> None:
    server.answers = [fails(429, "come back tomorrow", **{"Retry-After": "86400"})]
    waits = Waits()
    with pytest.raises(LLMFailed, match="rate limit: come back tomorrow"):
        ask(open_llm(api_base=server.url, sleep=waits))
    assert (list(waits), len(server.asked)) == ([], 1)


@pytest.mark.parametrize("retry_after", ["soon", "nan", "inf", "-3"])
def test_unusable_retry_after_does_no_harm(server: Server, retry_after: str) -> None:
    server.answers = [fails(429, "slow down", **{"Retry-After": retry_after}), says("hi")]
    waits = Waits()
    assert ask(open_llm(api_base=server.url, sleep=waits)).text == "hi"
    assert sum(waits) < 2


def test_server_errors_are_tried_again_with_growing_waits(server: Server) -> None:
    server.answers = [fails(500, "oops"), fails(502, "oops"), fails(503, "oops"), says("hi")]
    waits = Waits()
    assert ask(open_llm(api_base=server.url, sleep=waits)).attempts == 4
    assert 7 <= sum(waits) <= 7 * 1.25


def test_lasting_server_error_gives_up(server: Server) -> None:
    server.answers = [fails(500, "oops")]
    with pytest.raises(LLMFailed, match=r"openai/x: the provider failed \(500\): oops"):
        ask(open_llm(api_base=server.url, sleep=Waits(), limits=CallLimits(retries=2)))
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "body", [b"<html>Bad gateway</html>", b"[1, 2]", b"", b'{"choices": []}', b'{"id": 3}', b"\xff"]
)
def test_garbage_body_is_a_failure(server: Server, body: bytes) -> None:
    server.answers = [(200, {}, body)]
    with pytest.raises(LLMFailed):
        ask(open_llm(api_base=server.url, sleep=Waits(), limits=CallLimits(retries=1)))
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (fails(401, f"Incorrect API key provided: {KEY}.", "invalid_api_key"), ModelUnavailable, "OPENAI_API_KEY"),
        (fails(403, "Country not supported"), ModelUnavailable, "rejected"),
        (fails(404, "The model `x` does not exist", "model_not_found"), ModelUnavailable, "--api-base"),
        (fails(429, "You exceeded your current quota", "insufficient_quota"), ModelUnavailable, "used up"),
        (
            fails(400, "This model's maximum context length is 8 tokens.", "context_length_exceeded"),
            ContextTooLong,
            "long",
        ),
        (fails(400, "flagged by content management policy", "content_filter"), LLMRefused, "refused"),
        (fails(400, "temperature must be 1"), LLMFailed, "400"),
        (says(None, finish="content_filter"), LLMRefused, "declined"),
        (says(None, refusal="I cannot help with that."), LLMRefused, "cannot help"),
    ],
)
def test_lasting_errors_are_told_apart_and_not_tried_again(
    server: Server, answer: Answer, expected: type[LLMError], words: str
) -> None:
    server.answers = [answer]
    with pytest.raises(expected, match=words) as caught:
        ask(open_llm(api_base=server.url, sleep=Waits()))
    assert type(caught.value) is expected
    assert len(server.asked) == 1


def test_nobody_listening() -> None:
    waits = Waits()
    with pytest.raises(ModelUnavailable, match=r"nobody answers at http://127\.0\.0\.1:9/v1.*--api-base"):
        ask(open_llm(api_base="http://127.0.0.1:9/v1", sleep=waits))
    assert 3 <= sum(waits) <= 4, "a short outage is waited for, not a long one"


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
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_no_error_holds_a_secret(
    server: Server, monkeypatch: pytest.MonkeyPatch, status: int, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    server.answers = [fails(status, f"bad key {secret} in Authorization: Bearer {secret} ?key={secret}")]
    llm = open_llm(
        api_base=server.url.replace("http://", f"http://me:{secret}@"),
        sleep=Waits(),
        secrets=[ODD_KEY],
        limits=CallLimits(retries=1),
    )
    with pytest.raises(LLMError) as caught:
        ask(llm)
    error: BaseException | None = caught.value
    assert error is not None and error.__cause__ is None and error.__context__ is None
    assert secret not in f"{error} {error!r} {vars(error)}"
    assert secret not in caplog.text


def test_slow_server_hits_the_time_limit(server: Server) -> None:
    server.answers = [says("hi")]
    server.drip_s = 0.2  # each byte restarts a socket's own limit
    started = time.monotonic()
    with pytest.raises(LLMFailed, match=r"within 1 s|time limit"):
        ask(open_llm(api_base=server.url, sleep=Waits(), limits=CallLimits(timeout_s=1.0, retries=0)))
    assert time.monotonic() - started < 5


def test_cancel_while_the_model_thinks(server: Server) -> None:
    server.answers = [says("hi")]
    server.drip_s = 0.2
    with pytest.raises(LLMCancelled):
        open_llm(api_base=server.url).complete("openai/x", HELLO, should_stop=lambda: bool(server.asked))


def test_cancel_while_waiting_to_try_again(server: Server) -> None:
    server.answers = [fails(429, "slow down", **{"Retry-After": "60"})]
    waits = Waits()
    with pytest.raises(LLMCancelled):
        open_llm(api_base=server.url, sleep=waits).complete("openai/x", HELLO, should_stop=lambda: len(waits) >= 3)
    assert sum(waits) == 3


def test_ctrl_c_while_the_model_thinks(server: Server) -> None:
    server.answers = [says("hi")]
    server.drip_s = 0.2

    def press() -> bool:
        if server.asked:
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        open_llm(api_base=server.url).complete("openai/x", HELLO, should_stop=press)


def test_control_characters_of_a_provider_do_not_reach_the_terminal(server: Server) -> None:
    server.answers = [fails(400, "no\x1b[2J\x07\nway")]
    with pytest.raises(LLMFailed, match=r"no\[2J way"):
        ask(open_llm(api_base=server.url))


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
def test_scrub(text: str, expected: str) -> None:
    assert expected in scrub(text)
    assert "abc123" not in scrub(text).lower() and "abcdef" not in scrub(text)


def test_whole_job_over_http(server: Server) -> None:
    source = "class ModelNew:\n    pass\n"
    advice = {"bottleneck": "memory", "evidence": [], "change": "fuse", "expected_speedup": 2, "stop": False}
    server.answers = [
        says(f"Here.\n```python\n{source}```"),
        fails(503, "busy"),
        says(f"```json\n{json.dumps(advice)}\n```"),
        fails(401, f"Incorrect API key provided: {KEY}"),
    ]
    events: list[Event] = []
    spec = JobSpec(
        "local/op", "class Model: ...\n", "other", "float32", "cpu", "2 cores", "openai/gpt-4o", budget_usd=1.0
    )
    result = run_job(
        spec,
        evaluate=lambda candidate: Outcome(candidate_hash(candidate), "passed", speedup=1.5),
        record=events.append,
        llm=open_llm(api_base=server.url, sleep=Waits()),
        should_stop=lambda: False,
    )
    assert (result.stop_reason, result.best_source, result.rounds_done) == ("model_unavailable", source, 1)
    assert result.cost_usd == pytest.approx(2 * (12 * 2.5e-6 + 7 * 10e-6))
    assert [event.data["attempts"] for event in events if event.kind == "llm_call"] == [1, 2]
    assert KEY not in "".join(json.dumps(event.data) for event in events)


def test_huge_reply_is_cut(server: Server) -> None:
    server.answers = [says("x" * (3 * 1024 * 1024))]
    reply = ask(open_llm(api_base=server.url))
    assert (len(reply.text), reply.truncated) == (2 * 1024 * 1024, True)


def test_budget_bounds_the_reply_before_anything_is_sent(server: Server) -> None:
    server.answers = [says("hi")]
    llm = open_llm(api_base=server.url)
    ask(llm, "openai/gpt-4o", max_cost_usd=0.05)
    asked = server.asked[0]["max_tokens"]
    assert isinstance(asked, int) and 4800 < asked < 5000, "5 cents buy 5000 tokens, less the prompt"
    with pytest.raises(BudgetTooSmall, match=r"\$0\.0010 left"):
        ask(llm, "openai/gpt-4o", max_cost_usd=0.001)
    with pytest.raises(BudgetTooSmall):
        ask(llm, "openai/gpt-4o", max_cost_usd=-1.0)
    with pytest.raises(PriceUnknown, match="no price"):
        ask(llm, "openai/x", max_cost_usd=100.0)
    assert len(server.asked) == 1


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
    reply = ask(open_llm(builtin=handler, api_base="http://127.0.0.1:9"), "builtin/compiler", max_cost_usd=0.0)
    assert (reply.text, reply.cost_usd) == ("compiled", 0.0), "it costs nothing, so no budget stops it"
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
    with pytest.raises(LLMFailed, match="ran out of luck"):
        ask(open_llm(builtin=custom_llm(RuntimeError("ran out of luck")), sleep=Waits()), "builtin/compiler")


def test_interrupt_in_the_builtin_model_propagates() -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(open_llm(builtin=custom_llm(KeyboardInterrupt())), "builtin/compiler")


def test_import_is_late_and_a_failing_call_prints_nothing(server: Server) -> None:
    server.answers = [fails(401, f"Incorrect API key provided: {KEY}")]
    program = f"""
import sys
from agents.errors import ModelUnavailable
from agents.llm import open_llm
from agents.ports import Message
llm = open_llm(api_base={server.url!r})
assert "litellm" not in sys.modules, "5 s that most commands do not need"
try:
    llm.complete("openai/x", [Message("user", "hello")], should_stop=lambda: False)
except ModelUnavailable:
    print("as expected")
"""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("as expected\n", "", 0)
