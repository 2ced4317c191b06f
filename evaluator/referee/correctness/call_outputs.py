"""The outputs of a call, read out of the stopped runner: their form, place and values, and the inputs that changed."""

import hashlib
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from ..isolation.calls import Call, InputSet, tensor
from ..isolation.handle import RunnerHandle
from ..isolation.procfs import same_bytes
from ..platforms.base import Places
from ..protocol.tensors import TensorRow, Tree
from . import accuracy
from .accuracy import Wrong, flatten
from .layout import kept_apart

_OVERWRITTEN = 32  # elements of each output
_PIECE_BYTES = 1 << 20  # stays in the cache
_MOVED_BYTES = 64 << 20


@dataclass(frozen=True)
class Answer:
    """The outputs of one call by path, and the bytes of the inputs that the call has changed, by number.

    `contents` are the bytes of the outputs that are tensors. `values` are made of them.
    """

    tree: Tree
    values: dict[str, torch.Tensor]
    changed: dict[int, torch.Tensor]
    contents: dict[str, torch.Tensor]


def read(handle: RunnerHandle, call: Call, inputs: InputSet) -> Answer:
    """Read the outputs of a call and the inputs that it has changed.

    Raises:
        RunnerFailed: the runner's memory cannot be read.
    """
    leaves = flatten(call.outputs)
    contents = {path: handle.read(leaf) for path, leaf in leaves.items() if isinstance(leaf, TensorRow)}
    values = {
        path: tensor(leaf, contents[path]) if isinstance(leaf, TensorRow) else _number(leaf)
        for path, leaf in leaves.items()
    }
    return Answer(call.outputs, values, mutations(handle, call, inputs), contents)


@dataclass(frozen=True)
class Form:
    """The form and the place of the reference's outputs, which those of a candidate must have.

    Attributes:
        tree: the outputs.
        shared: the paths of those that lie in the memory of the inputs.
        unwritten: the paths of those with memory that reads as something although nobody has written it.
    """

    tree: Tree
    shared: frozenset[str] = frozenset()
    unwritten: frozenset[str] = frozenset()

    def wrong(self, handle: RunnerHandle, outputs: Tree) -> Wrong | None:
        """What is wrong with the form or the place of a candidate's outputs; None if nothing is. No value is judged.

        Raises:
            RunnerFailed: the runner is gone.
        """
        wrong = accuracy.compare_form(self.tree, outputs)
        if wrong is not None:
            return wrong
        rows, found = _places(handle, outputs)
        have = _form(outputs, rows, found)
        for path in sorted(have.shared - self.shared):
            text = f"output{path} lies in the memory of the inputs; the reference returns memory of its own"
            return Wrong("layout", text)
        for path in sorted(have.unwritten - self.unwritten):
            text = "had memory that nobody had written when the call ended; whoever reads it first does that work"
            return Wrong("layout", f"output{path} {text}: write all of it in the call")
        if found.folded:
            return Wrong("layout", "the same memory is mapped at several places of the outputs")
        if pair := kept_apart(tensors_of(self.tree), rows):
            first, second = pair
            return Wrong("layout", f"output{first} and output{second} share memory; the reference returns them apart")
        return None


def form_of(handle: RunnerHandle, outputs: Tree) -> Form:
    """The form of outputs, and where they lie.

    Raises:
        RunnerFailed: the runner is gone.
    """
    return _form(outputs, *_places(handle, outputs))


def lie_alone(handle: RunnerHandle, outputs: Tree) -> bool:
    """Whether all outputs lie where no other process writes: they stay as they are while the runner stands still.

    Raises:
        RunnerFailed: the runner is gone.
    """
    return _places(handle, outputs)[1].private


def tensors_of(outputs: Tree) -> dict[str, TensorRow]:
    """The tensors among the outputs of a call, by path."""
    return {path: leaf for path, leaf in flatten(outputs).items() if isinstance(leaf, TensorRow)}


def _places(handle: RunnerHandle, outputs: Tree) -> tuple[dict[str, TensorRow], Places]:
    rows = tensors_of(outputs)
    return rows, handle.places(list(rows.values()))


def _form(outputs: Tree, rows: dict[str, TensorRow], found: Places) -> Form:
    shared = frozenset(path for path, inside in zip(rows, found.in_input_buffer, strict=True) if inside)
    return Form(outputs, shared, frozenset(path for number, path in enumerate(rows) if number in found.unwritten))


def mutations(handle: RunnerHandle, call: Call, inputs: InputSet) -> dict[int, torch.Tensor]:
    """The present bytes of the inputs that a call has changed, by number."""
    assert handle.input_buffer is not None
    return {
        index: handle.input_buffer.copy(row)
        for index, (row, content) in enumerate(zip(call.placed.tensors, inputs.contents, strict=True))
        if not handle.input_buffer.unchanged(row, content)
    }


def overwrite(
    handle: RunnerHandle, outputs: Tree, spared: frozenset[str], rng: random.Random
) -> list[tuple[TensorRow, list[int]]]:
    """Overwrite a few random elements of each output, as the caller of a model may do with what it was given.

    A model that uses the memory of its outputs again therefore has to write all of it.

    Args:
        handle: the runner that holds the outputs.
        outputs: the outputs of its last call.
        spared: the paths of the outputs that are left alone.
        rng: draws the elements.

    Returns:
        The tensors that were overwritten, each with the numbers of its elements.

    Raises:
        RunnerFailed: an output's memory cannot be written to.
    """
    done = []
    for path, row in tensors_of(outputs).items():
        if path not in spared and row.span_bytes:
            elements = list({_place(row, rng.randrange(math.prod(row.shape))) for _ in range(_OVERWRITTEN)})
            handle.flip(row, elements)
            done.append((row, elements))
    return done


def _place(row: TensorRow, number: int) -> int:
    """The offset in elements, within a tensor's span, of the element of this number."""
    place = 0
    for size, step in zip(reversed(row.shape), reversed(row.stride), strict=True):
        number, index = divmod(number, size)
        place += index * step
    return place


def value_of(handle: RunnerHandle, leaf: object) -> torch.Tensor:
    """A leaf of a runner's outputs as a tensor: read out of the runner's memory, or made of the scalar that it sent.

    Raises:
        RunnerFailed: the runner's memory cannot be read.
    """
    return tensor(leaf, handle.read(leaf)) if isinstance(leaf, TensorRow) else _number(leaf)


def moved_value(handle: RunnerHandle, row: TensorRow) -> torch.Tensor:
    """A tensor of the runner's, whose memory there is given back piece by piece, so that it is never held twice.

    Raises:
        RunnerFailed: the runner's memory cannot be read, or the runner has ended.
    """
    content = torch.empty(row.span_bytes, dtype=torch.uint8)
    for start, piece in _pieces(handle, row, _MOVED_BYTES):
        content[start : start + piece.numel()] = piece
        handle.ask({"op": "discard", "place": row.place + start, "nbytes": piece.numel()}, timeout_s=60)
        del piece
    return tensor(row, content)


def _number(leaf: object) -> torch.Tensor:
    number = leaf if isinstance(leaf, bool | int | float) else hash(str(leaf)) % 2**31
    return torch.tensor([number], dtype=torch.float64 if isinstance(leaf, float) else torch.int64)


def unchanged(handle: RunnerHandle, row: TensorRow, content: torch.Tensor | bytes) -> bool:
    """Whether a tensor's bytes in the runner's memory are still those of `content`, or have this digest.

    They are compared piece by piece.

    Raises:
        RunnerFailed: the runner's memory cannot be read.
    """
    pieces = _pieces(handle, row, _PIECE_BYTES)
    if isinstance(content, bytes):
        return _digest_of(piece for _, piece in pieces) == content
    return all(same_bytes(piece, content[start : start + piece.numel()]) for start, piece in pieces)


def digest(handle: RunnerHandle, row: TensorRow) -> bytes:
    """What tensors of a runner's have in common only if their bytes are equal (BLAKE2b, RFC 7693).

    Raises:
        RunnerFailed: the runner's memory cannot be read.
    """
    return _digest_of(piece for _, piece in _pieces(handle, row, _PIECE_BYTES))


def _digest_of(pieces: Iterable[torch.Tensor]) -> bytes:
    found = hashlib.blake2b(digest_size=32)
    for piece in pieces:
        found.update(piece.numpy().data)
    return found.digest()


def _pieces(handle: RunnerHandle, row: TensorRow, most_bytes: int) -> Iterator[tuple[int, torch.Tensor]]:
    """The bytes of a tensor of the runner's in pieces, each with the number of its first byte."""
    for start in range(0, row.span_bytes, most_bytes):
        size = min(most_bytes, row.span_bytes - start)
        yield start, handle.read(replace(row, place=row.place + start, dtype="uint8", shape=(size,), stride=(1,)))


def input_path(index: int) -> str:
    """The path under which an input that is changed in place is compared."""
    return f" input tensor {index}"
