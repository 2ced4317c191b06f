"""The encoder of a runner's answer to a call. Most answers differ from the one before only in the tensors' addresses.

Encoding the answer happens inside the timed region. It is kept cheap because a candidate that writes its own answer to
the socket would otherwise save that time (measured while each answer was encoded anew: 0.05 of 0.24 ms).
"""

import json
import re
from typing import Any

import torch

from ..protocol.tensors import Tree

_PLACE = re.compile(r'(?<="place": )\d+')


class ReplyEncoder:
    """Encodes answers that hold a tensor, or a tuple or list of tensors, by replacing the addresses in the last one."""

    def __init__(self) -> None:
        self._form: list[Any] = []
        self._parts: list[bytes] = []  # the last answer's text, split at the places of tensors

    def again(self, value: Any) -> bytes | None:
        """The encoded answer if it differs from the learnt one only in the places of tensors; else None."""
        tensors = _tensors(value)
        if not self._parts or tensors is None or _form(value, tensors) != self._form:
            return None
        text = self._parts[0]
        for tensor, part in zip(tensors, self._parts[1:], strict=True):
            text += b"%d" % torch.Tensor.data_ptr(tensor) + part
        return text

    def learn(self, value: Any, tree: Tree) -> None:
        """Learn the encoded form of an answer from its tree."""
        tensors, self._parts = _tensors(value), []
        if tensors is None or len(tensors) != len(tree.tensors):
            return
        self._form = _form(value, tensors)
        text = json.dumps({"ok": True, "tree": tree.to_json()})
        self._parts = [part.encode() for part in _PLACE.split(text)]


def _tensors(value: Any) -> list[torch.Tensor] | None:
    """The plain, strided, unconjugated tensors that a value consists of; None if it holds anything else."""
    kind = type(value)
    tensors = [value] if kind is torch.Tensor else list(value) if kind is tuple or kind is list else []
    for tensor in tensors:
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or not tensor.is_cpu:
            return None
        if tensor.is_conj() or tensor.is_neg():
            return None
    return tensors or None


def _form(value: Any, tensors: list[torch.Tensor]) -> list[Any]:
    return [type(value), *((tensor.dtype, tensor.shape, tensor.stride()) for tensor in tensors)]
