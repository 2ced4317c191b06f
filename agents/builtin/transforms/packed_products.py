"""The transform `packed_products`: products with a parameter by kernels that multiply by a packed copy of it.

A library packs the matrix anew in each call. For a few rows that takes as long as the product. The kernels are those of
`runtime/product.h`. The packed copy is kept between calls, and what is added to the product is added on the way.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agents.builtin.analysis.buffers import Layout, read_layouts, written_arguments
from agents.builtin.compilation_unit import CompilationUnit
from agents.builtin.generated import Input
from agents.builtin.runtime_kernels import runtime_kernel, write_prepared
from tasks import syntax

_FUNCTIONS = {"extern_kernels.mm": 2, "extern_kernels.addmm": 3}  # and their operands


@dataclass(frozen=True)
class Product:
    """A product that is replaced: out = a b, plus a base if there is one. `b` is the name of a parameter.

    `packing` holds the numbers of `kw::pack_matrix`, `numbers` those of `kw::packed_product`.
    """

    a: ast.expr
    b: str
    base: ast.expr | None
    out: ast.expr
    packing: tuple[int, ...]
    numbers: tuple[int, ...]


def packed_products(unit: CompilationUnit) -> CompilationUnit:
    """Replace each product with a parameter whose columns fill vectors."""
    inputs = dict(zip(unit.module.parameters, unit.generated.inputs, strict=False))
    layouts = read_layouts(unit)
    lanes = max(4, unit.generated.vector_bytes // 4)
    changed = written_arguments(unit)
    statements: list[ast.stmt] = []
    kernels = {kernel.name: kernel for kernel in unit.module.kernels}
    for statement in unit.module.statements:
        product = _read(statement, inputs, layouts)
        if product is None or product.packing[1] % lanes or product.b in changed:
            statements.append(statement)
            continue
        pack = runtime_kernel("pack_matrix", product.packing, 1)
        multiply = runtime_kernel("packed_product", product.numbers, 3, without_last=product.base is None)
        kernels |= {pack.name: pack, multiply.name: multiply}
        made = write_prepared("packed", inputs[product.b], product.b, (product.packing[0] * product.packing[1],), pack)
        operands = [product.a, *([product.base] if product.base is not None else []), product.out]
        first, *rest = (ast.unparse(operand) for operand in operands)
        called = f"{multiply.name}({', '.join([first, 'packed', *rest])})"
        statements.extend(syntax.parse(f"{made}\n{called}\ndel packed").body)
    return replace(unit, module=replace(unit.module, kernels=tuple(kernels.values()), statements=tuple(statements)))


def _read(statement: ast.stmt, inputs: Mapping[str, Input], layouts: Mapping[str, Layout]) -> Product | None:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and len(call.args) == _FUNCTIONS.get(ast.unparse(call.func))):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    out = given.pop("out", None)
    if out is None or not all(isinstance(factor, ast.Constant) and factor.value == 1 for factor in given.values()):
        return None
    *base, a, b = call.args
    found = [Layout.of(operand, layouts) for operand in (a, b, out, *base)]
    viewed = b.args[0] if isinstance(b, ast.Call) else b
    if None in found or not isinstance(viewed, ast.Name):
        return None
    left, right, result, *added = (each for each in found if each is not None)
    known = inputs.get(viewed.id)
    if known is None or known.kind != "parameter" or known.dtype != "float32":
        return None
    if len(left.shape) != 2 or len(right.shape) != 2 or len(result.shape) != 2 or right.offset:
        return None
    (rows, inner), (_, columns) = left.shape, right.shape
    if right.shape[0] != inner or result.shape != (rows, columns) or min(rows, inner, columns) < 1:
        return None
    if left.stride[1] != 1 or result.stride[1] != 1:
        return None
    step = 0  # from one row of the base to the next
    for each in added:
        if each.shape not in ((columns,), (rows, columns)) or each.stride[-1] != 1:
            return None
        step = each.stride[0] if len(each.shape) == 2 else 0
    packing = (inner, columns, *right.stride)
    numbers = (rows, inner, columns, left.stride[0], step, result.stride[0])
    if min(*packing, *numbers) < 0:
        return None
    return Product(a, viewed.id, base[0] if base else None, out, packing, numbers)
