"""The declarations of a task about how it is judged: the constants TOLERANCE and DOMAIN at the top level of its file.

A task may also define `get_input_groups()`, which returns a list of input lists of other shapes. A candidate must be
right for these, too. Declarations are read by `ast` only::

    TOLERANCE = {"float32": 1e-4}   # error allowed, as a share of the output's scale, where the reference makes none
    TOLERANCE = 1e-4                # the same for every floating-point dtype
    DOMAIN = "positive"             # of all inputs
    DOMAIN = ("any", "unit")        # of each input in the order of get_inputs()
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks import syntax
from tasks.parse import literals
from tasks.text import task_error

FLOATS = ("float64", "float32", "float16", "bfloat16")
EXACT = ("bool", "uint8", "int8", "int16", "int32", "int64")
DOMAINS = ("any", "finite", "nonnegative", "positive", "unit", "bounded", "fixed")
MAX_TOLERANCE = 0.1  # a declared tolerance at or above this would let constants pass

_TOLERANCE_REMEDY = f"give a number between 0 and {MAX_TOLERANCE}, or a dict of such numbers by dtype"
_DOMAIN_REMEDY = f"give one of {', '.join(DOMAINS)}, or a list of them, one for each input"


@dataclass(frozen=True)
class Declarations:
    """The declarations of one task.

    Attributes:
        tolerance: allowed errors by dtype.
        domain: empty, one domain for all inputs, or one for each input.
        shape_groups: whether the task defines `get_input_groups()`.
    """

    tolerance: Mapping[str, float] = field(default_factory=dict)
    domain: tuple[str, ...] = ()
    shape_groups: bool = False


def read_declarations(tree: ast.Module, where: str, inputs: int | None = None) -> Declarations:
    """Read TOLERANCE and DOMAIN of a module. `inputs` is the number of inputs, if it is known.

    Raises:
        TaskError: a constant is not a literal, or its value is not allowed.
    """
    given = literals(tree, where, {"TOLERANCE": _TOLERANCE_REMEDY, "DOMAIN": _DOMAIN_REMEDY})
    tolerance = _tolerance(*given["TOLERANCE"], where) if "TOLERANCE" in given else {}
    domain = _domain(*given["DOMAIN"], where, inputs) if "DOMAIN" in given else ()
    groups = any(isinstance(node, ast.FunctionDef) and node.name == "get_input_groups" for node in tree.body)
    return Declarations(tolerance, domain, groups)


def declarations_of(source: str) -> Declarations:
    """The declarations in a valid task's source.

    Raises:
        TaskError: as `read_declarations`.
    """
    return read_declarations(syntax.parse(source), "<task>")


def _tolerance(literal: object, line: int, where: str) -> dict[str, float]:
    result: dict[str, float] = {}
    given = dict.fromkeys(FLOATS, literal) if not isinstance(literal, dict) else literal
    for dtype, number in given.items():
        if dtype not in (*FLOATS, *EXACT):
            known = ", ".join((*FLOATS, *EXACT))
            raise task_error(where, f"TOLERANCE names the dtype {str(dtype)[:64]!r}", f"use one of: {known}", line=line)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < MAX_TOLERANCE:
            raise task_error(where, f"TOLERANCE is {str(number)[:64]}", _TOLERANCE_REMEDY, line=line)
        result[str(dtype)] = float(number)
    return result


def _domain(literal: object, line: int, where: str, inputs: int | None) -> tuple[str, ...]:
    given = tuple(literal) if isinstance(literal, list | tuple) else (literal,)
    for domain in given:
        if domain not in DOMAINS:
            raise task_error(where, f"DOMAIN is {str(domain)[:64]!r}", _DOMAIN_REMEDY, line=line)
    if not given or (isinstance(literal, list | tuple) and inputs is not None and len(given) != inputs):
        remedy = "name as many as get_inputs() returns"
        raise task_error(where, f"DOMAIN names {len(given)} of {inputs or 'the'} inputs", remedy, line=line)
    return tuple(str(domain) for domain in given)
