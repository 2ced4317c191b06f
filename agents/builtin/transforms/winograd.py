"""The transform `winograd`: kernels for the convolutions that were lowered to `extern_kernels.winograd`.

The kernels are those of `runtime/winograd.h`. They take less than half of the multiplications of the plain sum, and
their results are at least as exact. What they make of a weight that is a parameter is kept between calls.
"""

import ast
from dataclasses import dataclass, replace

from agents.builtin.analysis.buffers import Layout, read_layouts
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.call_body import write_prepared
from agents.builtin.compilation_unit import CompilationUnit
from agents.builtin.errors import NotTranslatable
from tasks import syntax

NAME = "extern_kernels.winograd"
_CONST, _OUT = "const float* __restrict__", "float* __restrict__"


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
    layouts = read_layouts(unit)
    statements: list[ast.stmt] = []
    kernels = {kernel.name: kernel for kernel in unit.module.kernels}
    for statement in unit.module.statements:
        found = _read(statement)
        if found is None:
            statements.append(statement)
            continue
        source, weight, *bias = found.operands
        known = inputs.get(weight.id) if isinstance(weight, ast.Name) else None
        given, result = Layout.of(source, layouts), layouts.get(found.target)
        if known is None or not isinstance(weight, ast.Name) or given is None or result is None:
            raise NotTranslatable("a convolution whose operands are not known")
        if known.kind != "parameter" or known.dtype != "float32" or len(given.shape) != 4 or len(result.shape) != 4:
            raise NotTranslatable("a convolution whose weight is no parameter")
        batch, inner, height, width = given.shape
        outputs, (down, across) = result.shape[1], found.padding
        wanted = (batch, outputs, height + 2 * down - 2, width + 2 * across - 2)
        if result.shape != wanted or known.shape != (outputs, inner, 3, 3) or 0 in wanted:
            raise NotTranslatable("a convolution whose operands do not fit together")
        if not (given.has_channels_last() and result.has_channels_last()):
            raise NotTranslatable("a convolution whose operands lie otherwise in memory")
        prepare = _weights_kernel(inner, outputs)
        compute = _kernel((batch, height, width, inner, outputs, down, across), bool(bias))
        kernels |= {prepare.name: prepare, compute.name: compute}
        made = write_prepared("weights", known, weight.id, (16, inner, outputs), prepare)
        allocated = f"{found.target} = empty_strided_cpu({result.shape}, {result.stride}, torch.float32)"
        operands = [ast.unparse(source), "weights", weight.id, *map(ast.unparse, bias), found.target]
        called = f"{compute.name}({', '.join(operands)})"
        statements.extend(syntax.parse(f"{made}\n{allocated}\n{called}\ndel weights").body)
    return replace(unit, module=replace(unit.module, kernels=tuple(kernels.values()), statements=tuple(statements)))


def _read(statement: ast.stmt) -> Convolution | None:
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == NAME):
        return None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    try:
        down, across = (int(pad) for pad in ast.literal_eval(given["padding"]))
    except (KeyError, ValueError, TypeError) as error:
        raise NotTranslatable("a convolution without padding") from error
    if not isinstance(target, ast.Name) or len(call.args) not in (2, 3) or min(down, across) < 0:
        raise NotTranslatable("a convolution with other operands")
    return Convolution(target.id, tuple(call.args), (down, across))


def _weights_kernel(inputs: int, outputs: int) -> Kernel:
    body = f"\n  kw::winograd_weights<{inputs}, {outputs}>(in_ptr0, out_ptr0);\n"
    return Kernel(f"winograd_weights_{inputs}_{outputs}", (_CONST, _OUT), ("in_ptr0", "out_ptr0"), body)


def _kernel(numbers: tuple[int, ...], has_bias: bool) -> Kernel:
    bias = "in_ptr3" if has_bias else "nullptr"
    body = f"\n  kw::winograd<{', '.join(map(str, numbers))}>(in_ptr0, in_ptr1, in_ptr2, {bias}, out_ptr0);\n"
    names = ("in_ptr0", "in_ptr1", "in_ptr2", *(["in_ptr3"] if has_bias else []), "out_ptr0")
    name = "_".join(["winograd", *map(str, numbers), *(["bias"] if has_bias else [])])
    return Kernel(name, (*[_CONST] * (len(names) - 1), _OUT), names, body)
