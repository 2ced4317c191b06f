"""The changes that the built-in model knows to try, each with what it is good for."""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agents.builtin.draft import Draft, Transform
from agents.builtin.transforms.arithmetic import contract, reciprocals
from agents.builtin.transforms.fuse_rows import fuse_rows
from agents.builtin.transforms.restrict import restrict
from agents.builtin.transforms.scan import own_scan
from agents.builtin.transforms.stream_stores import stream_stores
from agents.builtin.transforms.threads import free_schedule, one_thread
from agents.builtin.transforms.unroll_sums import unroll_sums
from agents.builtin.transforms.vector_loads import vector_loads

InductorOptions = Mapping[str, bool | int | float | str]
PLAIN = "plain"
_PRODUCT = re.compile(r"extern_kernels\.(add)?mm\(")
_PARTIAL = re.compile(r"\.store\([^;]*, \d+L\);")
_GATHER = re.compile(r"\btmpbuf\[\w+\] = \w+\[[^;]*\btmp\d+\[")


def _always(draft: Draft) -> bool:
    return True


def _has_products(draft: Draft) -> bool:
    return any(_PRODUCT.search(ast.unparse(statement)) for statement in draft.module.statements)


def _sums_gathered(draft: Draft) -> bool:
    """Whether a kernel collects a vector element by element, at indices from memory, and reduces it."""
    return any(
        "tmp_acc" in kernel.body and (_GATHER.search(kernel.body) or "kw::lookup" in kernel.body)
        for kernel in draft.module.kernels
    )


def _has_ends(draft: Draft) -> bool:
    """Whether rows end in vectors that are not full."""
    return any("C10_UNLIKELY" in kernel.body or _PARTIAL.search(kernel.body) for kernel in draft.module.kernels)


@dataclass(frozen=True)
class Variation:
    """One change to a candidate.

    `sentence` says to people what it does. `options` are TorchInductor's, or those of the codegen package; `transform`
    changes the generated code; `fits` tells from code at hand whether code generated with other options may be any
    better. `unseen` is the gain to expect beyond what an estimate from the code shows (1.0: none); `for_short_calls`
    says that it spares what only short calls notice.
    """

    name: str
    sentence: str
    options: InductorOptions = field(default_factory=lambda: MappingProxyType({}))
    transform: Transform | None = None
    fits: Callable[[Draft], bool] = _always
    unseen: float = 1.0
    for_short_calls: bool = False


# In the order in which their transformations are applied, whatever the order in which they were found to help.
VARIATIONS: Sequence[Variation] = (
    Variation(
        "small-products",
        "Write matrix products with few rows as sums fused with what makes their operands, so that nothing is stored.",
        options=MappingProxyType({"kernelwright.small_products": 8}),
        fits=_has_products,
    ),
    Variation(
        "outer-vectors",
        "Run the vectors of a sum over looked-up rows along the rows, so that they are loaded and not collected.",
        options=MappingProxyType({"kernelwright.outer_vectors": True}),
        fits=_sums_gathered,
    ),
    Variation(
        "half-vectors",
        "Use vectors half as wide as the machine's, which leave fewer lanes idle at the ends of rows.",
        options=MappingProxyType({"kernelwright.half_vectors": True}),
        fits=_has_ends,
    ),
    Variation(
        "own-scan",
        "Compute running sums and products with vectors, in place of torch's loop over single elements.",
        transform=own_scan,
    ),
    Variation(
        "vector-loads",
        "Read strided or nearly consecutive elements with vector instructions, not one by one.",
        transform=vector_loads,
    ),
    Variation(
        "fuse-rows",
        "Run consecutive passes over the same rows in one parallel loop, so that a row stays in cache between them.",
        transform=fuse_rows,
    ),
    Variation(
        "stream-stores",
        "Write results that are too large for the cache past it, which spares reading the lines that are overwritten.",
        transform=stream_stores,
    ),
    Variation(
        "reciprocals",
        "Multiply by the reciprocal of what a whole row is divided by.",
        transform=reciprocals,
    ),
    Variation(
        "contract",
        "Let the compiler contract multiplications and additions into fused ones.",
        transform=contract,
        unseen=1.02,
    ),
    Variation(
        "unroll-sums",
        "Split reductions over several accumulators, so that an addition need not wait for the one before.",
        transform=unroll_sums,
    ),
    Variation(
        "free-schedule",
        "Hand rows out in pieces as threads become free, so that none waits for a slower one.",
        transform=free_schedule,
        unseen=1.01,
    ),
    Variation(
        "one-thread",
        "Use one thread: the call is so short that waking others takes longer than they save.",
        transform=one_thread,
        for_short_calls=True,
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
