"""Each way for a runner to end, under each step of the referee's: its end is what is found, and no other guilt."""

import json
import shutil
from pathlib import Path

import pytest

from evaluator.referee_process import REFEREE
from sandbox.base import Command, Limits, Sandbox
from tests.support.ending_runners.__main__ import ROLES, WAYS, stopped

pytestmark = pytest.mark.docker
PACKAGE = Path(__file__).parents[1] / "support" / "ending_runners"
MEMORY_MB = 640

IN_ITS_TURN = {  # of the candidate, of eager; of the champion and the compile baseline by the same words
    "SIGKILL": ("crashed", "task_invalid"),
    "SIGSEGV": ("crashed", "task_invalid"),
    "exit 0": ("crashed", "task_invalid"),
    "exit 1": ("crashed", "task_invalid"),
    "exception": ("crashed", "task_invalid"),
    "no answer": ("timed_out", "task_invalid/timed_out"),
    "SIGSTOP": ("timed_out", "task_invalid/timed_out"),
    "memory": ("out_of_memory", "task_invalid/out_of_memory"),
}
WORDS = {
    "SIGKILL": "ended by SIGKILL",
    "SIGSEGV": "ended by SIGSEGV",
    "exit 0": "exited with status 0",
    "exit 1": "exited with status 1",
    "exception": "on purpose",
    "no answer": "no answer within",
    "SIGSTOP": "no answer within",
    "memory": "the kernel killed the process because the sandbox had no memory left",
}
STOPPED = {
    ("candidate", "kill"): "crashed",
    ("candidate", "memory"): "out_of_memory",
    ("eager", "kill"): "task_invalid",
    ("eager", "memory"): "task_invalid/out_of_memory",
}
# Of one of which nothing is freed yet these may still be told, and read as it stood; whoever asks it next finds out.
TELLS_NOTHING = {"at once": {"read", "flip", "places", "see_still", "disturbance", "look"}, "gone": {"see_still"}}


@pytest.fixture(scope="module")
def told(docker_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What the referee made of each, in one container."""
    package = tmp_path_factory.mktemp("package") / "ending_runners"
    shutil.copytree(PACKAGE, package)
    shutil.copytree(REFEREE, package / "referee")
    done = docker_sandbox.run(Command(package, limits=Limits(wall_s=280, memory_mb=MEMORY_MB)))
    assert done.exit_code == 0, done.stderr.decode()[-4000:]
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", ROLES)
def test_a_runner_that_ends_in_its_turn(told: dict[str, dict[str, str]], role: str, way: str) -> None:
    found = told[f"{role}: {way}"]
    of_candidate, of_eager = IN_ITS_TURN[way]
    # What kills a baseline and is not known may be what the candidate left behind.
    of_compile = "sandbox_error/baseline_lost" if way == "SIGKILL" else "left out"
    expected = {
        "candidate": of_candidate, "champion": "without champion", "eager": of_eager, "compile": of_compile
    }[role]  # fmt: skip
    assert found["verdict"] == expected, found
    assert WORDS[way] in found["message"]
    if role == "compile":
        assert found["message"].startswith("the baseline torch.compile failed in a timed call: ")
    assert ("the reference failed" in found["message"]) is (role == "eager")


@pytest.mark.parametrize(("name", "role", "end", "moment", "step"), stopped())
def test_a_runner_that_is_killed_while_it_is_stopped(
    told: dict[str, dict[str, str]], name: str, role: str, end: str, moment: str, step: str
) -> None:
    found = told[name]
    allowed = {STOPPED[role, end]} | ({"nothing"} if step in TELLS_NOTHING[moment] else set())
    assert found["verdict"] in allowed, found
    if found["verdict"] != "nothing":
        assert WORDS["SIGKILL" if end == "kill" else "memory"] in found["message"]
        assert float(found["seconds"]) < 20, "it is not waited for one that is gone"
