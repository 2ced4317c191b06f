"""Runs the referee in a sandbox and reads its result."""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from evaluator.platforms.base import Platform
from evaluator.referee.sanitize import one_line, plain
from sandbox.base import Command, Completed, Limits, Sandbox

REFEREE = Path(__file__).parent / "referee"
_RESULT_BYTES = 96 * 1024 * 1024
_PREFIX = b"progress: "


class HarnessFailed(Exception):
    """The referee gave no result. `completed` says how its command ended."""

    def __init__(self, message: str, completed: Completed) -> None:
        super().__init__(message)
        self.message = message
        self.completed = completed


@cache
def harness_hash(folder: Path = REFEREE) -> str:
    """SHA-256 over the referee's files in all subfolders. It identifies the rules by which a result was judged."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def run_referee(
    mode: str,
    platform: Platform,
    request: Mapping[str, Any],
    *,
    device: int,
    sandbox: Sandbox,
    limits: Limits,
    elements: bytes = b"",
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> dict[str, Any]:
    """Run `referee evaluate|build|check|profile|device` and return its JSON object: finite numbers and printable text.

    `device` is the index of the platform's device on this host; `elements` are those of the request's weights.

    Raises:
        HarnessFailed: it ended without one (killed, timed out, out of memory, cancelled).
        SandboxUnavailable: the sandbox cannot run anything.
    """

    def on_stderr(line: bytes) -> None:
        if on_progress is not None and line.startswith(_PREFIX):
            on_progress(one_line(line[len(_PREFIX) :].decode("utf-8", "replace"), 200))

    told = json.dumps({**request, "platform": platform.part, "device": device}).encode()
    command = _command(mode, platform, device, told + b"\n" + elements, limits)
    completed = sandbox.run(command, on_stderr=on_stderr, cancel=cancel)
    if completed.exit_code == 0 and not completed.output_truncated:
        try:
            result = plain(json.loads(completed.stdout))
        except (ValueError, RecursionError):
            result = None
        if isinstance(result, dict):
            return result
    raise HarnessFailed(_reason(completed, limits), completed)


def prepare_referee(mode: str, platform: Platform, *, device: int, sandbox: Sandbox, limits: Limits) -> None:
    """Start a referee that waits for the request of the next `run_referee` with these arguments.

    It imports torch meanwhile, so call this while nothing is timed.
    """
    sandbox.prepare(_command(mode, platform, device, b"", limits))


def _command(mode: str, platform: Platform, device: int, request: bytes, limits: Limits) -> Command:
    return Command(
        REFEREE,
        args=(mode, platform.part),
        stdin=request,
        limits=replace(limits, output_bytes=_RESULT_BYTES),
        label=f"referee-{mode}",
        devices=platform.sandbox_devices(device),
        loopback=mode == "profile" and platform.part != platform.name,  # what NVIDIA's profiler on a GPU may need
    )


def _reason(completed: Completed, limits: Limits) -> str:
    if completed.cancelled:
        return "cancelled"
    if completed.timed_out:
        return f"no verdict within {limits.wall_s:g} s of wall time"
    if completed.out_of_memory:
        return f"the sandbox ran out of its {limits.memory_mb} MiB of memory"
    if completed.output_truncated:
        return "the referee's output was larger than the sandbox lets out"
    tail = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    last = one_line(tail[-1], 300) if tail else "nothing on standard error"
    return f"the referee ended with status {completed.exit_code} and no result: {last}"
