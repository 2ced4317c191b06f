"""The names of the input families, which tasks each of them does not apply to, and which domains each one leaves.

The reference's runner makes the inputs (`runner/perturb.py`). The referee decides on which families a task is judged.
"""

from collections.abc import Sequence

import torch

GENERATED, OTHER_SEED = "as generated", "as generated, other seed"
GIVEN_WEIGHTS = "as generated, with the given weights"  # not among `FAMILIES`: only where weights are given
FLIPPED = "sign flipped"
SHUFFLED = "slices in another order"
VARIED = "what is always the same varied"
SPARSE = "a few elements changed"
ROWS, COLUMNS = "some first slices zero or negative", "some last slices zero or negative"
NEGATIVE = "negative where the generator gives none"
UP, DOWN = "scaled up", "scaled down"
FAR = "moved far from zero"
TIES = "zeros, ties and tiny values"
ENDS = "large last elements"
OUTLIER = "one large element"
LOW_BITS = "low bits that narrower types lose"
NON_FINITE = "NaN and Inf"
INTEGERS = "large integers"
FAMILIES = (
    GENERATED, OTHER_SEED, SHUFFLED, VARIED, SPARSE, ROWS, COLUMNS, FLIPPED, UP, DOWN, FAR, TIES, ENDS,
    OUTLIER, LOW_BITS, NON_FINITE, NEGATIVE, INTEGERS,
)  # fmt: skip
ANY_TYPE = (SHUFFLED, VARIED, SPARSE)  # they change tensors of any type, and keep ascending rows in order themselves
# NaN outputs mean that the reference does not take the inputs.
NAN_REFUSES = frozenset({NEGATIVE, FAR, OUTLIER, ROWS, COLUMNS, *ANY_TYPE})
GROUP = "shape group "  # followed by the group's number in the task's get_input_groups()
COUNT_GROUPS = "number of shape groups"  # not a family: the answer is a number
# The values of a task's DOMAIN, each with the families whose inputs would lie outside it.
DOMAINS: dict[str, frozenset[str]] = {
    "any": frozenset(),
    "finite": frozenset({NON_FINITE}),
    "nonnegative": frozenset({FLIPPED, NEGATIVE, NON_FINITE}),
    "positive": frozenset({FLIPPED, NEGATIVE, ROWS, COLUMNS, TIES, NON_FINITE}),
    "unit": frozenset({FLIPPED, NEGATIVE, UP, FAR, ENDS, OUTLIER, NON_FINITE, INTEGERS}),
    "bounded": frozenset({INTEGERS}),
    "fixed": frozenset(FAMILIES) - {GENERATED, OTHER_SEED},
}
LOW_BITS_SLACK = 8.0  # on these inputs the rounding errors of float32 itself do not average out, either


def may_end_a_process(family: str, dtypes: Sequence[str]) -> bool:
    """Whether the family changes integers: among them may be indexes, sizes or offsets, which can end a process."""
    return family in (INTEGERS, *ANY_TYPE) and any("int" in dtype for dtype in dtypes)


def slack(family: str) -> float:
    """The factor by which a family widens the floors."""
    return LOW_BITS_SLACK if family == LOW_BITS else 1.0


def skipped(family: str, domains: Sequence[str], dtypes: Sequence[str]) -> str:
    """Why a family does not apply to a task with these domains and input dtypes; empty if it applies."""
    if family.startswith((GENERATED, GROUP)):
        return ""
    floats = [dtype for dtype in dtypes if "float" in dtype]
    if family == INTEGERS:
        if not any("int" in dtype for dtype in dtypes):
            return "no integer input"
    elif family in (SHUFFLED, SPARSE):
        if not dtypes:
            return "no tensor input"
    elif family != VARIED and not floats:
        return "no floating-point input"
    if family == LOW_BITS and not any(dtype in ("float32", "float64") for dtype in floats):
        return "no narrower type"
    if domains and all(family in DOMAINS[domain] for domain in domains):
        return f"leaves the declared domain ({', '.join(dict.fromkeys(domains))})"
    return ""


def may_turn_negative(value: torch.Tensor) -> bool:
    """Whether `NEGATIVE` changes a tensor: it holds floating-point numbers, none is negative, and it is no mask."""
    if not value.is_floating_point() or value.numel() == 0:
        return False
    return not bool((value < 0).any()) and not is_mask(value)


def is_mask(value: torch.Tensor) -> bool:
    """Whether a tensor holds nothing but 0 and 1."""
    return bool(((value == 0) | (value == 1)).all())
