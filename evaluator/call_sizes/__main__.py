"""Measures tasks: JSON comes on stdin, a line of JSON for each task goes to stdout when that task is done.

Request: `{"tasks": [{"sources": [...], "groups": bool, "stop": bool}], "limit_bytes": n, "task_s": s, "memory_mb": m}`.
With `groups` each group of inputs of the first source is measured; else each source is measured in turn. With `stop`
the first source whose inputs and outputs are within the limit is the last one, and so is the first that fails while the
first of all did not.
Answer: `{"task": number, "sizes": [...], "error": text}`, with the sizes that there were before an error.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

from .measure import count_groups, sizes_of, warm_up

_SPARE_MB = 512
_ANSWER_BYTES = 4 << 20
_DONE = b'{"done": true}\n'
_FIRST_UID = 20001
"""Of the first task's process. Each has one of its own, where this process may give it one: none reaches another."""


def main() -> None:
    """Measure one task after the other, each in a forked process."""
    request = json.loads(sys.stdin.buffer.read())
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an op prints is not an answer
    warm_up()
    memory_bytes = max(request["memory_mb"] - _SPARE_MB, _SPARE_MB) << 20
    print("progress: 0", file=sys.stderr, flush=True)
    for number, task in enumerate(request["tasks"]):
        uid = _FIRST_UID + number if os.geteuid() == 0 else None
        answer = _measured(task, request["limit_bytes"], request["task_s"], memory_bytes, answers.fileno(), uid)
        answers.write(json.dumps({"task": number, **answer}).encode() + b"\n")
        answers.flush()
        print(f"progress: {number + 1}", file=sys.stderr, flush=True)


def _measured(
    task: dict[str, Any], limit_bytes: int, task_s: float, memory_bytes: int, answers: int, uid: int | None
) -> dict[str, Any]:
    """The answer of a process of the task's own. It is killed after `task_s`.

    Without a user of its own (`uid`) it may reach this process, and so what others' sizes are said to be after it ran.
    What it says is believed only as far as choosing shapes goes: nothing is judged by it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 1
        try:
            os.close(answers)
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
            if uid is not None:
                _become(uid)
            _run(task, limit_bytes, writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    lines, late = _read(reader, time.monotonic() + task_s)
    os.close(reader)
    for kill, target in ((os.killpg, child), (os.kill, child)):  # before it has a group of its own, the second one
        with contextlib.suppress(OSError):
            kill(target, signal.SIGKILL)
    if uid is not None:
        _kill_all(uid)
    _, status = os.waitpid(child, 0)
    sizes, error = _parsed(lines)
    if late:
        error = f"is not measured within {task_s:g} s"
    elif not error and not lines.endswith(_DONE):
        error = "its code ended the process" + (f" (signal {os.WTERMSIG(status)})" if os.WIFSIGNALED(status) else "")
    return {"sizes": sizes, "error": error}


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _kill_all(uid: int) -> None:
    """Kill what is left of a user's processes, in a process of that user: kill(2) with -1 spares itself alone."""
    child = os.fork()
    if child == 0:
        try:
            _become(uid)
            for number in (signal.SIGSTOP, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, number)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _run(task: dict[str, Any], limit_bytes: int, writer: int) -> None:
    def tell(value: dict[str, Any]) -> None:
        os.write(writer, json.dumps(value).encode() + b"\n")

    sources = task["sources"]
    try:
        if task["groups"]:
            for group in range(count_groups(sources[0])):
                tell({"sizes": sizes_of(sources[0], group, limit_bytes)})
        else:
            known = False
            for number, source in enumerate(sources):
                sizes = sizes_of(source, None, limit_bytes)
                tell({"sizes": sizes})
                fails = sizes["outputs"] is None
                known = known or (number == 0 and not fails)
                fits = not fails and sizes["inputs"] + sizes["outputs"] <= limit_bytes
                if task["stop"] and (fits or sizes["inputs"] is None or (fails and known)):
                    break
    except BaseException as error:
        tell({"error": f"{type(error).__name__}: {error}"[:300]})
    os.write(writer, _DONE)


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """What a child has written until it was done or has ended, and whether it took too long."""
    found = bytearray()
    while len(found) < _ANSWER_BYTES and not found.endswith(_DONE):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([reader], [], [], left)[0]:
            return bytes(found), True
        part = os.read(reader, 65536)
        if not part:
            break
        found += part
    return bytes(found), False


def _parsed(lines: bytes) -> tuple[list[dict[str, Any]], str]:
    sizes: list[dict[str, Any]] = []
    error = ""
    for line in lines.splitlines():
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict) and isinstance(told.get("sizes"), dict):
            sizes.append(told["sizes"])
        elif isinstance(told, dict) and "error" in told:
            error = str(told["error"])
    return sizes, error


main()
