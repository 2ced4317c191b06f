"""Where outputs in memory differ from the reference's: bytes, runs of elements, and what was never written."""

from collections.abc import Mapping

import torch

_RUNS, _SHOWN = 8, 4
_SHARE = 1e-3  # of the value and of the output's size, from which an element is shown as different
_UNWRITTEN = 0xFF  # what memory holds that was never written to


def describe(have: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor]) -> str:
    """The differences of outputs, by path: at most a few lines for each.

    Args:
        have: the candidate's outputs.
        want: the reference's.
    """
    lines: list[str] = []
    for path, expected in want.items():
        found = have.get(path)
        if found is not None and found.shape == expected.shape and found.numel():
            lines += _of_output(path, found.contiguous().flatten(), expected.contiguous().flatten())
    return "\n".join(lines)


def _of_output(path: str, have: torch.Tensor, want: torch.Tensor) -> list[str]:
    wide = torch.complex128 if want.is_complex() else torch.float64
    one, other = have.to(wide), want.to(wide)
    finite = other.abs()[torch.isfinite(other.abs())]
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    same = (one == other) | (one.isnan() & other.isnan())
    near = (one - other).abs() <= _SHARE * (other.abs() + size)
    places = (~(same | near)).nonzero().flatten()
    if not places.numel():
        return []
    width = have.element_size()
    breaks = (places[1:] - places[:-1] != 1).nonzero().flatten() + 1
    runs = [part for part in torch.tensor_split(places, breaks.tolist()) if part.numel()]
    lines = [f"output{path}: {places.numel():,} of {want.numel():,} elements differ much, in {len(runs):,} runs"]
    for part in runs[:_RUNS]:
        first, last = int(part[0]), int(part[-1])
        lines.append(f"  elements {first} to {last}, bytes {first * width:#x} to {(last + 1) * width - 1:#x}")
    for place in places[:_SHOWN].tolist():
        lines.append(f"  element {place}: {_bytes(have, place)} ({have[place].item():.6g}), the reference has "
                     f"{_bytes(want, place)} ({want[place].item():.6g})")  # fmt: skip
    unwritten = (have.view(torch.uint8).view(-1, width) == _UNWRITTEN).all(-1) & ~same
    if count := int(unwritten.sum()):
        first = int(unwritten.nonzero()[0])
        lines.append(f"  never written, it seems: {count:,} elements, the first is {first}")
    return lines


def _bytes(values: torch.Tensor, place: int) -> str:
    return bytes(values[place : place + 1].view(torch.uint8).tolist()).hex(" ")
