"""The transform `own_scan`: kernels for running sums and products, for which TorchInductor calls torch's scalar loop.

Along the last dimension a vector is scanned in registers and the carry is added. Along another dimension many columns
are carried at once. The carry has double precision, as in torch.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.compilation_unit import CompilationUnit

COLUMNS = 256  # carried at once: the carry stays in the first-level cache
_OPERATIONS = {"torch.ops.aten.cumsum.default": ("+", "0.0"), "torch.ops.aten.cumprod.default": ("*", "1.0")}


@dataclass(frozen=True)
class Scan:
    """A call that is replaced. Its operand `source` is a contiguous float tensor of this `shape`."""

    target: str
    source: str
    shape: tuple[int, ...]
    dim: int
    operation: str
    neutral: str


def own_scan(unit: CompilationUnit) -> CompilationUnit:
    """Replace each running sum or product of a contiguous float tensor by a kernel."""
    shapes = _argument_shapes(unit)
    statements: list[ast.stmt] = []
    kernels = list(unit.module.kernels)
    lanes = unit.generated.vector_bytes // 4
    for statement in unit.module.statements:
        shapes |= _allocated(statement)
        scan = _read_scan(statement, shapes)
        if scan is None or not lanes or 0 in scan.shape:
            statements.append(statement)
            continue
        name = f"scan_{len(kernels)}"
        kernels.append(_kernel(name, scan, lanes))
        stride = tuple(prod(scan.shape[i + 1 :]) for i in range(len(scan.shape)))
        allocation = f"{scan.target} = empty_strided_cpu({scan.shape}, {stride}, torch.float32)"
        statements.extend(ast.parse(f"{allocation}\n{name}({scan.source}, {scan.target})").body)
    return replace(unit, module=replace(unit.module, kernels=tuple(kernels), statements=tuple(statements)))


def _argument_shapes(unit: CompilationUnit) -> dict[str, tuple[int, ...]]:
    """The shapes of the arguments that are contiguous float tensors."""
    return {
        name: item.shape
        for name, item in zip(unit.module.parameters, unit.generated.inputs, strict=True)
        if item.dtype == "float32" and _is_contiguous(item.shape, item.stride)
    }


def _is_contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    return bool(shape) and stride == tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def _allocated(statement: ast.stmt) -> Mapping[str, tuple[int, ...]]:
    """The name and shape of the contiguous float buffer that a statement allocates; empty: it allocates none."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return {}
    call = statement.value
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "empty_strided_cpu" and len(call.args) == 3):
        return {}
    if ast.unparse(call.args[2]) != "torch.float32":
        return {}
    try:
        shape, stride = (tuple(int(n) for n in ast.literal_eval(argument)) for argument in call.args[:2])
    except (ValueError, TypeError):
        return {}
    return {statement.targets[0].id: shape} if _is_contiguous(shape, stride) else {}


def _read_scan(statement: ast.stmt, shapes: Mapping[str, tuple[int, ...]]) -> Scan | None:
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return None
    call = statement.value
    if not (isinstance(call, ast.Call) and ast.unparse(call.func) in _OPERATIONS and call.args):
        return None
    source = call.args[0]
    if not (isinstance(source, ast.Name) and source.id in shapes):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords} | dict(
        zip(("dim", "dtype"), call.args[1:], strict=False)
    )
    try:
        dim, dtype = ast.literal_eval(given["dim"]), given.get("dtype")
    except (KeyError, ValueError, TypeError):
        return None
    if not isinstance(dim, int) or (dtype is not None and ast.unparse(dtype) not in ("None", "torch.float32")):
        return None
    shape = shapes[source.id]
    operation, neutral = _OPERATIONS[ast.unparse(call.func)]
    return Scan(statement.targets[0].id, source.id, shape, dim % len(shape), operation, neutral)


def _kernel(name: str, scan: Scan, lanes: int) -> Kernel:
    outer, length, inner = prod(scan.shape[: scan.dim]), scan.shape[scan.dim], prod(scan.shape[scan.dim + 1 :])
    body = _along_rows(scan, outer, length, lanes) if inner == 1 else _along_columns(scan, outer, length, inner, lanes)
    return Kernel(name, ("const float* __restrict__", "float* __restrict__"), ("in_ptr0", "out_ptr0"), body)


def _along_rows(scan: Scan, outer: int, length: int, lanes: int) -> str:
    return f"""
  #pragma omp parallel for
  for(int64_t x0=0L; x0<{outer}L; x0+=1L)
  {{
    double carry = {scan.neutral};
    for(int64_t x1=0L; x1<{length}L; x1+={lanes}L)
    {{
      const int64_t count = {length}L - x1 < {lanes}L ? {length}L - x1 : {lanes}L;
      auto tmp0 = Vectorized<float>::loadu(in_ptr0 + (x1 + {length}L*x0), count);
      auto tmp1 = kw::running(tmp0, [](auto a, auto b) {{ return a {scan.operation} b; }}, {scan.neutral}f);
      auto tmp2 = Vectorized<float>(static_cast<float>(carry)) {scan.operation} tmp1;
      tmp2.store(out_ptr0 + (x1 + {length}L*x0), count);
      carry = carry {scan.operation} static_cast<double>(tmp1.r[0][{lanes - 1}]);
    }}
  }}
"""


def _along_columns(scan: Scan, outer: int, length: int, inner: int, lanes: int) -> str:
    block = min(COLUMNS, -(-inner // lanes) * lanes)
    return f"""
  #pragma omp parallel for collapse(2)
  for(int64_t x0=0L; x0<{outer}L; x0+=1L)
  {{
    for(int64_t x2=0L; x2<{inner}L; x2+={block}L)
    {{
      const int64_t last = {inner}L - x2 < {block}L ? {inner}L - x2 : {block}L;
      VectorizedN<double,2> carry[{block // lanes}];
      for(auto& one : carry) one = VectorizedN<double,2>({scan.neutral});
      for(int64_t x1=0L; x1<{length}L; x1+=1L)
      {{
        for(int64_t x3=0L; x3<last; x3+={lanes}L)
        {{
          const int64_t count = last - x3 < {lanes}L ? last - x3 : {lanes}L;
          const int64_t index = x3 + x2 + {inner}L*x1 + {inner * length}L*x0;
          auto tmp0 = Vectorized<float>::loadu(in_ptr0 + (index), count);
          auto tmp1 = carry[x3 / {lanes}L] {scan.operation} convert<double,2,float,1>(tmp0);
          carry[x3 / {lanes}L] = tmp1;
          convert<float,1,double,2>(tmp1).store(out_ptr0 + (index), count);
        }}
      }}
    }}
  }}
"""
