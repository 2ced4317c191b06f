"""Runs the capture program in a sandbox and reads what it says of a model."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.base import Command, Limits, Sandbox
from tasks.weights_file import Weights
from whole_models.graph import Captured, CaptureFailed, read_captured

CAPTURE = Path(__file__).parent / "capture"
_OUTPUT_BYTES = 64 << 20
_SPARE_S = 60.0
_PREFIX = b"progress: "


class CaptureCancelled(Exception):
    """The job was cancelled while its model was captured, so nothing is known about the model."""


def capture(sandbox: Sandbox, source: str, **options: Any) -> Captured:
    """`run_capture`, read.

    Raises:
        CaptureFailed, CaptureCancelled, SandboxUnavailable: as `run_capture`.
    """
    return read_captured(run_capture(sandbox, source, **options))


def run_capture(
    sandbox: Sandbox,
    source: str,
    *,
    state: Weights | None = None,
    compile: bool = True,
    budget_s: float = 60.0,
    memory_mb: int = 8192,
    shape_group: int | None = None,
    on_progress: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
) -> bytes:
    """Capture a model: its graph with what was seen of every tensor, and its times under eager and torch.compile.

    Returns:
        What `whole_models.graph.read_captured` reads.

    Args:
        sandbox: where the model runs. Whoever wants times holds the device meanwhile.
        source: the model's file, with `Model`, `get_inputs` and `get_init_inputs`.
        state: its weights; None: those that the constructor makes.
        compile: whether the model is run under torch.compile as well.
        budget_s: how long the program plans for; it is killed a minute after twice that.
        memory_mb: how much memory it may take.
        shape_group: the model gets the inputs of `get_input_groups()[shape_group]`; None: those of `get_inputs()`.
        on_progress: called with a few words on what is done.
        cancel: ends the run.

    Raises:
        CaptureFailed: the model fails, the weights are not those of it, or the run ended without a result.
        CaptureCancelled: `cancel` was set.
        SandboxUnavailable: the sandbox cannot run anything.
    """
    state = state or Weights()
    header = {
        "source": source,
        "compile": compile,
        "budget_s": budget_s,
        "shape_group": shape_group,
        "state": [row.to_json() for row in state.rows],
        "state_bytes": len(state.elements),
    }
    limits = Limits(wall_s=2 * budget_s + _SPARE_S, memory_mb=memory_mb, output_bytes=_OUTPUT_BYTES)
    command = Command(
        package=CAPTURE, stdin=json.dumps(header).encode() + b"\n" + state.elements, limits=limits, label="capture"
    )
    last = ["starting"]

    def on_stderr(line: bytes) -> None:
        if line.startswith(_PREFIX):
            last[0] = _one_line(line[len(_PREFIX) :], 100)
            if on_progress is not None:
                on_progress(last[0])

    done = sandbox.run(command, on_stderr=on_stderr, cancel=cancel)
    if done.cancelled:
        raise CaptureCancelled
    if done.timed_out:
        raise CaptureFailed(
            "sandbox",
            f"the capture did not finish within {limits.wall_s:.0f} s (at last: {last[0]}); use a "
            "smaller model or smaller inputs",
        )
    if done.out_of_memory:
        raise CaptureFailed(
            "sandbox",
            f"the model needs more than {memory_mb} MB (at last: {last[0]}); allow it more (KERNELWRIGHT_MEMORY_MB), "
            "or use a smaller model or smaller inputs",
        )
    if done.output_truncated:
        raise CaptureFailed(
            "sandbox",
            f"the capture wrote more than {_OUTPUT_BYTES >> 20} MiB; a model that prints should not, and very large "
            "graphs or constants must be made smaller",
        )
    if done.exit_code != 0 or not done.stdout:
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith(_PREFIX)]
        told = _one_line(lines[-1], 300) if lines else "nothing on standard error"
        status = "killed" if done.exit_code is None else f"exit status {done.exit_code}"
        raise CaptureFailed(
            "sandbox", f"the model's code ended the process ({status}; at last: {last[0]}) and must not: {told}"
        )
    return done.stdout


def _one_line(text: bytes, most: int) -> str:
    decoded = text.decode("utf-8", "replace")[:most]
    return "".join(character if character.isprintable() else " " for character in decoded)
