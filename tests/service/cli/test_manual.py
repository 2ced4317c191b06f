"""A job whose Coder and Judge are files, from the command line: answered, interrupted and taken up again."""

import json
import signal
import subprocess
import time

import pytest

from tests.support.commands import GOOD, KERNELWRIGHT, OP, environment

ADVICE = {"bottleneck": "b", "evidence": ["latency_ms.candidate"], "change": "nothing is left", "stop": True}


@pytest.fixture
def start(tmp_path):
    (tmp_path / "op.py").write_text(OP)
    variables = environment(tmp_path, KERNELWRIGHT_SANDBOX="process")
    children = []

    def run(*arguments):
        child = subprocess.Popen(
            [*KERNELWRIGHT, *arguments],
            cwd=tmp_path,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


def wait_for(path, child, timeout=60):
    deadline = time.monotonic() + timeout
    while not path.exists():
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def test_prompts_are_answered_by_files_and_a_resumed_job_asks_nothing_twice(start, tmp_path):
    inbox = tmp_path / "inbox"
    child = start("optimize", "op.py", "--model", "manual/inbox", "--rounds", "2")
    wait_for(inbox / "001-write.prompt.md", child)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=20)
    assert child.returncode == 130
    assert "waiting for inbox/001-write.reply.md" in errors
    assert "Traceback" not in errors

    (inbox / "001-write.reply.py").write_text(GOOD)
    resumed = start("jobs", "resume", "1", "--json")
    wait_for(inbox / "002-judge-improve.prompt.md", resumed)
    assert "torch.relu" in (inbox / "002-judge-improve.prompt.md").read_text()
    (inbox / "002-judge-improve.reply.json").write_text(json.dumps(ADVICE))
    output, errors = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, errors
    value = json.loads(output)
    assert (value["best"]["verdict"], value["stop"]["reason"]) == ("passed", "judge")
    assert (value["job"]["cost_usd"], value["job"]["model"]) == (0.0, "manual/inbox")
    assert len(list(inbox.glob("*.prompt.md"))) == 2
    transcript, _ = start("jobs", "show", "1", "--transcript").communicate(timeout=30)
    assert "-- call 2, round 1: judge, judge-improve" in transcript


def test_a_folder_that_cannot_be_used_is_status_3_and_one_line(start, tmp_path):
    (tmp_path / "inbox").write_text("a file")
    child = start("optimize", "op.py", "--model", "manual/inbox", "--rounds", "1")
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 3
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert "inbox cannot be used: there is a file where a folder is needed" in line
