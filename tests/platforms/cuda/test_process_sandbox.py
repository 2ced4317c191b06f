"""Platform `cuda` without Docker."""

import subprocess
import sys

import pytest

from sandbox.process.sandbox import ProcessSandbox
from tests.platforms.cuda.candidates import HONEST
from tests.platforms.screened import SHOWN, judged

BOUNDED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
from evaluator.referee.runner.platforms.cuda import building, checking
checking.see_that_it_can_run("plain")
for kind in ("thread", "address"):
    try:
        checking.see_that_it_can_run(kind)
    except building.BuildError as error:
        print(error)
"""


@pytest.mark.xdist_group("cuda_screening")
def test_all_is_shown_without_docker_too(process_sandbox: ProcessSandbox) -> None:
    case = next(iter(HONEST.values()))
    found = judged(process_sandbox, case, "cuda")
    assert found.verdict == "screened", found.message
    assert set(found.tags) >= SHOWN, found.profile["missing"]


def test_where_addresses_are_limited_it_is_said_why_sanitizers_cannot_run() -> None:
    done = subprocess.run([sys.executable, "-c", BOUNDED], check=True, capture_output=True, text=True)
    assert [line.split()[:3] for line in done.stdout.splitlines()] == [
        ["the", kind, "sanitizer"] for kind in ("thread", "address")
    ]
    assert done.stdout.count("run it as root, or in Docker") == 2
