"""Sets of inputs made of tensors, as the referee holds them."""

import torch

from evaluator.referee.isolation.calls import InputSet, tensor
from evaluator.referee.protocol.tensors import encode


def input_set(*values: object) -> InputSet:
    """A set of these inputs, in order."""
    tree, tensors = encode(list(values))
    contents = []
    for row, value in zip(tree.tensors, tensors, strict=True):
        content = torch.zeros(row.span_bytes, dtype=torch.uint8)
        content.view(value.dtype).as_strided(row.shape, row.stride).copy_(value)
        contents.append(content)
    return InputSet(tree, contents, seed=1)


def values_of(inputs: InputSet) -> list[torch.Tensor]:
    """The tensors of a set, in order."""
    return [tensor(row, content) for row, content in zip(inputs.tree.tensors, inputs.contents, strict=True)]
