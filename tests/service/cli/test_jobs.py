"""Jobs as people run, stop and resume them: real processes, a real sandbox, and a model that answers from a script."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from service.jobs.export import without_header
from tests.fakes import fenced
from tests.support.commands import GOOD, HANG_AT_IMPORT, HANGS, KERNELWRIGHT, OP, WRONG, containers_of, environment

ADVICE = {"bottleneck": "b", "change": "tile it", "expected_speedup": 1.5, "stop": False}
HANG = object()


class Model:
    """An OpenAI-compatible server whose Coder answers from a script; HANG stands for an answer that never comes."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.keys = []
        self.asked_to_hang = threading.Event()
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.keys.append(self.headers["Authorization"])
                text = outer.answer(body["messages"])
                if text is HANG:
                    outer.asked_to_hang.set()
                    outer.over.wait()
                    return
                usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
                chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
                said = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
                chunks = [
                    {**chunk, "choices": [said]},
                    {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                    {**chunk, "choices": [], "usage": usage},
                ]
                data = b"".join(b"data: %s\n\n" % json.dumps(part).encode() for part in chunks) + b"data: [DONE]\n\n"
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def answer(self, messages):
        request = re.search(r"<request>\s*(\S+?)\s*</request>", messages[-1]["content"])[1]
        self.requests.append(request)
        if request.startswith("judge"):
            evidence = ["latency_ms.candidate"] if request == "judge-improve" else []
            return fenced(json.dumps({**ADVICE, "evidence": evidence}), language="json")
        reply = self.script.pop(0)
        return reply if reply is HANG else fenced(reply)

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def model():
    server = Model()
    yield server
    server.close()


class Shell:
    """Runs `kernelwright` in a folder of its own."""

    def __init__(self, folder, model, commands):
        self.folder = folder
        self.commands = commands
        self.model = model
        (folder / "op.py").write_text(OP)
        self.children = []
        self.environment = environment(
            folder, KERNELWRIGHT_API_BASE=model.address, KERNELWRIGHT_MODEL="openai/scripted"
        )

    def start(self, *arguments, **environment):
        number = len(self.children)
        errors = (self.folder / f"stderr{number}").open("w+")
        output = (self.folder / f"stdout{number}").open("w+")
        child = self.commands.start(
            [str(argument) for argument in arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=output.fileno(),
            stderr=errors.fileno(),
        )
        child.texts = (output, errors)
        self.children.append(child)
        return child

    def run(self, *arguments, **environment):
        return self.end(self.start(*arguments, **environment))

    def end(self, child, timeout=120):
        child.wait(timeout)
        child.stdout_text, child.stderr_text = (Path(file.name).read_text() for file in child.texts)
        return child

    def json(self, *arguments):
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr_text
        return json.loads(done.stdout_text)

    def wait_for(self, child, words, timeout=90):
        deadline = time.monotonic() + timeout
        while words not in (text := Path(child.texts[1].name).read_text()):
            assert child.poll() is None, f"ended with {child.returncode} before {words!r}: {text}"
            assert time.monotonic() < deadline, f"no {words!r} in: {text}"
            time.sleep(0.05)

    def close(self):
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            for file in child.texts:
                file.close()


@pytest.fixture
def shell(tmp_path, model, command_server):
    opened = Shell(tmp_path, model, command_server)
    yield opened
    opened.close()


# Running


@pytest.mark.docker
def test_a_job_from_op_to_exported_kernel(shell, model, tmp_path):
    model.script = [WRONG, GOOD]
    done = shell.run("optimize", "op.py", "--rounds", 2, "--out", "fast.py", KERNELWRIGHT_BASELINES="eager,compile")
    assert done.returncode == 0, done.stderr_text
    assert model.requests == ["write", "judge-repair", "repair"]
    assert re.search(r"^ *torch\.compile +\d", done.stdout_text, re.MULTILINE), "the proof is against both"
    assert max(map(len, re.sub(r"/\S+", "", done.stdout_text).splitlines())) <= 80
    for words in ("eager", "torch.compile", "best candidate", "verdict    passed", "roofline", "docker", "fast.py"):
        assert words in done.stdout_text
    for words in ("round 1/2: wrong_output (values)", "the Judge: tile it", "best so far"):
        assert words in done.stderr_text
    assert "\x1b" not in done.stdout_text + done.stderr_text
    kernel = (tmp_path / "fast.py").read_text()
    assert kernel.startswith("# Written by Kernelwright")
    assert without_header(kernel).strip() == GOOD.strip()
    names = {}
    exec(kernel, names)
    for x in (torch.randn(128, 128), torch.randn(127, 128)):
        assert torch.equal(names["ModelNew"]()(x), torch.relu(x) * 2 + 1)
    assert "Speedup over eager" in kernel
    assert "tile it" in (tmp_path / "fast.report.md").read_text()

    (job,) = shell.json("jobs", "list")["jobs"]
    assert (job["status"], job["stop_reason"], job["rounds_done"], job["tokens"]) == ("done", "rounds", 2, 330)
    shown = shell.json("jobs", "show", job["id"])
    assert [line["verdict"] for line in shown["rounds"]] == ["wrong_output", "passed"]
    assert shown["best"]["verdict"] == "passed"
    (entry,) = shell.json("leaderboard")["entries"]
    assert (entry["model"], entry["passed"], entry["evaluations"]) == ("openai/scripted", 2, 3)  # trials count, too
    assert entry["rank"] == (None if set(entry["tags"]) & {"noisy", "beyond_roofline", "too_short", "uneven"} else 1)
    assert entry["sandbox"] == "docker"
    assert "is done" in shell.run("jobs", "resume", job["id"]).stderr_text

    again = shell.run("jobs", "export", job["id"], "--out", "second.py")
    assert again.returncode == 0
    assert (tmp_path / "second.py").read_text() == kernel
    evaluated = shell.json("evaluate", "op.py", "fast.py")
    assert evaluated["verdict"] == "passed"
    assert set(evaluated) >= {
        "schema",
        "code",
        "correctness",
        "speedup",
        "latency_ms",
        "roofline",
        "provenance",
        "cost_s",
    }


@pytest.mark.docker
def test_the_built_in_model_needs_nothing_and_says_what_it_is(shell, model):
    done = shell.run("optimize", "op.py", "--rounds", 1, "--model", "builtin/compiler")
    assert done.returncode == 0, done.stderr_text
    assert "a compiler search, not an LLM" in done.stdout_text
    assert "a compiler search, not an LLM" in done.stderr_text
    assert "verdict    passed" in done.stdout_text
    assert model.requests == []


@pytest.mark.docker
def test_a_failed_candidate_is_a_verdict_and_status_0(shell, tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "crash.py").write_text("raise SystemExit(3)")
    for name, verdict in (("wrong.py", "wrong_output"), ("crash.py", "build_failed")):
        value = shell.json("evaluate", "op.py", name)
        assert (value["verdict"], value["speedup"]) == (verdict, None)
    entries = shell.json("leaderboard")["entries"]
    assert [(entry["model"], entry["rank"], entry["passed"]) for entry in entries] == [("submitted", None, 0)]


@pytest.mark.docker
def test_an_op_that_cannot_be_judged_is_status_2(shell, model, tmp_path):
    (tmp_path / "op.py").write_text(OP.replace("return torch.relu(x) * 2 + 1", "raise ValueError('by design')"))
    model.script = [GOOD]
    done = shell.run("optimize", "op.py", "--rounds", 1)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr_text.splitlines() if line.startswith("error: ")]
    assert "by design" in line
    checked = shell.run("tasks", "check", "op.py")
    assert checked.returncode == 2
    assert "cannot be judged" in checked.stdout_text


def test_without_isolation_the_result_says_so(shell, model):
    model.script = [GOOD]
    done = shell.run("optimize", "op.py", "--rounds", 1, "--sandbox", "process")
    assert done.returncode == 0, done.stderr_text
    assert "no security boundary" in done.stdout_text
    assert "no security boundary" in next((shell.folder / "data/jobs").glob("*/report.md")).read_text()
    assert "no security boundary" in shell.run("leaderboard").stderr_text


def test_code_of_a_foreign_model_never_runs_unprotected_by_itself(shell, model):
    model.script = [GOOD]
    done = shell.run("optimize", "op.py", DOCKER_HOST="unix:///nowhere.sock")
    assert done.returncode == 3
    assert model.requests == []
    evaluated = shell.run("evaluate", "op.py", "op.py", DOCKER_HOST="unix:///nowhere.sock")
    assert evaluated.returncode == 3
    assert "--sandbox process" in evaluated.stderr_text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "anthropic/claude-x"], "ANTHROPIC_API_KEY"),
        (["--model", "nobody-knows-this/model"], "nobody-knows-this"),
        (["--model", "openai/x", "--api-base", "http://127.0.0.1:9/v1"], "127.0.0.1:9"),
    ],
)
def test_no_model_to_work_with_is_status_3_and_one_line(shell, arguments, words):
    done = shell.run("optimize", "op.py", "--sandbox", "process", "--json", *arguments)
    assert done.returncode == 3, done.stderr_text
    (line,) = [line for line in done.stderr_text.splitlines() if line.startswith("error: ")]
    assert words in line
    assert json.loads(done.stdout_text)["error"]["message"] == line.removeprefix("error: ")


def test_a_key_from_a_file_reaches_the_server_and_nothing_else(shell, model, tmp_path):
    (tmp_path / "key").write_text("a-key-of-no-known-form-7\n")
    model.script = [WRONG]
    done = shell.run("optimize", "op.py", "--rounds", 1, "--sandbox", "process", "--api-key-file", "key")
    assert done.returncode == 0, done.stderr_text
    assert model.keys == ["Bearer a-key-of-no-known-form-7"]
    shown = shell.run("jobs", "show", 1, "--json", "--transcript").stdout_text + done.stdout_text + done.stderr_text
    assert "a-key-of-no-known-form-7" not in shown
    for file in (tmp_path / "data").rglob("*"):
        assert not file.is_file() or b"a-key-of-no-known-form-7" not in file.read_bytes(), file
    for content, words in ((None, "cannot be read"), ("", "a key and nothing else"), ("two words", "nothing else")):
        (tmp_path / "key").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "key").write_text(content)
        refused = shell.run("optimize", "op.py", "--sandbox", "process", "--api-key-file", "key")
        assert refused.returncode == 2
        assert words in refused.stderr_text


def test_two_jobs_at_once_take_turns_on_the_device(shell, model):
    model.script = [HANGS, WRONG]
    first = shell.start("optimize", "op.py", "--rounds", 1, "--sandbox", "process")
    shell.wait_for(first, "building the candidate")
    second = shell.start("optimize", "op.py", "--rounds", 1, "--sandbox", "process")
    shell.wait_for(second, "waiting for the device")
    os.kill(first.pid, signal.SIGKILL)
    assert shell.end(second).returncode == 0
    assert "wrong_output" in second.stderr_text


# Stopping and going on


@pytest.mark.docker
def test_ctrl_c_keeps_the_best_and_resume_goes_on(shell, model):
    model.script = [GOOD, HANG]
    child = shell.start("optimize", "op.py", "--rounds", 3, "--json")
    assert model.asked_to_hang.wait(120)
    asked = len(model.requests)
    os.kill(child.pid, signal.SIGINT)
    shell.end(child, timeout=10)
    assert child.returncode == 130
    value = json.loads(child.stdout_text)
    assert (value["job"]["status"], value["best"]["verdict"]) == ("interrupted", "passed")
    assert "class ModelNew" in Path(value["kernel"]).read_text()
    assert "kernelwright jobs resume 1" in child.stderr_text
    assert "Traceback" not in child.stderr_text

    model.script = [WRONG, WRONG]
    resumed = shell.json("jobs", "resume", 1)
    assert model.requests[asked:] == ["improve", "judge-repair", "repair"]  # round 1 is neither asked for nor run again
    assert (resumed["job"]["status"], resumed["job"]["rounds_done"]) == ("done", 3)
    assert "trial" in value["best"]["tags"] and "trial" not in resumed["best"]["tags"], "the end was not reached"
    assert resumed["best"]["provenance"]["candidate"] == value["best"]["provenance"]["candidate"]


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_an_evaluation_leaves_nothing_running(shell, model, number):
    model.script = [HANGS]
    child = shell.start("optimize", "op.py", "--rounds", 3)
    shell.wait_for(child, "building the candidate")
    assert containers_of(child.pid)
    begun = time.monotonic()
    os.kill(child.pid, number)
    shell.end(child, timeout=20)
    assert time.monotonic() - begun < 10
    assert child.returncode == 128 + number
    assert containers_of(child.pid) == []
    (job,) = shell.json("jobs", "list")["jobs"]
    assert (job["status"], job["best_evaluation_id"]) == ("interrupted", None)


@pytest.mark.docker
@pytest.mark.parametrize("arguments", [["evaluate", "op.py", "hangs.py"], ["tasks", "check", "hangs.py"]], ids=" ".join)
def test_other_commands_stop_on_ctrl_c_too(shell, tmp_path, arguments):
    (tmp_path / "hangs.py").write_text(OP + HANG_AT_IMPORT if "check" in arguments else HANGS)
    child = shell.start(*arguments)
    shell.wait_for(child, "building the candidate" if "evaluate" in arguments else "running the op")
    os.kill(child.pid, signal.SIGINT)
    shell.end(child, timeout=20)
    assert child.returncode == 130
    assert containers_of(child.pid) == []
    assert "error: stopped before" in child.stderr_text
    assert "Traceback" not in child.stderr_text


def test_a_second_signal_quits_at_once(shell, model):
    model.script = [HANG]
    child = shell.start("optimize", "op.py", "--sandbox", "process")
    assert model.asked_to_hang.wait(60)
    os.kill(child.pid, signal.SIGSTOP)  # so that both are there before the first is dealt with
    os.kill(child.pid, signal.SIGINT)
    os.kill(child.pid, signal.SIGTERM)
    os.kill(child.pid, signal.SIGCONT)
    shell.end(child, timeout=3)
    assert child.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    (job,) = shell.json("jobs", "list")["jobs"]
    assert job["status"] == "interrupted"


@pytest.mark.docker
def test_kill_9_loses_neither_the_best_nor_a_paid_candidate(shell, model):
    model.script = [GOOD, HANGS]
    child = shell.start("optimize", "op.py", "--rounds", 2)
    shell.wait_for(child, "round 2/2: building the candidate")
    os.kill(child.pid, signal.SIGKILL)
    shell.end(child)
    asked = len(model.requests)
    (job,) = shell.json("jobs", "list")["jobs"]
    assert (job["status"], job["rounds_done"]) == ("interrupted", 1)
    assert shell.json("jobs", "show", 1)["best"]["verdict"] == "passed"
    assert shell.json("db", "check")["ok"]

    resumed = shell.start("jobs", "resume", 1)
    shell.wait_for(resumed, "building the candidate")
    assert containers_of(child.pid) == []  # what the dead one left was swept
    assert len(model.requests) == asked  # its candidate is evaluated, not asked for again
    os.kill(resumed.pid, signal.SIGINT)
    shell.end(resumed, timeout=20)
    assert resumed.returncode == 130
    assert "best candidate" in resumed.stdout_text


def test_a_job_is_cancelled_from_elsewhere_within_seconds(shell, model):
    model.script = [HANGS]
    child = shell.start("optimize", "op.py", "--sandbox", "process", "--json")
    shell.wait_for(child, "building the candidate")
    assert "being worked on" in shell.run("jobs", "resume", 1).stderr_text
    begun = time.monotonic()
    assert "told to stop" in shell.run("jobs", "cancel", 1).stdout_text
    shell.end(child, timeout=20)
    assert time.monotonic() - begun < 8
    assert child.returncode == 0
    assert json.loads(child.stdout_text)["job"]["status"] == "cancelled"
    assert "is cancelled" in shell.run("jobs", "cancel", 1).stdout_text


# On a terminal


def test_on_a_terminal_progress_is_live_and_ctrl_c_reaches_everything(shell, model):
    model.script = [WRONG, HANGS]
    terminal, far_end = os.openpty()
    fcntl.ioctl(far_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    child = subprocess.Popen(
        [*KERNELWRIGHT, "optimize", "op.py", "--rounds", "3", "--sandbox", "process"],
        cwd=shell.folder,
        env={**shell.environment, "TERM": "xterm-256color"},
        stdin=far_end,
        stdout=far_end,
        stderr=far_end,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(far_end)
    seen = ""
    pressed = False
    with os.fdopen(terminal, "rb", buffering=0) as screen:
        while True:
            try:
                seen += screen.read(65536).decode(errors="replace")
            except OSError:  # the child has closed its end
                break
            if not pressed and "round 2 of 3: building the candidate" in seen:
                os.write(terminal, b"\x03")
                pressed = True
    assert child.wait(30) == 130, seen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    for words in ("round 1 of 3: ", "wrong_output (values)", "tile it", "best none yet", "No candidate passed"):
        assert words in text
    assert "kernelwright jobs resume 1" in text
    assert "Traceback" not in text
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")  # the cursor is back
    assert max(len(line) for line in re.split(r"[\r\n]+", text) if "/" not in line) <= 80
