"""`kernelwright serve` and other commands as processes, for the tests of both together."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "web")


def kernelwright(commands, *arguments, within_s=120):
    """Run a command to its end, in this process's environment; `commands` is a CommandServer."""
    return commands.run(arguments, cwd=ROOT, env=os.environ, within_s=within_s)


def started(commands, *arguments):
    """A command that runs, in a session of its own, whose streams are pipes; from nothing where `commands` is None."""
    if commands is None:
        pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, text=True, start_new_session=True, **pipes)
    streams = [os.pipe() for _ in range(2)]
    stdout, stderr = (writing for _, writing in streams)
    process = commands.start(arguments, cwd=ROOT, env=os.environ, stdout=stdout, stderr=stderr)
    os.close(stdout)
    os.close(stderr)
    process.stdout, process.stderr = (os.fdopen(reading) for reading, _ in streams)
    return process


@contextlib.contextmanager
def serving(commands, *arguments, stop=signal.SIGTERM):
    """A server process; its address and the process, which has ended in good order afterwards."""
    process = started(commands, "serve", "--port", "0", *arguments)
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
