"""What no runner may ask the kernel for."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]

ASKS = """
import ctypes, errno, platform
from evaluator.referee.fork_server import syscall_filter

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS


def answers(*numbers):
    for number in numbers:
        ctypes.set_errno(0)
        libc.syscall(number, 8, ctypes.create_string_buffer(256), 0, 0, 0, 0)
        yield errno.errorcode.get(ctypes.get_errno(), "")


refused = [425, 426, 427, *{"x86_64": (206, 209, 283, 222), "aarch64": (0, 2, 85, 107)}[platform.machine()]]
beside = sorted({number + step for number in refused for step in (-1, 1)} - set(refused))
before = list(answers(*beside))
taken = syscall_filter.refuse_work_while_stopped()
assert taken
assert list(answers(*refused)) == ["ENOSYS"] * len(refused)
assert list(answers(*(0x40000000 | number for number in refused))) == ["ENOSYS"] * len(refused)
assert list(answers(*beside)) == before, "the numbers beside are those of other calls"
"""

OPENS = """
import ctypes, errno, socket
from evaluator.referee.fork_server import syscall_filter

ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
assert syscall_filter.refuse_work_while_stopped()
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK):
    socket.socket(family, socket.SOCK_DGRAM).close()
for family in (socket.AF_VSOCK, socket.AF_PACKET, socket.AF_ALG, 0):
    try:
        socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        assert error.errno == errno.EAFNOSUPPORT, error
    else:
        raise AssertionError(family)
"""

OF_32_BITS = r"""
#include <stdio.h>
int main() {
    long answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20) : "memory");  // getpid
    printf("%s", answer > 0 ? "answered" : "refused");
}
"""


def test_a_runner_is_told_that_the_kernel_lacks_what_works_while_it_is_stopped() -> None:
    subprocess.run([sys.executable, "-c", ASKS], cwd=ROOT, check=True)


def test_a_runner_may_open_sockets_of_few_families() -> None:
    subprocess.run([sys.executable, "-c", OPENS], cwd=ROOT, check=True)


def test_calls_by_the_numbers_of_other_programs_are_refused(tmp_path: Path) -> None:
    source, program = tmp_path / "old.c", tmp_path / "old"
    source.write_text(OF_32_BITS)
    subprocess.run(["g++", "-x", "c", str(source), "-o", str(program)], check=True)
    run = f"import subprocess; print(subprocess.run(['{program}'], capture_output=True, text=True).stdout)"
    limited = (
        "import ctypes; from evaluator.referee.fork_server import syscall_filter; "
        f"ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); assert syscall_filter.refuse_work_while_stopped(); {run}"
    )
    said = [
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for code in (run, limited)
    ]
    assert said[1] == "refused\n" and said[0] in ("answered\n", "refused\n", "\n")
