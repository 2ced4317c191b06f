"""The text of a runner's answer to a call: most say the same as the one before, but for where the tensors lie.

Working it out belongs to what a call takes, for everyone. The longer it takes, the more a candidate would gain that
answers by itself, in fewer steps: one that did gained 0.05 of 0.24 ms while a tree was made and written each time.
"""

import json
import re
from typing import Any

import torch

from ..protocol.tensors import Tree

_PLACE = re.compile(r'(?<="place": )\d+')


class ReplyEncoder:
    """Writes answers that hold a tensor, or a tuple or list of some, without looking at what is as it was."""

    def __init__(self) -> None:
        self._form: list[Any] = []
        self._parts: list[bytes] = []  # of the last answer's text, around the places

    def again(self, value: Any) -> bytes | None:
        """The answer, if it differs from the one learnt in places alone; else None."""
        tensors = _tensors(value)
        if not self._parts or tensors is None or _form(value, tensors) != self._form:
            return None
        text = self._parts[0]
        for tensor, part in zip(tensors, self._parts[1:], strict=True):
            text += b"%d" % torch.Tensor.data_ptr(tensor) + part
        return text

    def learn(self, value: Any, tree: Tree) -> None:
        """Note how an answer is written whose tree has been made."""
        tensors, self._parts = _tensors(value), []
        if tensors is None or len(tensors) != len(tree.tensors):
            return
        self._form = _form(value, tensors)
        text = json.dumps({"ok": True, "tree": tree.to_json()})
        self._parts = [part.encode() for part in _PLACE.split(text)]


def _tensors(value: Any) -> list[torch.Tensor] | None:
    """The plain, dense, unconjugated tensors that a value is made of; None if there is anything else in it."""
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
