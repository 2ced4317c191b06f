"""Run in a container beside a copy of the referee: imports torch once, then forks a referee for each request.

Standard input holds requests, each with its length before it. For each one, standard output gets what the referee
printed and said on standard error and its exit status, and what is left in the container. The referee is
the product's own, run as `python3 -m referee MODE PLATFORM` would; it alone skips importing what is imported already.
"""

import contextlib
import json
import os
import runpy
import shutil
import signal
import struct
import sys
import time
from importlib import import_module
from pathlib import Path

LENGTH = struct.Struct(">Q")
OWN_FOLDERS = ("/tmp", "/dev/shm")


def main() -> None:
    """Serve until standard input ends."""
    mode, platform = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    from referee.fork_server import imports
    from referee.runner.platforms.load import load_runner_platform

    imports.import_torch(platform)
    import_module("referee.fork_server.server")  # what fork servers import, which holds neither secret nor state
    load_runner_platform(platform)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    before = traces()
    while head := requests.read(LENGTH.size):
        request = requests.read(LENGTH.unpack(head)[0])
        input_file, output, errors = (os.memfd_create(name) for name in ("input", "output", "errors"))
        os.write(input_file, request)
        os.lseek(input_file, 0, os.SEEK_SET)
        child = os.fork()
        if child == 0:
            become_referee(mode, platform, (input_file, output, errors), (requests.fileno(), replies.fileno()))
        _, status = os.waitpid(child, 0)
        reply = json.dumps(
            {
                "exit_code": os.waitstatus_to_exitcode(status),
                "stdout": contents(output),
                "stderr": contents(errors),
                "left": left_by(before),
            }
        ).encode()
        for descriptor in (input_file, output, errors):
            os.close(descriptor)
        replies.write(LENGTH.pack(len(reply)) + reply)
        replies.flush()


def become_referee(mode: str, platform: str, streams: tuple[int, int, int], closed: tuple[int, int]) -> None:
    """Run the referee with these streams; never returns."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    for descriptor in (*streams, *closed):
        os.close(descriptor)
    from referee.fork_server import imports

    imports.import_torch = lambda platform: None
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    sys.argv[:] = ["referee", mode, platform]
    try:
        runpy.run_module("referee", run_name="__main__", alter_sys=True)
    finally:
        os._exit(70)


def contents(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        return stream.read().decode("utf-8", "surrogateescape")


def left_by(before: set[str]) -> list[str]:
    """What an evaluation has left: processes, System V objects, and files that their owner could not remove.

    The referee leaves the folders of the runners that it trusts, as its container is removed.
    """
    remove_files(before)
    for _ in range(50):
        if not (left := traces() - before):
            break
        time.sleep(0.01)
    return sorted(left)


def remove_files(before: set[str]) -> None:
    """Remove new files, each as its owner: root has no rights over others' files here."""
    new = [Path(path) for path in traces() - before if path.startswith("/")]
    owners = {path: path.lstat().st_uid for path in new}
    for owner in set(owners.values()):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                os.setgroups([])
                os.setresgid(owner, owner, owner)
                os.setresuid(owner, owner, owner)
                for path in (path for path in new if owners[path] == owner):
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path, ignore_errors=True)
                    else:
                        path.unlink()
            os._exit(0)
        os.waitpid(child, 0)


def traces() -> set[str]:
    """The container's processes, files and System V objects."""
    found = {f"process {path.name}" for path in Path("/proc").iterdir() if path.name.isdigit()}
    found |= {str(path) for folder in OWN_FOLDERS for path in Path(folder).iterdir()}
    for kind in ("shm", "sem", "msg"):
        found |= {f"{kind} {line}" for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]}
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
