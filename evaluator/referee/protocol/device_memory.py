"""How a runner is told of memory on a GPU that the referee owns, and where outputs go in it."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from .tensors import TensorRow, aligned

HANDLE_BYTES = 64
OUTPUT_ALIGNMENT = 256  # as strict as any vector access of a GPU


@dataclass(frozen=True)
class Shared:
    """An allocation that another process may open.

    Attributes:
        handle: of CUDA's interprocess memory; it names the whole allocation.
        offset: where in that the memory begins.
        nbytes: its size.
    """

    handle: bytes
    offset: int
    nbytes: int

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        return {"handle": base64.b64encode(self.handle).decode(), "offset": self.offset, "nbytes": self.nbytes}

    @classmethod
    def from_json(cls, told: dict[str, object]) -> "Shared":
        """Read what `to_json` made.

        Raises:
            ValueError: it is no description of memory.
        """
        try:
            handle = base64.b64decode(str(told["handle"]), validate=True)
            offset, nbytes = int(str(told["offset"])), int(str(told["nbytes"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no description of memory: {error}") from None
        if len(handle) != HANDLE_BYTES or offset < 0 or nbytes < 0:
            raise ValueError("no description of memory: wrong sizes")
        return cls(handle, offset, nbytes)


def described(inputs: Shared, outputs: Shared | None) -> bytes:
    """What the file of an input buffer holds, where the buffer lies on a GPU."""
    return json.dumps({"inputs": inputs.to_json(), "outputs": outputs and outputs.to_json()}).encode()


def read_description(body: bytes) -> tuple[Shared, Shared | None]:
    """The memory of inputs, and that of outputs where there is some already.

    Raises:
        ValueError: it is no description.
    """
    told = json.loads(body)
    outputs = told["outputs"]
    return Shared.from_json(told["inputs"]), None if outputs is None else Shared.from_json(outputs)


def on_device(row: TensorRow) -> bool:
    """Whether a tensor lies on a GPU, as the runner says."""
    return row.device.partition(":")[0] == "cuda"


def output_offsets(rows: Sequence[TensorRow]) -> tuple[list[int], int]:
    """Where in the memory for outputs each tensor's span goes, and how many bytes all of them need.

    Both sides compute it, so nothing about it is told.
    """
    offsets, end = [], 0
    for row in rows:
        offsets.append(end)
        end += -(-aligned(row.span_bytes) // OUTPUT_ALIGNMENT) * OUTPUT_ALIGNMENT
    return offsets, end
