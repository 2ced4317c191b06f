"""`kernelwright mcp` as an agent meets it: the real command over stdio, spoken to by the SDK's own client."""

import json
import re
import shlex
import signal
import subprocess
import time
from types import SimpleNamespace

import anyio
import pytest
from mcp import Client, StdioServerParameters, stdio_client

from service.mcp.tools import MAX_ENTRIES, MAX_TEXT_CHARS, bounded, tool_specs
from tests.platforms import kits
from tests.support.commands import GOOD, HANGS, KERNELWRIGHT, OP, ROOT, WRONG, containers_of, environment

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
NO_DOCKER = {"DOCKER_HOST": "unix:///nowhere.sock"}


class Left(Exception):
    """The client goes without a word."""


class Workplace:
    """A folder in which the server runs, and ways to talk to it."""

    def __init__(self, folder):
        self.folder = folder
        self.errors = folder / "stderr"
        self.processes = []
        (folder / "op.py").write_text(OP)
        self.environment = environment(folder)

    def talk(self, conversation, *arguments, **environment):
        """Run `conversation(client)` with a client that has just started the server."""
        start = f'echo $$ > pid; exec {shlex.join(KERNELWRIGHT)} mcp "$@"'
        server = StdioServerParameters(
            command="bash",
            args=["-c", start, "bash", *arguments],
            env={**self.environment, **environment},
            cwd=self.folder,
        )

        async def run():
            with self.errors.open("w") as errors, anyio.fail_after(150):
                async with Client(stdio_client(server, errlog=errors)) as client:
                    return await conversation(client)

        return anyio.run(run)

    def call(self, tool, /, *arguments, environment=None, **values):
        """The result of one call of one tool."""
        return self.talk(lambda client: client.call_tool(tool, values), *arguments, **(environment or {}))

    def start(self, *arguments):
        """The server as a bare process."""
        with self.errors.open("w") as errors:
            process = subprocess.Popen(
                [*KERNELWRIGHT, "mcp", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes.append(process)
        return process

    def close(self):
        for process in self.processes:
            process.kill()
            process.stdin.close()
            process.stdout.close()
            process.wait()

    @property
    def pid(self):
        return int((self.folder / "pid").read_text())


@pytest.fixture
def server(tmp_path):
    workplace = Workplace(tmp_path)
    yield workplace
    workplace.close()


def text_of(result):
    (content,) = result.content
    return content.text


def refusal(result):
    """The one line of a tool error."""
    assert result.is_error
    text = text_of(result)
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def say(process, message):
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


# The protocol


def test_the_tools_are_listed_with_their_arguments(server):
    async def conversation(client):
        return client.server_info, client.instructions, await client.list_tools()

    info, instructions, listed = server.talk(conversation)
    assert info.name == "kernelwright"
    assert "evaluate" in instructions
    tools = {tool.name: tool for tool in listed.tools}
    assert set(tools) == {"evaluate", "profile", "task", "leaderboard"}
    assert set(tools["evaluate"].input_schema["properties"]) == {
        "op",
        "op_source",
        "name",
        "candidate",
        "candidate_source",
        "platform",
    }
    assert "sandbox" not in json.dumps([tool.input_schema for tool in listed.tools])  # a client cannot choose it
    assert tools["task"].annotations.read_only_hint
    assert not tools["evaluate"].annotations.read_only_hint
    assert server.errors.read_text() == ""


def test_stdout_carries_the_protocol_and_nothing_else(server):
    process = server.start()
    messages = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "task", "arguments": {}}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "leaderboard", "arguments": {}}},
    ]
    lines = []
    for message in messages:
        say(process, message)
        if "id" in message:
            lines.append(json.loads(process.stdout.readline()))
    process.stdin.write("this is no JSON\n")
    process.stdin.close()
    assert process.wait(30) == 0
    assert process.stdout.read() == ""
    assert [line["id"] for line in lines] == [1, 2, 3]
    assert lines[1]["result"]["structuredContent"]["schema"] == "kernelwright.tasks/1"
    assert "Traceback" not in server.errors.read_text()


def test_a_signal_ends_the_server(server):
    process = server.start()
    say(process, HELLO)
    assert json.loads(process.stdout.readline())["id"] == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == 128 + signal.SIGTERM


# Tasks and the leaderboard


def test_tasks_are_listed_shown_and_validated(server):
    async def conversation(client):
        listed = await client.call_tool("task", {"action": "list", "suite": "starter"})
        shown = await client.call_tool("task", {"action": "show", "op": "starter/rmsnorm_gelu"})
        valid = await client.call_tool("task", {"action": "validate", "op_source": OP, "name": "mine"})
        return listed, shown, valid, await client.call_tool("task", {"action": "show", "op": "op.py"})

    listed, shown, valid, from_file = server.talk(conversation)
    assert "starter/rmsnorm_gelu" in [task["task"] for task in listed.structured_content["tasks"]]
    assert "class Model" in shown.structured_content["source"]
    assert json.loads(text_of(shown)) == shown.structured_content
    assert valid.structured_content["task"] == "local/mine"
    assert "source" not in valid.structured_content
    assert from_file.structured_content["source"] == OP


REFUSED = [
    ("nonsense", {}, "there are: evaluate, profile, task, leaderboard"),
    ("task", {"action": "dance"}, "action: "),
    ("task", {"actoin": "list"}, "actoin: extra inputs are not permitted"),
    ("task", {"action": "list", "suite": "nonsense"}, "nonsense"),
    ("task", {"action": "validate"}, "op, op_source: give one of them"),
    ("task", {"action": "validate", "op": "op.py", "op_source": OP}, "op, op_source: give one of them"),
    ("task", {"action": "validate", "op_source": "def oops("}, "op_source:1"),
    ("task", {"action": "validate", "op_source": "x = '\x1b[2J' +"}, "op_source:1"),
    ("task", {"action": "validate", "op_source": OP, "name": "../x"}, "name: "),
    ("task", {"action": "show", "op": "starter/nonsense"}, "no such task"),
    ("task", {"action": "show", "op": "missing.py"}, "missing.py: no such file"),
    ("task", {"action": "show", "op": "/etc/passwd"}, "no such task"),
    ("task", {"action": "show", "op": "link.py"}, "not a .py file"),
    ("evaluate", {"op": "op.py"}, "candidate, candidate_source: give one of them"),
    ("evaluate", {"op": "op.py", "candidate": "/etc/passwd"}, "not a .py file"),
    ("evaluate", {"op": "op.py", "candidate": "link.py"}, "not a .py file"),
    ("evaluate", {"op": "op.py", "candidate": "missing.py"}, "missing.py"),
    ("evaluate", {"op": "op.py", "candidate_source": GOOD, "platform": "abacus"}, "platform 'abacus' is unknown"),
    ("evaluate", {"op": "op.py", "candidate_source": "é" * 600_000}, "larger than 1 MiB"),
    ("evaluate", {"op_source": GOOD, "candidate_source": GOOD}, "it is a candidate and not an op"),
    ("leaderboard", {"limit": 0}, "limit: "),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What one server answers to each call, and what it wrote to standard error."""
    workplace = Workplace(tmp_path_factory.mktemp("refused"))
    (workplace.folder / "secret").write_text("hunter2 = hunter3 hunter4")
    (workplace.folder / "link.py").symlink_to(workplace.folder / "secret")

    async def conversation(client):
        return [await client.call_tool(tool, values) for tool, values, _ in REFUSED]

    return workplace.talk(conversation), workplace.errors.read_text()


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda number: f"{number}-{REFUSED[number][2]}")
def test_what_cannot_be_done_is_one_clear_line(refused, number):
    results, errors = refused
    line = refusal(results[number])
    assert REFUSED[number][2] in line
    assert "hunter2" not in line
    assert not any(ord(char) < 32 for char in line)
    assert "Traceback" not in errors


def test_a_fault_of_ours_is_not_shown_to_the_client(server):
    (server.folder / "sitecustomize.py").write_text(
        "import service.mcp.tools as tools\n"
        "def fail(*_): raise ZeroDivisionError('password hunter2')\n"
        "tools.list_tasks = fail\n"
    )
    path = f"{server.folder}:{ROOT}"
    line = refusal(server.call("task", environment={"PYTHONPATH": path}))
    assert line == "internal error (ZeroDivisionError); the server's stderr says more"
    assert "hunter2" in server.errors.read_text()


def test_the_leaderboard_of_an_empty_store_is_empty(server):
    result = server.call("leaderboard", suite="starter")
    assert not result.is_error
    assert result.structured_content == {"schema": "kernelwright.leaderboard/1", "entries": [], "left_out": 0}


def test_no_store_to_work_with_is_said_without_its_password(server):
    url = "postgresql+psycopg://me:hunter2@127.0.0.1:9/x"
    line = refusal(server.call("leaderboard", environment={"KERNELWRIGHT_DATABASE_URL": url}))
    assert "hunter2" not in line + server.errors.read_text()


# Evaluations


def test_without_docker_nothing_of_a_client_runs(server):
    line = refusal(server.call("evaluate", environment=NO_DOCKER, op="op.py", candidate_source=GOOD))
    assert "--sandbox process" in line
    assert server.call("leaderboard").structured_content["entries"] == []


@pytest.mark.docker
def test_a_candidate_is_evaluated_with_progress_and_lands_on_the_leaderboard(server):
    steps = []

    async def conversation(client):
        async def on_progress(progress, total, message):
            steps.append((progress, message))

        good = {"op_source": OP, "name": "mine", "candidate_source": GOOD}
        passed = await client.call_tool("evaluate", good, progress_callback=on_progress)
        failed = await client.call_tool("evaluate", {"op": "op.py", "candidate_source": WRONG})
        return passed, failed, await client.call_tool("leaderboard", {"suite": "local"})

    passed, failed, board = server.talk(conversation)
    evaluation = passed.structured_content
    assert evaluation["schema"] == "kernelwright.evaluation/1"
    assert evaluation["verdict"] == "passed", evaluation
    assert evaluation["speedup"]["eager"]["low"] > 0
    assert evaluation["provenance"]["sandbox"]["name"] == "docker"
    assert json.loads(text_of(passed)) == evaluation
    assert [progress for progress, _ in steps] == sorted({progress for progress, _ in steps})
    assert any("candidate" in message for _, message in steps)
    assert (failed.structured_content["verdict"], failed.structured_content["speedup"]) == ("wrong_output", None)
    entries = board.structured_content["entries"]
    assert {(entry["task"], entry["model"], entry["passed"]) for entry in entries} == {
        ("local/mine", "submitted", 1),
        ("local/op", "submitted", 0),
    }


@pytest.mark.docker
def test_a_profile_says_where_the_time_goes(server):
    value = server.call("profile", op="op.py", candidate_source=GOOD).structured_content
    assert value["schema"] == "kernelwright.profile/1"
    assert (value["verdict"], value["timed"]) == ("passed", "wall")
    assert len(value["text"]) > 100


@pytest.mark.docker
def test_a_profile_of_a_screened_candidate_says_that_nothing_was_timed(server):
    value = server.call("profile", op_source=kits.OP, candidate_source=kits.cuda(), platform="cuda").structured_content
    assert (value["verdict"], value["timed"], value["speedup"]) == ("screened", "nothing", None)
    assert "not timed: screened without a GPU" in value["text"]
    assert "kernel: scaled_relu_kernel" in value["text"]


@pytest.mark.docker
@pytest.mark.parametrize("way", ["cancel", "leave"])
def test_a_call_that_nobody_waits_for_leaves_nothing_running(server, way):
    async def conversation(client):
        building = anyio.Event()

        async def on_progress(progress, total, message):
            if "building the candidate" in message:
                building.set()

        async with anyio.create_task_group() as group:

            async def evaluate():
                values = {"op": "op.py", "candidate_source": HANGS}
                await client.call_tool("evaluate", values, progress_callback=on_progress)

            group.start_soon(evaluate)
            await building.wait()
            assert containers_of(server.pid)
            if way == "leave":
                raise Left
            group.cancel_scope.cancel()
        with anyio.fail_after(10):
            while containers_of(server.pid):
                await anyio.sleep(0.2)
        return await client.call_tool("task", {"action": "list"})

    if way == "cancel":
        assert not server.talk(conversation).is_error
    else:
        with pytest.raises(BaseExceptionGroup) as caught:
            server.talk(conversation)
        assert caught.group_contains(Left)
    deadline = time.monotonic() + 10
    while containers_of(server.pid):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_long_evaluation_keeps_nobody_waiting_and_ends_with_its_client(server):
    process = server.start("--sandbox", "process")
    say(process, HELLO)
    process.stdout.readline()
    values = {"op": "op.py", "candidate_source": HANGS}
    meta = {"progressToken": "p"}
    call = {"name": "evaluate", "arguments": values, "_meta": meta}
    say(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    while "building the candidate" not in (line := process.stdout.readline()):
        assert json.loads(line)["method"] == "notifications/progress"
    asked = {"name": "task", "arguments": {"action": "list"}}
    say(process, {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": asked})
    while (answer := json.loads(process.stdout.readline())).get("id") is None:
        pass
    assert answer["id"] == 3
    begun = time.monotonic()
    process.stdin.close()
    assert process.wait(10) == 0
    assert time.monotonic() - begun < 5
    (job,) = json.loads(run(server, "jobs", "list", "--all", "--json"))["jobs"]
    assert (job["status"], job["stop_reason"]) == ("cancelled", "cancelled")


def test_a_signal_ends_the_evaluation_first(server):
    process = server.start("--sandbox", "process")
    say(process, HELLO)
    process.stdout.readline()
    call = {"name": "evaluate", "arguments": {"op": "op.py", "candidate_source": HANGS}, "_meta": {"progressToken": 1}}
    say(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    while "building the candidate" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 128 + signal.SIGINT
    (job,) = json.loads(run(server, "jobs", "list", "--all", "--json"))["jobs"]
    assert (job["status"], job["stop_reason"]) == ("cancelled", "interrupted")


def run(server, *arguments):
    done = subprocess.run(
        [*KERNELWRIGHT, *arguments],
        cwd=server.folder,
        env=server.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


# Bounds


def test_answers_are_bounded_and_say_so():
    shown = bounded({"detail": "x" * 100_000, "list": list(range(1000)), "n": 1.5, "nothing": None})
    assert len(shown["detail"]) < MAX_TEXT_CHARS + 100
    assert "characters left out" in shown["detail"]
    assert len(shown["list"]) == MAX_ENTRIES + 1
    assert shown["list"][-1] == "... 500 more left out"
    assert (shown["n"], shown["nothing"]) == (1.5, None)


def test_every_argument_is_bounded():
    for tool in tool_specs():
        for name, schema in tool.arguments.model_json_schema()["properties"].items():
            text = json.dumps(schema)
            assert re.search('"(maxLength|maximum|enum|pattern)"', text), (tool.name, name)
            assert SimpleNamespace(**schema).description
