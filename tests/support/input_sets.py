"""Sets of inputs made of tensors, as the referee holds them."""

import torch

from evaluator.referee.isolation.calls import InputSet, tensor, with_values
from evaluator.referee.protocol.tensors import encode


def input_set(*values: object) -> InputSet:
    """A set of these inputs, in order."""
    tree, tensors = encode(list(values))
    return with_values(InputSet(tree, [], seed=1), tensors)


def values_of(inputs: InputSet) -> list[torch.Tensor]:
    """The tensors of a set, in order."""
    return [tensor(row, content) for row, content in zip(inputs.tree.tensors, inputs.contents, strict=True)]
