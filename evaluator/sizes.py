"""What one call of an op touches: sizes of inputs, parameters and outputs, measured for many ops in one sandbox."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.referee.sanitize import one_line
from sandbox.base import Command, Limits, Sandbox

PROGRAM = Path(__file__).parent / "call_sizes"
TASK_S = 120.0
_START_S = 60.0
_OUTPUT_BYTES = 64 << 20
_PREFIX = b"progress: "


@dataclass(frozen=True)
class CallSizes:
    """What a call touches, in bytes. `outputs` is None where the op fails, or cannot be called within the limit.

    Attributes:
        inputs: the bytes of all input tensors; None where they cannot be made.
        parameters: the bytes of the model's parameters and buffers.
        outputs: the bytes of all output tensors.
        error: why something is not known.
        real: whether outputs were computed, because the op looks at values.
    """

    inputs: int | None
    parameters: int | None
    outputs: int | None
    error: str = ""
    real: bool = False

    @property
    def moved(self) -> int | None:
        """The bytes of inputs and outputs together."""
        return None if self.inputs is None or self.outputs is None else self.inputs + self.outputs


@dataclass(frozen=True)
class Ladder:
    """Sources of one op that are measured in turn.

    Attributes:
        sources: the sources.
        groups: whether each group of inputs of the first source is measured in place of the sources.
        stop: whether the first source that fits the limit is the last one, or the first that fails where the op did not
            fail before.
    """

    sources: tuple[str, ...]
    groups: bool = False
    stop: bool = True


@dataclass(frozen=True)
class Measured:
    """The sizes of a ladder's sources or groups, in order, as far as they were measured; `error` says what ended it."""

    sizes: tuple[CallSizes, ...]
    error: str = ""


class MeasuringFailed(Exception):
    """The program ended without an answer for a task. Its text says how."""


class MeasuringCancelled(Exception):
    """The measuring was cancelled."""


def measure_sizes(
    ladders: Sequence[Ladder],
    *,
    sandbox: Sandbox,
    limit_bytes: int,
    memory_mb: int,
    on_progress: Callable[[int], None] | None = None,
    cancel: threading.Event | None = None,
) -> list[Measured]:
    """Measure ops one after the other in one sandbox, each in a process of its own.

    Sizes are what the ops' own code says about itself. They decide what is worth trying, not what is right.

    Args:
        ladders: the ops.
        sandbox: where their code runs.
        limit_bytes: up to which size of inputs an op may be called with real tensors.
        memory_mb: how much memory the sandbox has.
        on_progress: called with the number of ops that are done.
        cancel: ends it.

    Raises:
        MeasuringFailed: the program ended before it was ready.
        MeasuringCancelled: `cancel` was set.
        SandboxUnavailable: there is no sandbox to work with.
    """
    request = {
        "tasks": [{"sources": each.sources, "groups": each.groups, "stop": each.stop} for each in ladders],
        "limit_bytes": limit_bytes,
        "task_s": TASK_S,
        "memory_mb": memory_mb,
    }
    limits = Limits(
        wall_s=_START_S + (TASK_S + 5) * len(ladders), memory_mb=memory_mb, output_bytes=_OUTPUT_BYTES, cpus=None
    )

    ready = threading.Event()

    def on_stderr(line: bytes) -> None:
        if line.startswith(_PREFIX):
            ready.set()
        if on_progress is not None and line.startswith(_PREFIX) and (text := line[len(_PREFIX) :].strip()).isdigit():
            on_progress(min(int(text[:9]), len(ladders)))

    command = Command(package=PROGRAM, stdin=json.dumps(request).encode(), limits=limits, label="call-sizes")
    done = sandbox.run(command, on_stderr=on_stderr, cancel=cancel)
    if done.cancelled:
        raise MeasuringCancelled
    found: list[Measured] = []
    for line in done.stdout.splitlines():
        try:
            told = json.loads(line)
            number, sizes, error = told["task"], told["sizes"], one_line(str(told["error"]), 300)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if number != len(found) or len(found) == len(ladders):
            continue
        try:
            found.append(Measured(tuple(_sizes(each) for each in sizes), error))
        except (ValueError, TypeError, KeyError):
            found.append(Measured((), "its code told what are no sizes"))
    if not found and ladders and not ready.is_set():
        tail = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = one_line(tail[-1], 300) if tail else "nothing on standard error"
        why = "no answer in time" if done.timed_out else "out of memory" if done.out_of_memory else last
        raise MeasuringFailed(f"sizes cannot be measured: {why}")
    if len(found) < len(ladders):  # the program was killed at the next one
        found.append(Measured((), "needs more memory or time than the sandbox has"))
        rest = measure_sizes(
            ladders[len(found) :],
            sandbox=sandbox,
            limit_bytes=limit_bytes,
            memory_mb=memory_mb,
            on_progress=None if on_progress is None else lambda count: on_progress(count + len(found)),
            cancel=cancel,
        )
        return found + rest
    return found


def _sizes(told: Any) -> CallSizes:
    """Sizes as the program tells them.

    Raises:
        ValueError, TypeError, KeyError: they are not of this form.
    """
    inputs, parameters, outputs = (_bytes(told[name]) for name in ("inputs", "parameters", "outputs"))
    return CallSizes(inputs, parameters, outputs, one_line(str(told["error"]), 300), bool(told["real"]))


def _bytes(number: Any) -> int | None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 60):
        raise ValueError("not a number of bytes")
    return number
