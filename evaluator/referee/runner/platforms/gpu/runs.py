"""Runs of recorded launches that are made again, and what they leave in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ....protocol.framing import Message

if TYPE_CHECKING:
    from ...main import Runner


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        what: `forward` and the other orders, `configuration N`, or the name of a check.
        found: `` (nothing), `fault`, `race`, `out_of_bounds`, `died`, `timed_out` or `not_run`.
        text: what it says of that.
        seconds: how long it ran.
    """

    what: str
    found: str
    text: str
    seconds: float


def held(
    runner: "Runner", places: Sequence[tuple[int, int]], memory: dict[str, dict[tuple[int, int], bytes]]
) -> Message:
    """Reveal what the memory of outputs holds after each run that wrote all of them.

    Args:
        runner: the runner that answers.
        places: address and bytes of each output.
        memory: by run, the bytes at each of these.
    """
    tensors = {
        order: [torch.frombuffer(bytearray(left[place]), dtype=torch.uint8) for place in places if left.get(place)]
        for order, left in memory.items()
        if all(left.get(place) for place in places)
    }
    return {
        "orders": list(tensors),
        "tree": runner.reveal([each for values in tensors.values() for each in values])["tree"],
    }
