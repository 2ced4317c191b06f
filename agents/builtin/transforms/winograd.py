"""The transform `winograd`: kernels for the convolutions that were lowered to `extern_kernels.winograd`.

The kernels are those of `runtime/winograd.h`. They take less than half of the multiplications of the plain sum, and
their results are at least as exact. What they make of the weight, a parameter, is kept between calls.
"""

import ast
from dataclasses import dataclass, replace

from agents.builtin.analysis.buffers import Layout, read_layouts, written_arguments
from agents.builtin.compilation_unit import CompilationUnit
from agents.builtin.errors import NotTranslatable
from agents.builtin.runtime_kernels import runtime_kernel, write_prepared
from tasks import syntax

NAME = "extern_kernels.winograd"


@dataclass(frozen=True)
class Convolution:
    """A call that is replaced.

    Attributes:
        target: the name of its result.
        operands: the expressions of the input, the weight and, if there is one, the bias.
        padding: rows above and below, and columns left and right.
    """

    target: str
    operands: tuple[ast.expr, ...]
    padding: tuple[int, int]


def winograd(unit: CompilationUnit) -> CompilationUnit:
    """Replace each call of `extern_kernels.winograd` by kernels.

    Raises:
        NotTranslatable: such a call has an unknown form.
    """
    inputs = dict(zip(unit.module.parameters, unit.generated.inputs, strict=False))
    layouts, changed = read_layouts(unit), written_arguments(unit)
    statements: list[ast.stmt] = []
    kernels = {kernel.name: kernel for kernel in unit.module.kernels}
    for statement in unit.module.statements:
        found = _read(statement)
        if found is None:
            statements.append(statement)
            continue
        source, weight, *bias = found.operands
        given, result = Layout.of(source, layouts), layouts.get(found.target)
        if not isinstance(weight, ast.Name) or weight.id not in inputs or given is None or result is None:
            raise NotTranslatable("a convolution whose operands are not known")
        known = inputs[weight.id]
        if known.kind != "parameter" or known.dtype != "float32" or weight.id in changed:
            raise NotTranslatable("a convolution whose weight is no parameter, or one that changes")
        if len(given.shape) != 4 or len(result.shape) != 4:
            raise NotTranslatable("a convolution of other than images")
        batch, inner, height, width = given.shape
        outputs, (down, across) = result.shape[1], found.padding
        wanted = (batch, outputs, height + 2 * down - 2, width + 2 * across - 2)
        if result.shape != wanted or known.shape != (outputs, inner, 3, 3) or 0 in wanted:
            raise NotTranslatable("a convolution whose operands do not fit together")
        if not (given.has_channels_last() and result.has_channels_last()):
            raise NotTranslatable("a convolution whose operands lie otherwise in memory")
        prepare = runtime_kernel("winograd_weights", (inner, outputs), 1)
        numbers = (batch, height, width, inner, outputs, down, across)
        compute = runtime_kernel("winograd", numbers, 4, without_last=not bias)
        kernels |= {prepare.name: prepare, compute.name: compute}
        made = write_prepared("weights", known, weight.id, (16, inner, outputs), prepare)
        allocated = f"{found.target} = empty_strided_cpu({result.shape}, {result.stride}, torch.float32)"
        operands = [ast.unparse(source), "weights", weight.id, *map(ast.unparse, bias), found.target]
        called = f"{compute.name}({', '.join(operands)})"
        statements.extend(syntax.parse(f"{made}\n{allocated}\n{called}\ndel weights").body)
    return replace(unit, module=replace(unit.module, kernels=tuple(kernels.values()), statements=tuple(statements)))


def _read(statement: ast.stmt) -> Convolution | None:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return None
    target, call = statement.targets[0], statement.value
    if ast.unparse(call.func) != NAME:
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    try:
        down, across = (int(pad) for pad in ast.literal_eval(given["padding"]))
    except (KeyError, ValueError, TypeError) as error:
        raise NotTranslatable("a convolution without padding") from error
    if not isinstance(target, ast.Name) or len(call.args) not in (2, 3) or min(down, across) < 0:
        raise NotTranslatable("a convolution with other operands")
    return Convolution(target.id, tuple(call.args), (down, across))
