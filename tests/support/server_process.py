"""`kernelwright serve` and other commands as processes, for the tests of both together."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def kernelwright(*arguments, within_s=120, **given):
    command = [sys.executable, "-m", "web", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=within_s, check=False, **given)


@contextlib.contextmanager
def serving(*arguments, stop=signal.SIGTERM):
    """A server process; its address and the process, which has ended in good order afterwards."""
    command = [sys.executable, "-m", "web", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://"), process.stderr.read()
        yield address, process
        if process.poll() is None:
            process.send_signal(stop)
            assert process.wait(40) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stderr.close()
        process.wait()
