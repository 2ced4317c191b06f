"""The variations that the built-in model can apply to a candidate, and when each of them may help."""

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agents.builtin.compilation_unit import CompilationUnit, Transform
from agents.builtin.transforms.arithmetic import contract, reciprocals
from agents.builtin.transforms.fuse_rows import fuse_rows
from agents.builtin.transforms.packed_products import packed_products
from agents.builtin.transforms.restrict import restrict
from agents.builtin.transforms.scan import own_scan
from agents.builtin.transforms.stream_stores import stream_stores
from agents.builtin.transforms.threads import free_schedule, one_thread
from agents.builtin.transforms.unroll_sums import unroll_sums
from agents.builtin.transforms.vector_loads import vector_loads
from agents.builtin.transforms.winograd import winograd

InductorOptions = Mapping[str, bool | int | float | str]
PLAIN = "plain"
_PRODUCT = re.compile(r"extern_kernels\.(add)?mm\(")
_PARTIAL = re.compile(r"\.store\([^;]*, \d+L\);")
_GATHER = re.compile(r"\btmpbuf\[\w+\] = \w+\[[^;]*\btmp\d+\[")


def _always(unit: CompilationUnit) -> bool:
    return True


def _has_products(unit: CompilationUnit) -> bool:
    packed = any("kw::packed_product<" in kernel.body for kernel in unit.module.kernels)
    return packed or any(_PRODUCT.search(ast.unparse(statement)) for statement in unit.module.statements)


def _has_convolutions(unit: CompilationUnit) -> bool:
    """Whether there may be convolutions with 3 x 3 kernels and stride 1."""
    wanted = {"stride": "(1, 1)", "dilation": "(1, 1)", "transposed": "False", "groups": "1"}
    for statement in unit.module.statements:
        call = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "extern_kernels.convolution":
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            if {name: given.get(name) for name in wanted} == wanted:
                return True
    return False


def _has_gathered_sums(unit: CompilationUnit) -> bool:
    """Whether a kernel gathers a vector element by element, at indices from memory, and reduces it."""
    return any(
        "tmp_acc" in kernel.body and (_GATHER.search(kernel.body) or "kw::lookup" in kernel.body)
        for kernel in unit.module.kernels
    )


def _has_partial_vectors(unit: CompilationUnit) -> bool:
    """Whether rows end in vectors that are only partly used."""
    return any("C10_UNLIKELY" in kernel.body or _PARTIAL.search(kernel.body) for kernel in unit.module.kernels)


@dataclass(frozen=True)
class Variation:
    """One change to a candidate.

    Attributes:
        name: its name in advice and in the header of candidates.
        description: what it does, in one sentence.
        options: for TorchInductor, or for the codegen package.
        transform: changes the generated code.
        may_help: whether code that is generated with `options` may be better than this unit.
        extra_gain: a factor on the estimated gain, for effects that the estimate does not model.
        for_short_calls: it saves an overhead that only short calls notice.
        from_the_start: the first candidate has it where it fits and the estimate says that it helps.
    """

    name: str
    description: str
    options: InductorOptions = field(default_factory=lambda: MappingProxyType({}))
    transform: Transform | None = None
    may_help: Callable[[CompilationUnit], bool] = _always
    extra_gain: float = 1.0
    for_short_calls: bool = False
    from_the_start: bool = False


# In the order in which their transforms are applied.
VARIATIONS: Sequence[Variation] = (
    Variation(
        "winograd",
        "Compute convolutions with 3 x 3 kernels by Winograd's algorithm, with 16 multiplications in place of 36.",
        options=MappingProxyType({"kernelwright.winograd": True}),
        transform=winograd,
        may_help=_has_convolutions,
        from_the_start=True,
    ),
    Variation(
        "small-products",
        "Write matrix products with few rows as sums fused with what makes their operands, so that nothing is stored.",
        options=MappingProxyType({"kernelwright.small_products": 8}),
        may_help=_has_products,
    ),
    Variation(
        "packed-products",
        "Multiply by copies of the parameters that are packed in the first call, and add biases on the way.",
        transform=packed_products,
        may_help=_has_products,
        from_the_start=True,
    ),
    Variation(
        "outer-vectors",
        "Run the vectors of a sum over looked-up rows along the rows, so that they are loaded and not collected.",
        options=MappingProxyType({"kernelwright.outer_vectors": True}),
        may_help=_has_gathered_sums,
    ),
    Variation(
        "half-vectors",
        "Use vectors half as wide as the machine's, which leave fewer lanes idle at the ends of rows.",
        options=MappingProxyType({"kernelwright.half_vectors": True}),
        may_help=_has_partial_vectors,
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
        extra_gain=1.02,
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
        extra_gain=1.01,
    ),
    Variation(
        "one-thread",
        "Use one thread: the call is so short that waking others takes longer than they save.",
        transform=one_thread,
        for_short_calls=True,
    ),
)
_BY_NAME = MappingProxyType({variation.name: variation for variation in VARIATIONS})


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """The names that are variations, each once, in the order in which they are applied."""
    return tuple(variation.name for variation in VARIATIONS if variation.name in names)


def get_variation(name: str) -> Variation:
    """The variation of this name.

    Raises:
        KeyError: there is none.
    """
    return _BY_NAME[name]


def format_names(names: Sequence[str]) -> str:
    """A set of variations as the Judge writes it into `change`: `a+b`, or `plain` for none."""
    return "+".join(names) or PLAIN


def parse_names(text: str) -> tuple[str, ...] | None:
    """The set of variations that a text begins with (`a+b: why`); None: it begins with something else."""
    head = text.partition(":")[0].strip()
    if head == PLAIN:
        return ()
    names = head.split("+")
    return in_order(names) if names and all(name in _BY_NAME for name in names) else None


def merged_options(names: Sequence[str]) -> dict[str, bool | int | float | str]:
    """The options for TorchInductor and the codegen package that these variations need."""
    options: dict[str, bool | int | float | str] = {}
    for name in names:
        options |= _BY_NAME[name].options
    return options


def apply_transforms(unit: CompilationUnit, names: Sequence[str]) -> CompilationUnit:
    """The unit with the transforms of these variations, and with `restrict`, which every candidate gets."""
    unit = restrict(unit)
    for name in in_order(names):
        transform = _BY_NAME[name].transform
        if transform is not None:
            unit = transform(unit)
    return unit
