"""The changes that the built-in model knows to try, each with what it is good for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agents.builtin.arithmetic import contract, reciprocals
from agents.builtin.draft import Draft, Transform
from agents.builtin.fuse_rows import fuse_rows
from agents.builtin.restrict import restrict
from agents.builtin.scan import own_scan
from agents.builtin.stream_stores import stream_stores
from agents.builtin.vector_loads import vector_loads

InductorOptions = Mapping[str, bool | int | float | str]
PLAIN = "plain"


@dataclass(frozen=True)
class Variation:
    """One change to a candidate.

    `sentence` says to people what it does; `memory` and `compute` are the gains to expect (1.0: none) where memory
    traffic or arithmetic is the bottleneck; `options` are TorchInductor's; `transform` changes the generated code.
    """

    name: str
    sentence: str
    memory: float
    compute: float
    options: InductorOptions = field(default_factory=lambda: MappingProxyType({}))
    transform: Transform | None = None


# In the order in which their transformations are applied, whatever the order in which they were found to help.
VARIATIONS: Sequence[Variation] = (
    Variation(
        "small-products",
        "Write matrix products with few rows as sums fused with what makes their operands, so that nothing is stored.",
        memory=2.0,
        compute=1.2,
        options=MappingProxyType({"kernelwright.small_products": 8}),
    ),
    Variation(
        "own-scan",
        "Compute running sums and products with vectors, in place of torch's loop over single elements.",
        memory=2.5,
        compute=2.5,
        transform=own_scan,
    ),
    Variation(
        "vector-loads",
        "Read strided or nearly consecutive elements with vector instructions, not one by one.",
        memory=1.35,
        compute=1.6,
        transform=vector_loads,
    ),
    Variation(
        "fuse-rows",
        "Run consecutive passes over the same rows in one parallel loop, so that a row stays in cache between them.",
        memory=1.4,
        compute=1.2,
        transform=fuse_rows,
    ),
    Variation(
        "stream-stores",
        "Write results that are too large for the cache past it, which spares reading the lines that are overwritten.",
        memory=1.3,
        compute=1.1,
        transform=stream_stores,
    ),
    Variation(
        "reciprocals",
        "Multiply by the reciprocal of what a whole row is divided by.",
        memory=1.03,
        compute=1.1,
        transform=reciprocals,
    ),
    Variation(
        "contract",
        "Let the compiler contract multiplications and additions into fused ones.",
        memory=1.01,
        compute=1.05,
        transform=contract,
    ),
)
_BY_NAME = MappingProxyType({variation.name: variation for variation in VARIATIONS})


def known(names: Collection[str]) -> tuple[str, ...]:
    """Those of `names` that are variations, once each and in the order of application."""
    return tuple(variation.name for variation in VARIATIONS if variation.name in names)


def find(name: str) -> Variation:
    """The variation of this name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


def recipe_text(names: Sequence[str]) -> str:
    """A set of variations as the Judge writes and the Coder reads it: `a+b`, or `plain` for none."""
    return "+".join(names) or PLAIN


def read_recipe(text: str) -> tuple[str, ...] | None:
    """The set of variations that a text begins with (`a+b: why`), or None where it begins with no such thing."""
    head = text.partition(":")[0].strip()
    if head == PLAIN:
        return ()
    names = head.split("+")
    return known(names) if names and all(name in _BY_NAME for name in names) else None


def merged_options(names: Sequence[str]) -> dict[str, bool | int | float | str]:
    """TorchInductor's options for these variations."""
    options: dict[str, bool | int | float | str] = {}
    for name in names:
        options |= _BY_NAME[name].options
    return options


def apply(draft: Draft, names: Sequence[str]) -> Draft:
    """The draft with these variations' transformations, and with what is always safe and never hurts."""
    draft = restrict(draft)
    for name in known(names):
        transform = _BY_NAME[name].transform
        if transform is not None:
            draft = transform(draft)
    return draft
