"""What building left in a runner's folder, carried from one runner to the next as opaque bytes.

Made and read by runners alone (of the same task, or of the same candidate), never looked into by the referee. It is
packed before a runner has seen an input.
"""

import base64
import binascii
import contextlib

import torch

from ..errors import RunnerFailed
from ..isolation.handle import RunnerHandle
from ..protocol.tensors import TensorRow, Tree

MAX_BYTES = 32 * 1024 * 1024


def restore(handle: RunnerHandle, packed: str) -> bool:
    """Whether the archive (base64) could be put into the runner; without it, building takes longer, nothing else."""
    try:
        data = torch.frombuffer(bytearray(base64.b64decode(packed, validate=True)), dtype=torch.uint8)
    except (binascii.Error, ValueError):
        return False
    tree = Tree({"tensor": 0}, (TensorRow(0, "uint8", (data.numel(),), (1,)),))
    handle.attach(handle.platform.input_buffer(data.numel(), 1))
    with contextlib.suppress(RunnerFailed):
        handle.give({"op": "unpack"}, tree, [data], timeout_s=60)
        return True
    return False


def keep(handle: RunnerHandle) -> str:
    """The runner's archive in base64; empty where there is none or it is too large."""
    packed = ""
    with contextlib.suppress(RunnerFailed):
        tree = handle.reveal({"op": "pack"}, timeout_s=60)
        if len(tree.tensors) == 1 and tree.tensors[0].span_bytes <= MAX_BYTES:
            packed = base64.b64encode(handle.read(tree.tensors[0]).numpy().tobytes()).decode()
        handle.ask({"op": "release"}, timeout_s=60)
    return packed
