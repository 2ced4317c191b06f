"""Measuring what calls touch: what is counted, how failures are told, and what an op cannot do to others."""

import pytest

from evaluator.sizes import CallSizes, Ladder, Measured, MeasuringFailed, measure_sizes
from sandbox.base import Command, Completed, Sandbox
from sandbox.choose import choose_sandbox
from tests.support.fast_batches import OP

HALF = OP.format(factor=2).replace("randn(8, 8)", "randn(8, 8, dtype=torch.float16)")
FORGES = """import json, os, re
for fd in range(3, 64):
    try:
        os.write(fd, b'\\n' + json.dumps({"sizes": {"inputs": -1}}).encode() + b'\\n')
        os.write(fd, b'\\n' + json.dumps({"task": 2, "sizes": [], "error": "forged"}).encode() + b'\\n')
    except OSError:
        pass
"""


def test_each_op_is_measured_in_a_process_of_its_own():
    sandbox = choose_sandbox("process", own_code_only=True, image="")
    sources = {
        "half": HALF,
        "large": OP.format(factor=2).replace("8, 8", "80000, 80000"),
        "exits": "raise SystemExit(3)\n" + HALF,
        "looks": HALF.replace("* 2", "* float(x[0, 0])"),
        "forges": FORGES + HALF,
        "hungry": HALF.replace("return [torch.randn", "float(torch.ones(60000, 60000)[0, 0]); return [torch.randn"),
        "last": HALF,
    }
    found = measure_sizes(
        [Ladder((source,)) for source in sources.values()], sandbox=sandbox, limit_bytes=10**6, memory_mb=2048
    )
    sizes = dict(zip(sources, found, strict=True))
    fits = Measured((CallSizes(128, 0, 128),))
    assert sizes["half"] == fits and sizes["last"] == fits
    assert sizes["large"].sizes[0].moved == 2 * 4 * 80000**2
    assert sizes["looks"] == Measured((CallSizes(128, 0, 128, real=True),))
    assert "SystemExit" in sizes["exits"].error
    assert sizes["forges"] == Measured((), "its code told what are no sizes")
    assert sizes["hungry"].sizes[0].inputs is None and "memory" in sizes["hungry"].sizes[0].error


REACHES = """import os, signal, time
if os.fork() == 0:
    os.setsid()
    while True:  # what is left of a task must not reach the next ones
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                pid in (1, os.getpid(), os.getppid()) or os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
time.sleep(0.5)
try:
    os.kill(os.getppid(), signal.SIGKILL)
except PermissionError:
    pass
else:
    raise RuntimeError("the program that measures was killed")
"""


@pytest.mark.docker
def test_in_a_container_no_op_reaches_the_program_or_another_op(docker_sandbox: Sandbox) -> None:
    sources = (HALF, REACHES + HALF, HALF, HALF)
    found = measure_sizes(
        [Ladder((source,)) for source in sources], sandbox=docker_sandbox, limit_bytes=10**6, memory_mb=2048
    )
    fits = Measured((CallSizes(128, 0, 128),))
    assert [found[0], *found[2:]] == [fits] * 3
    assert found[1] == fits or "signal 9" in found[1].error, "its own process may have killed it"


class _Ends:
    """A sandbox whose command ends with this output."""

    def __init__(self, stdout: bytes) -> None:
        self.stdout = stdout

    def run(self, command: Command, **_: object) -> Completed:
        return Completed(None, self.stdout, b"killed", 1.0)


def test_a_program_that_answers_nothing_is_an_error_and_not_a_size():
    for stdout in (b"", b"[]\n{\n", b'{"task": 1, "sizes": [], "error": ""}\n'):
        with pytest.raises(MeasuringFailed, match="sizes cannot be measured: killed"):
            measure_sizes([Ladder((HALF,))], sandbox=_Ends(stdout), limit_bytes=1, memory_mb=1)  # type: ignore[arg-type]
