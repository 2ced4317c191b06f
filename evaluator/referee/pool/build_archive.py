"""The build archive: the files that a build left in a runner's folder, passed to the next runner as opaque bytes.

Only runners (of the same task, or of the same candidate) write and read an archive. The referee never parses it. That
of a candidate is packed before the runner has seen an input.
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
    """Unpack an archive (base64) in a runner.

    Returns:
        Whether that worked. If not, the build takes longer and nothing else changes.
    """
    if not packed:
        return False
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
    """The runner's archive in base64; empty if it has built nothing or if the archive exceeds `MAX_BYTES`."""
    packed = ""
    with contextlib.suppress(RunnerFailed):
        tree = handle.reveal({"op": "pack"}, timeout_s=60)
        if len(tree.tensors) == 1 and 0 < tree.tensors[0].span_bytes <= MAX_BYTES:
            packed = base64.b64encode(handle.read(tree.tensors[0]).numpy().tobytes()).decode()
        handle.ask({"op": "release"}, timeout_s=60)
    return packed
