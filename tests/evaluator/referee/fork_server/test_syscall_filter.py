"""What no runner may ask the kernel for."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]

ASKS = """
import ctypes, errno
from evaluator.referee.fork_server import syscall_filter

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def answers(*numbers):
    for number in numbers:
        ctypes.set_errno(0)
        libc.syscall(number, 8, ctypes.create_string_buffer(256), 0, 0, 0, 0)
        yield errno.errorcode.get(ctypes.get_errno(), "")


before = list(answers(*range(424, 429)))
taken = syscall_filter.refuse_io_uring()
after = list(answers(*range(424, 429)))
assert taken
assert after[1:4] == ["ENOSYS"] * 3, after
assert list(answers(*(0x40000000 | number for number in range(425, 428)))) == ["ENOSYS"] * 3
assert (after[0], after[4]) == (before[0], before[4]), "the numbers beside are those of other calls"
"""


def test_a_runner_is_told_that_the_kernel_has_no_io_uring() -> None:
    subprocess.run([sys.executable, "-c", ASKS], cwd=ROOT, check=True)
