"""The scripted model server: the protocol it speaks, the script it follows, and the command that starts it."""

import concurrent.futures
import http.client
import json
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.job import JobSpec, run_job
from agents.llm.client import open_llm
from agents.prompting.parse import candidate_problem, extract_advice, extract_candidate
from agents.prompting.sections import render
from agents.protocols import JSON, Event, Outcome
from service.errors import BadRequest
from service.mock_llm import LlmServer, Script, load_script, request_digest, start_llm_server
from service.mock_llm.protocol import END_OF_SCRIPT, reference_as_candidate
from tasks.load import load_task
from tasks.outcomes import candidate_hash
from tests.support.commands import KERNELWRIGHT, ROOT
from tests.support.cpu_platform import PROMPTS

STARTER = sorted((ROOT / "tasks" / "suites" / "starter").glob("[a-z]*.py"))
REFERENCE = """import torch
import torch.nn as nn

SIZE = 8


class Model(nn.Module):
    def __init__(self, size):
        super(Model, self).__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(4, SIZE)]


def get_init_inputs():
    return [SIZE]
"""


def start(*entries: dict[str, Any], **script: Any) -> LlmServer:
    return start_llm_server({"replies": entries, **script})


def post(server: LlmServer, *texts: str, **fields: Any) -> dict[str, Any]:
    """The response to one user message a text."""
    messages = [{"role": "user", "content": text} for text in texts]
    return call(server, json.dumps({"model": "m", "messages": messages, **fields}).encode())


def call(server: LlmServer, body: bytes, path: str = "/chat/completions") -> dict[str, Any]:
    request = urllib.request.Request(server.url + path, data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        value = json.load(response)
    assert isinstance(value, dict)
    return value


def text_of(response: dict[str, Any]) -> Any:
    return response["choices"][0]["message"]["content"]


def prompt(request: str, **sections: str) -> str:
    return render({"request": request, "reference": REFERENCE, **sections})


@pytest.fixture
def server() -> Iterator[LlmServer]:
    """The server without a script."""
    with start_llm_server() as running:
        yield running


def test_the_openai_client_understands_it() -> None:
    import openai

    calls = [{"name": "sum", "arguments": {"of": [1, 2, 3]}}, {"name": "stop", "arguments": ""}]
    usage = {"prompt_tokens": 5, "completion_tokens": 70, "reasoning_tokens": 9}
    entry = {"text": "on it " * 40, "reasoning": "hm " * 40, "tool_calls": calls, "usage": usage}
    tool = {"type": "function", "function": {"name": "sum", "strict": True, "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "add"}]}]
    with start(entry, entry, key="none") as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["scripted"]
        whole = client.chat.completions.create(model="m", messages=messages, tools=[tool])  # type: ignore[call-overload]
        with client.chat.completions.stream(model="m", messages=messages, tools=[tool]) as stream:  # type: ignore[list-item]
            chunks = sum(event.type == "chunk" for event in stream)
            streamed = stream.get_final_completion()
        assert chunks > 15
        for completion in (whole, streamed):
            choice = completion.choices[0]
            assert (choice.message.content, choice.finish_reason) == ("on it " * 40, "tool_calls")
            assert choice.message.to_dict()["reasoning_content"] == "hm " * 40
            made = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
            assert made == [("sum", '{"of": [1, 2, 3]}'), ("stop", "")]
        assert whole.usage.completion_tokens_details.reasoning_tokens == 9
        assert streamed.usage is None, "it was not asked for"
        asked = client.chat.completions.create(
            model="m",
            messages=messages,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        last = list(asked)[-1]
        assert last.choices == [] and last.usage is not None and last.usage.completion_tokens > 0
    with start() as server, openai.OpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
        answer = client.chat.completions.create(model="m", messages=messages)  # type: ignore[call-overload]
        assert answer.choices[0].message.content == END_OF_SCRIPT


def test_entries_are_used_in_order_and_once_unless_they_repeat() -> None:
    with start({"text": "one"}, {"text": "two"}, {"text": "on and on", "repeat": True}) as server:
        assert [text_of(post(server, "hello")) for _ in range(4)] == ["one", "two", "on and on", "on and on"]
    with start({"text": "one"}) as server:
        assert [text_of(post(server, "hello")) for _ in range(2)] == ["one", END_OF_SCRIPT]


def test_entries_may_say_when() -> None:
    replies = [
        {"text": "a repair", "when": {"request": "repair"}},
        {"text": "advice", "when": {"role": "judge"}, "repeat": True},
        {"text": "code", "when": {"role": "coder"}},
        {"text": "anything"},
    ]
    match = [{"text": "about ReLU", "when": {"contains": "relu", "role": "judge", "request": "judge-repair"}}]
    with start(*replies, match=match) as server:
        asked = [prompt("write"), prompt("judge-improve"), prompt("judge-repair"), prompt("repair"), "hello"]
        assert [text_of(post(server, text)) for text in asked] == [
            "code",
            "advice",
            "about ReLU",
            "a repair",
            "anything",
        ]
        assert text_of(post(server, prompt("judge-repair"), "Answer again, whole.")) == "advice", (
            "a reminder came after"
        )


def test_choice_by_digest_does_not_depend_on_the_order_of_arrival() -> None:
    replies = [{"text": f"reply {number}"} for number in range(7)]
    asked = [f"question {number}" for number in range(40)]
    answers = []
    for order in (asked, asked[::-1]):
        with start({"fault": "overloaded"}, *replies, by_digest=True) as server:

            def answer(text: str, server: LlmServer = server) -> str:
                with pytest.raises(urllib.error.HTTPError) as caught:  # each request meets the fault once
                    post(server, text)
                caught.value.close()
                first, second = text_of(post(server, text)), text_of(post(server, text))
                assert first == second
                return str(first)

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers.append(dict(zip(order, pool.map(answer, order), strict=True)))
            stats = server.stats()
        assert (stats["requests"], stats["replies"], stats["faults"]) == (120, 80, {"overloaded": 40})
        assert set(map(str, stats["digests"].values())) == {str({"requests": 3, "replies": 2})}
    assert answers[0] == answers[1]
    assert len(set(answers[0].values())) == 7


def test_stats_tell_what_was_paid_for_twice() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    with start({"text": "hi", "usage": usage, "repeat": True}) as server:
        for text in ("a", "b", "a"):
            post(server, text)
        with urllib.request.urlopen(server.url.removesuffix("/v1") + "/stats", timeout=20) as response:
            stats = json.load(response)
        assert stats == server.stats()
        assert (stats["requests"], stats["replies"]) == (3, 3)
        assert (stats["prompt_tokens"], stats["completion_tokens"]) == (9, 12)
        again = request_digest([{"role": "user", "content": "a"}])
        assert stats["digests"][again] == {"requests": 2, "replies": 2}
        assert [body["messages"][0]["content"] for body in server.requests] == ["a", "b", "a"]


def test_text_from_a_file_in_a_fence(tmp_path: Path) -> None:
    (tmp_path / "best.py").write_text("class ModelNew:\n    pass\n")
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"text": "Here.", "text_file": "best.py", "fence": "python"}]}))
    with start_llm_server(script) as server:
        text = text_of(post(server, "hello"))
    assert text == "Here.\n\n```python\nclass ModelNew:\n    pass\n```\n"
    assert extract_candidate(text) == "class ModelNew:\n    pass\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[1]", "input should be"),
        ('{"replies": [{"txt": "x"}]}', "replies.0.txt: extra inputs"),
        ('{"replies": [{"text": "x", "fault": "nap"}]}', "replies.0.fault: input should be"),
        ('{"replies": [{}]}', "replies.0: an entry needs a text"),
        ('{"replies": [{"text": "x", "retry_after": 3}]}', "replies.0: retry_after goes with"),
        ('{"match": [{"text": "x"}]}', "each entry of match needs a when"),
        ('{"replies": [{"text": "x", "when": {"role": "boss"}}]}', "replies.0.when.role: input should be"),
        ('{"replies": [{"text": "x", "delay_s": -1}]}', "replies.0.delay_s"),
        ('{"replies": [{"text_file": "gone.py"}]}', "gone.py: cannot be read"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_bad_scripts_are_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    script = tmp_path / "script.json"
    script.write_text(text)
    with pytest.raises(BadRequest) as caught:
        load_script(script)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"script\.json: cannot be read \(No such file"):
        load_script(tmp_path / "script.json")


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{", "/chat/completions", 400),
        (b"[" * 100_000, "/chat/completions", 400),
        (b'{"model": "m"}', "/chat/completions", 400),
        (b'{"model": "m", "messages": ["x"]}', "/chat/completions", 400),
        (b'{"messages": [{"role": "user"}]}', "/chat/completions", 400),
        (b"{}", "/completions", 404),
    ],
)
def test_bad_requests_are_refused(server: LlmServer, body: bytes, path: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(server, body, path)
    with caught.value as error:
        assert error.code == status and json.load(error)["error"]["message"]
    assert server.stats()["requests"] == 0


def test_only_its_own_model_and_key_if_it_has_them() -> None:
    script = Script.model_validate({"replies": [{"text": "hi", "repeat": True}], "key": "sesame"})
    with start_llm_server(script, model="mine") as server:
        for model, key, status in (("mine", "sesame", 200), ("other", "sesame", 404), ("mine", "open", 401)):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            body = json.dumps({"model": model, "messages": [{"role": "user", "content": "x"}]})
            connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {key}"})
            assert connection.getresponse().status == status
            connection.close()
        assert "sesame" not in json.dumps([server.requests, server.stats()])


def test_closing_lets_go_what_hangs() -> None:
    server = start({"fault": "timeout"})

    def hang() -> None:
        with pytest.raises(OSError):
            post(server, "hello")

    caller = threading.Thread(target=hang)
    caller.start()
    while not server.requests:
        time.sleep(0.01)
    started = time.monotonic()
    server.close()
    caller.join(10)
    assert not caller.is_alive() and time.monotonic() - started < 5
    server.close()


@pytest.mark.parametrize("op", STARTER, ids=lambda path: path.stem)
def test_every_op_can_be_given_back_as_a_candidate(op: Path) -> None:
    candidate = reference_as_candidate(load_task(op).source)
    assert candidate is not None and candidate_problem(candidate) is None
    assert "get_inputs" not in candidate and "get_init_inputs" not in candidate


def test_what_is_no_op_is_not_given_back() -> None:
    assert reference_as_candidate("def f(:") is None
    assert reference_as_candidate("class Other: ...") is None


def test_without_a_script_it_answers_any_op(server: LlmServer) -> None:
    text = text_of(post(server, prompt("write")))
    candidate = extract_candidate(text)
    assert "class ModelNew(nn.Module)" in candidate and "super(ModelNew, self)" in candidate
    assert "SIZE = 8" in candidate
    assert text_of(post(server, prompt("write"))) == text
    advice = extract_advice(text_of(post(server, prompt("judge-improve", candidate=candidate, evaluation="{}"))))
    assert advice.stop
    assert "script" in text_of(post(server, "hello"))
    assert "no op" in text_of(post(server, render({"request": "write", "reference": "x = 1"})))


def test_a_job_with_it(server: LlmServer) -> None:
    events: list[Event] = []
    spec = JobSpec("local/op", REFERENCE, "other", "float32", "cpu", "2 cores", PROMPTS, "openai/anything")
    result = run_job(
        spec,
        evaluate=lambda candidate, _: Outcome(candidate_hash(candidate), "passed", speedup=1.0),
        prove=lambda candidate: Outcome(candidate_hash(candidate), "passed", speedup=1.0),
        record=events.append,
        llm=open_llm(api_base=server.url),
        should_stop=lambda: False,
    )
    assert (result.stop_reason, result.rounds_done, result.spent.cost_usd) == ("judge", 1, 0.0)
    assert result.best_source is not None
    assert all(counts == {"requests": 1, "replies": 1} for counts in server.stats()["digests"].values())


class Command:
    """`kernelwright dev llm-server` in a process of its own."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [*KERNELWRIGHT, "dev", "llm-server", *options],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number: signal.Signals | None = None) -> tuple[str, str, int]:
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return out, err, self.process.returncode


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_prints_its_address_and_ends_quietly(number: signal.Signals) -> None:
    command = Command() if number is signal.SIGINT else Command("--json")
    assert command.process.stdout is not None
    line = command.process.stdout.readline()
    url = line.strip() if number is signal.SIGINT else json.loads(line)["url"]
    assert url.startswith("http://127.0.0.1:") and url.endswith("/v1")
    with urllib.request.urlopen(f"{url}/models", timeout=20) as response:
        assert json.load(response)["data"][0]["id"] == "scripted"
    assert command.end(number) == ("", "", 0)


def test_command_refuses_a_bad_script(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"replies": [{"fault": "nap"}]}')
    out, err, status = Command("--script", str(tmp_path / "script.json")).end()
    assert (out, status) == ("", 2)
    assert err.startswith("error: ") and "replies.0.fault" in err and err.count("\n") == 1


def test_command_names_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        out, err, status = Command("--port", str(taken.getsockname()[1])).end()
    assert (out, status) == ("", 3)
    assert "choose another --port" in err and err.count("\n") == 1


@pytest.mark.parametrize("strategy", ["judge", "sample", "contrastive", "tree", "tools"])
def test_the_built_in_script_goes_through_every_strategy_without_a_word_rejected(
    server: LlmServer, strategy: str
) -> None:
    events: list[Event] = []

    def evaluate(candidate: str, champion: str | None = None) -> Outcome:
        figures: dict[str, JSON] = {"latency_ms.candidate": 1.0}
        return Outcome(candidate_hash(candidate), "passed", speedup=1.0, metrics=figures)

    spec = JobSpec(
        "local/op", REFERENCE, "other", "float32", "cpu", "2 cores", PROMPTS, "openai/x", strategy=strategy, rounds=3
    )
    result = run_job(
        spec,
        evaluate=evaluate,
        prove=evaluate,
        record=events.append,
        llm=open_llm(api_base=server.url),
        should_stop=lambda: False,
    )
    assert result.best is not None
    assert [event for event in events if event.kind in ("reply_rejected", "llm_failed")] == []
    assert all(event.data["attempts"] == 1 for event in events if event.kind == "llm_call")
    assert (result.stop_reason == "submitted") == (strategy == "tools")
