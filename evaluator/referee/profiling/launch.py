"""A seated runner turned into a profiled one: another program on the same socket, with the compiler's shim on PATH."""

import os
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from ..isolation.handle import Handle
from ..pool.runner_pool import Bench
from . import compiler_remarks

_MAX_FILES = 400

# Runs in the runner, before anything foreign does. The program that it becomes answers the message.
_BECOME = """
import os, stat
from pathlib import Path

scratch = Path.cwd() / "profile"
(scratch / "bin").mkdir(parents=True)
Path.cwd().chmod(0o711)  # the referee, root without root's rights over files, reads what lies in `scratch`
scratch.chmod(0o755)
for name, text in {shims!r}.items():
    path = scratch / "bin" / name
    path.write_text(text.replace("@REMARKS@", str(scratch)))
    path.chmod(0o755)
(scratch / "compiler").write_text({compiler!r})
os.environ["PATH"] = str(scratch / "bin") + ":" + os.environ["PATH"]
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode):
            sock = fd
    except OSError:
        pass
os.set_inheritable(sock, True)
os.execv({argv!r}[0], [*{argv!r}, str(sock)])
"""


@dataclass(frozen=True)
class Seat:
    """A profiled runner and the folder in its home that holds what the compiler said."""

    handle: Handle
    folder: Path


def seat(bench: Bench, *, timeout_s: float) -> Seat:
    """Seat a profiled runner.

    Raises:
        RunnerFailed: its program cannot be started.
    """
    handle = bench.seat("candidate")
    package = __package__.rpartition(".")[0]
    source = become([sys.executable, "-P", "-s", "-m", f"{package}.runner.profiling.main"])
    message = {"op": "load", "source": source, "name": "become", "needs": "never", "seed": 0}
    handle.ask(message, timeout_s=timeout_s)
    # Nothing foreign has run in there yet, so this is no claim.
    return Seat(handle, Path(os.readlink(f"/proc/{handle.pid}/cwd")) / "profile")  # noqa: PTH115


def become(argv: list[str]) -> str:
    """Python source that turns the process running it into `argv`, with a shim for each compiler there is."""
    found = {name: shutil.which(name) for name in compiler_remarks.COMPILERS}
    shims = {name: compiler_remarks.shim(path, "@REMARKS@") for name, path in found.items() if path is not None}
    return _BECOME.format(shims=shims, compiler=found["g++"] or "g++", argv=argv)


def read_claimed(path: Path, limit_bytes: int) -> str:
    """The text of a plain file that a candidate's process may have written, tampered with or replaced.

    Raises:
        OSError: it is no plain file, or cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{path.name} is no plain file")
        return stream.read(limit_bytes).decode("utf-8", "replace")


def files(folder: Path, start: str) -> list[Path]:
    """Files of a folder whose names begin so, at most 400 of them, in order of name."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(10 * _MAX_FILES), entries, strict=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.startswith(start)][:_MAX_FILES]
