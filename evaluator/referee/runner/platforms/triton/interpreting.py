"""Runs kernels of Triton on the host by Triton's own interpreter, each use of memory watched.

The interpreter is corrected where a GPU gives other values: `tl.dot` rounds float32 to TF32 unless told otherwise,
`tl.maximum` and `tl.minimum` drop NaN, what a mask leaves out of a load without `other` is undefined (NaN here), and
bfloat16 is a number.
"""

import ast
import inspect
import linecache
import sys
import textwrap
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton._C.libtriton import interpreter as _native
from triton._C.libtriton import ir as _ir
from triton.language.extra import libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import JITFunction

from .watching import Fault, Watch

_SAY_S = 4.0  # between two words on how far a launch is
_LINE_CHARACTERS = 100  # of a line of source in a message
_OWN = (str(Path(triton.__file__).parent), str(Path(__file__).parent))
Array = np.ndarray[Any, Any]


class NotEmulated(RuntimeError):
    """The kernel uses what the interpreter has nothing for."""


class KernelError(RuntimeError):
    """A kernel failed; the text names it and its line."""


def where() -> str:
    """The kernel and its line that run now."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return "a kernel" if frame is None else f"kernel {frame.f_code.co_name}, line {frame.f_lineno}"


def _plain(mask: Any, like: Array) -> Array:
    return np.broadcast_to(np.asarray(mask.data if isinstance(mask, TensorHandle) else mask, dtype=bool), like.shape)


def _is_bf16(handle: Any) -> bool:
    return bool(handle.dtype.scalar == tl.bfloat16)


def _from_bf16(data: Array) -> Array:
    return (data.astype(np.uint32) << 16).view(np.float32)


def _to_bf16(data: Array) -> Array:
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(data), ((bits >> 16) | 0x40).astype(np.uint16), rounded)


def _to_tf32(data: Array) -> Array:
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x0FFF) + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(data), rounded, data)


def _wide(handle: Any) -> Array:
    return _from_bf16(handle.data) if _is_bf16(handle) else handle.data


class Builder(interpreter.InterpreterBuilder):  # type: ignore[misc]  # triton has no annotations
    """Does what the language's functions ask for, at once, on arrays of the host."""

    def __init__(self) -> None:
        super().__init__()
        # A GPU wraps around without a word; looking for it takes half of the time.
        self.options = interpreter.InterpreterOptions(sanitize_overflow=False)
        self.watch = Watch(())
        self.other: Any = None  # what a load of one element is given for its mask
        self.notes: dict[str, str] = {}  # what is not wrong, but may be why outputs are: the first place of each kind

    def get_bf16(self, value: float) -> Any:
        """A constant."""
        return TensorHandle(_to_bf16(np.array([value], dtype=np.float32)), tl.bfloat16)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *_: Any) -> Any:
        """Read; what the mask leaves out is `other`, or what shows."""
        kind = ptrs.get_element_ty()
        dtype = interpreter._get_np_dtype(kind)
        on = _plain(mask, ptrs.data)
        self.watch.load(ptrs.data[on], dtype.itemsize)
        other = self.other if other is None else other
        if other is None:
            other = TensorHandle(np.full_like(ptrs.data, _undefined(kind, dtype), dtype=dtype), kind)
        return TensorHandle(_native.load(ptrs.data, np.ascontiguousarray(on), other.data, dtype), kind)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *_: Any) -> Any:
        """Write where the mask says."""
        on = _plain(mask, ptrs.data)
        values = np.broadcast_to(value.data, ptrs.data.shape)
        self.watch.store(ptrs.data[on], values.dtype.itemsize, values[on])
        return _native.store(ptrs.data, np.ascontiguousarray(values), np.ascontiguousarray(on))

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        """Compare and exchange."""
        self.watch.atomic(ptr.data.ravel(), val.data.dtype.itemsize)
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def create_atomic_rmw(self, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Read, change and write."""
        self.watch.atomic(ptr.data[_plain(mask, ptr.data)], val.data.dtype.itemsize)
        return super().create_atomic_rmw(operation, ptr, val, mask, sem, scope)

    def create_barrier(self) -> None:
        """The threads of a program wait for each other."""
        self.watch.barrier()

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        """Convert numbers."""
        data = _wide(src)
        if dst_type.scalar == tl.bfloat16:
            return TensorHandle(_to_bf16(data.astype(np.float32)), dst_type.scalar)
        return TensorHandle(data.astype(interpreter._get_np_dtype(dst_type)), dst_type.scalar)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        """Convert between kinds of floats."""
        wide = {tl.float16, tl.bfloat16, tl.float32, tl.float64}
        if src.dtype.scalar in wide and dst_type.scalar in wide:
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    def binary_op(self, lhs: Any, rhs: Any, op: Callable[[Array, Array], Array]) -> Any:
        """An operation on two arrays."""
        if not (_is_bf16(lhs) and _is_bf16(rhs)) or op in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
            return super().binary_op(lhs, rhs, op)
        made = op(_wide(lhs), _wide(rhs))
        return TensorHandle(made if made.dtype == bool else _to_bf16(made), lhs.dtype.scalar)

    def note(self, kind: str, text: str) -> None:
        """Say where a kernel does something of a kind for the first time."""
        if kind not in self.notes:
            self.notes[kind] = f"{where()}: {text}"

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        """The smaller one; of a number and NaN the number."""
        self.note("nan", "tl.minimum of a number and NaN is the number, unless propagate_nan says otherwise")
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        """The larger one; of a number and NaN the number."""
        self.note("nan", "tl.maximum of a number and NaN is the number, unless propagate_nan says otherwise")
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> Any:
        """Clamp; NaN becomes the lower limit unless it is asked for."""
        keeps = propagate_nans == _ir.PROPAGATE_NAN.ALL
        if not keeps:
            self.note("nan", "tl.clamp of NaN is a number, unless propagate_nan says otherwise")
        above = self.binary_op(arg, lo, np.maximum if keeps else np.fmax)
        return self.binary_op(above, hi, np.minimum if keeps else np.fmin)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        """`x * y + z`."""
        if not _is_bf16(z):
            return super().create_fma(x, y, z)
        return TensorHandle(_to_bf16(_wide(x) * _wide(y) + _wide(z)), z.dtype.scalar)

    def create_erf(self, arg: Any) -> Any:
        """The error function."""
        return TensorHandle(_by_torch(torch.erf, [arg.data]), arg.dtype.scalar)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        """`a @ b + d`, with operands rounded as tensor cores round them."""
        if a.dtype.primitive_bitwidth == 8 and a.dtype.is_floating():
            return super().create_dot(a, b, d, input_precision, max_num_imprecise_acc)
        left, right = _wide(a), _wide(b)
        if a.dtype.scalar == tl.float32 and input_precision == _ir.INPUT_PRECISION.TF32:
            left, right = _to_tf32(left), _to_tf32(right)
            self.note("tf32", "tl.dot rounds float32 to TF32, unless input_precision says otherwise")
        if np.issubdtype(left.dtype, np.integer):
            return TensorHandle(np.matmul(left, right, dtype=d.data.dtype) + d.data, d.dtype.scalar)
        kind = np.float64 if left.dtype == np.float64 else np.float32
        made = np.matmul(left.astype(kind), right.astype(kind)) + _wide(d)
        return TensorHandle(_to_bf16(made) if _is_bf16(d) else made.astype(d.data.dtype), d.dtype.scalar)

    def create_print(self, *_: Any) -> None:
        """Nobody reads it."""

    def create_extern_elementwise(self, lib: Any, path: Any, symbol: Any, *_: Any) -> Any:
        """A function of a library."""
        raise NotEmulated(f"{where()}: {symbol}, a function of a library for GPUs")

    def create_inline_asm(self, *_: Any) -> Any:
        """Assembly."""
        raise NotEmulated(f"{where()}: inline_asm_elementwise, which is assembly")

    def __getattr__(self, name: str) -> Any:
        """What the interpreter lacks altogether."""
        if name.startswith("create_"):
            raise NotEmulated(f"{where()}: {name.removeprefix('create_')}, which the interpreter lacks")
        raise AttributeError(name)


class _Semantic(TritonSemantic):  # type: ignore[misc]
    """What the language means. Triton's own takes an `other` of 0 for one element as none."""

    def _load_legacy(self, ptr: Any, mask: Any, other: Any, *rest: Any) -> Any:
        if other is not None and not ptr.type.is_block():
            self.builder.other = self.cast(other, ptr.type.scalar.element_ty).handle
        try:
            return super()._load_legacy(ptr, mask, other, *rest)
        finally:
            self.builder.other = None


def _undefined(kind: Any, dtype: Any) -> Any:
    if kind == tl.bfloat16:
        return 0x7FC0
    if dtype.kind == "f":
        return np.nan
    return True if dtype.kind == "b" else np.iinfo(dtype).max


def _by_torch(function: Callable[..., torch.Tensor], arrays: Sequence[Array]) -> Array:
    with torch._C.DisableTorchFunctionSubclass():
        made: Array = function(*(torch.from_numpy(np.ascontiguousarray(each)) for each in arrays)).numpy()
        return made


_LIBRARY: Mapping[str, Callable[..., torch.Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf",
            "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma", "log", "log10", "log1p",
            "log2", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
        )
    },
    "abs": torch.abs, "fast_expf": torch.exp, "fast_logf": torch.log, "fast_powf": torch.pow, "fast_tanhf": torch.tanh,
    "fma": lambda x, y, z: x * y + z, "rint": torch.round, "nearbyint": torch.round, "div_rn": torch.div,
}  # fmt: skip


def _library_function(name: str) -> Callable[..., Any]:
    """A function of CUDA's library of mathematics, on the host."""

    def call(*given: Any, **_: Any) -> Any:
        if name not in _LIBRARY:
            raise NotEmulated(f"{where()}: libdevice.{name}, a function of a library for GPUs")
        semantic = interpreter.interpreter_semantic
        values = [semantic.to_tensor(each) for each in given]
        dtype = values[0].dtype.scalar
        if dtype not in (tl.float32, tl.float64):
            raise TypeError(f"libdevice.{name} takes float32 or float64, not {dtype}")
        kind = interpreter._get_np_dtype(dtype)
        made = _by_torch(_LIBRARY[name], [np.asarray(each.handle.data, dtype=kind) for each in values])
        shape = np.broadcast_shapes(*(tuple(each.shape) for each in values))
        return tl.tensor(TensorHandle(made, dtype), tl.block_type(dtype, list(shape)) if shape else dtype)

    return call


class Function:
    """A function of the language: its source is rewritten for the interpreter when it is first called."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.__name__ = fn.__name__
        self._made: Callable[..., Any] | None = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Run it."""
        if self._made is None:
            self._made = from_function(self.fn)
        return self._made(*given, **named)


def begin() -> None:
    """Have this process interpret kernels from now on; it compiles none."""
    if isinstance(interpreter.interpreter_builder, Builder):
        return
    triton.knobs.runtime.interpret = True
    builder = Builder()
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic = _Semantic(builder)
    names = {"tl": tl, "core": tl.core}
    interpreter._patch_lang(types.FunctionType((lambda: None).__code__, names))
    functions: dict[int, Function] = {}
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("triton.language") and module]
    for holder in (*modules, tl.tensor):
        for name, value in [*vars(holder).items()]:
            if isinstance(value, JITFunction):
                made = functions.setdefault(id(value), Function(value.fn))
                # A function, so that it is given the tensor that it is asked of.
                setattr(holder, name, _method(made) if holder is tl.tensor else made)
    for library in (libdevice, sys.modules.get("triton.language.extra.cuda.libdevice")):
        for name, value in [*vars(library).items()] if library is not None else ():
            if inspect.isfunction(value) and not name.startswith("_"):
                setattr(library, name, _library_function(name))


def notes() -> dict[str, str]:
    """What kernels have done in this process that is not wrong, but may be why outputs are, by kind.

    `tf32`: a product of float32 was rounded; `nan`: an operation was asked for that drops NaN.
    """
    return dict(interpreter.interpreter_builder.notes)


def _method(function: Function) -> Callable[..., Any]:
    return lambda *given, **named: function(*given, **named)


class _Rewriter(interpreter.ASTTransformer):  # type: ignore[misc]
    """What Triton's interpreter changes of a kernel, and `and`, `or` and `not`, which take tensors there."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Both sides, where they are tensors of several elements."""
        self.generic_visit(node)
        made = node.values[0]
        name = "_kernel_and" if isinstance(node.op, ast.And) else "_kernel_or"
        for value in node.values[1:]:
            nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            later = ast.Lambda(args=nothing, body=value)
            made = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[made, later], keywords=[])
        return ast.copy_location(made, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Of each element, where it is a tensor of several."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        call = ast.Call(func=ast.Name(id="_kernel_not", ctx=ast.Load()), args=[node.operand], keywords=[])
        return ast.copy_location(call, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Numbers become tensors."""
        self.generic_visit(node)
        if len(node.targets) > 1:
            raise KernelError(f"line {node.lineno}: a kernel assigns to one target at a time")
        name = ast.Name(id="_kernel_value", ctx=ast.Load())
        node.value = ast.copy_location(ast.Call(func=name, args=[node.value], keywords=[]), node.value)
        return node


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and bool(value.type.is_block())


def _extreme(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        if any(isinstance(each, tl.tensor) for each in given):
            return getattr(tl, name)(*given)
        return plain(*given)

    return call


_NAMES: dict[str, Any] = {
    "_kernel_value": lambda value: interpreter.interpreter_semantic.to_tensor(value, False),
    "_kernel_and": lambda one, other: one & other() if _is_block(one) else one and other(),
    "_kernel_or": lambda one, other: one | other() if _is_block(one) else one or other(),
    "_kernel_not": lambda one: one == 0 if _is_block(one) else not one,
    "min": _extreme("minimum", min),
    "max": _extreme("maximum", max),
}


def from_tree(tree: ast.FunctionDef, file: str, names: dict[str, Any]) -> Callable[..., Any]:
    """A function of a kernel's language, made of its source, for the interpreter.

    Args:
        tree: its definition; decorators are left out.
        file: what frames name.
        names: its global names; those of the rewriting are added.

    Raises:
        KernelError: it holds what no kernel may.
    """
    made = _Rewriter().visit(tree)
    made.decorator_list = []
    module = ast.fix_missing_locations(ast.Module(body=[made], type_ignores=[]))
    for name, value in _NAMES.items():
        names.setdefault(name, value)
    # In the interpreter constants are plain values.
    names.update({name: value.value for name, value in names.items() if isinstance(value, tl.constexpr)})
    held: dict[str, Any] = {}
    exec(compile(module, file, "exec"), names, held)  # noqa: S102 - in a process that holds nothing else
    function: Callable[..., Any] = held[tree.name]
    setattr(function, "fn", function)  # noqa: B010 - what Triton's scans and reductions call of a function they are given
    return function


def from_function(fn: Any) -> Callable[..., Any]:
    """The same of a function that Python has loaded.

    Raises:
        KernelError: it holds what no kernel may, or its source is not to be had.
    """
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise KernelError(f"kernel {fn.__name__}: its source cannot be read") from None
    [tree] = ast.parse(textwrap.dedent("".join(lines))).body
    assert isinstance(tree, ast.FunctionDef)
    ast.increment_lineno(tree, first - 1)
    names = {**fn.__globals__, **(inspect.getclosurevars(fn).nonlocals if fn.__closure__ else {})}
    return from_tree(tree, fn.__code__.co_filename, names)


def order_of(grid: Sequence[int], order: str) -> Sequence[int]:
    """The programs of a launch in an order: `forward`, `backward` or `random:SEED`."""
    count = int(np.prod([max(0, size) for size in grid], dtype=np.int64))
    if order == "backward":
        return range(count - 1, -1, -1)
    if order.startswith("random:"):
        shuffled: list[int] = np.random.default_rng(int(order.partition(":")[2])).permutation(count).tolist()
        return shuffled
    return range(count)


def pointer(address: int, dtype: str) -> Any:
    """The argument of a kernel that points to a tensor; `dtype` as Triton writes it (`fp32`)."""
    kind = tl.str_to_ty(f"*{dtype}", None)
    return tl.tensor(TensorHandle(np.array([address], dtype=np.uint64), kind), kind)


class _Progress:
    """Says in the process's output how far a long launch is: the referee quotes it if a call takes too long."""

    def __init__(self, name: str, programs: int) -> None:
        self._name, self._programs = name, programs
        self._began = time.monotonic()
        self._next_s = _SAY_S

    def at(self, number: int) -> None:
        """So many programs have run."""
        if (passed_s := time.monotonic() - self._began) >= self._next_s:
            self._next_s = passed_s + _SAY_S
            far = f"{number} of {self._programs} programs after {passed_s:.0f} s in the interpreter"
            print(f"kernel {self._name}: {far}", file=sys.stderr, flush=True)


def run(
    function: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    constants: Sequence[str],
    grid: tuple[int, int, int],
    watch: Watch,
    order: str = "forward",
) -> None:
    """Run all programs of a launch, one after the other.

    Args:
        function: what `from_tree` or `from_function` made.
        arguments: by parameter; tensors as `pointer` gives them.
        constants: the parameters that are constants of the compiler's.
        grid: how many programs in each direction.
        watch: what watches the memory.
        order: how programs follow each other.

    Raises:
        Fault: it uses memory that it must not.
        NotEmulated: it uses what the interpreter lacks.
        KernelError: it fails otherwise.
    """
    builder = interpreter.interpreter_builder
    builder.watch, watch.where = watch, where
    given = {
        name: value if name in constants else interpreter._implicit_cvt(value) for name, value in arguments.items()
    }
    builder.set_grid_dim(*grid)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        say = _Progress(str(getattr(function, "__name__", "?")), int(np.prod(grid, dtype=np.int64)))
        for number, program in enumerate(order_of(grid, order)):
            say.at(number)
            watch.begin(program)
            x, rest = program % grid[0], program // grid[0]
            builder.set_grid_idx(x, rest % grid[1], rest // grid[1])
            try:
                function(**given)
            except Exception as error:
                raise _told(error, (x, rest % grid[1], rest // grid[1])) from None


def _told(error: Exception, program: tuple[int, int, int]) -> Exception:
    """The error with the kernel's line, by number and text: who reads the candidate cannot count its lines."""
    if isinstance(error, NotEmulated):
        return error
    trace, line = error.__traceback__, "a kernel"
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OWN):
            code = trace.tb_frame.f_code
            text = linecache.getline(code.co_filename, trace.tb_lineno).strip()[:_LINE_CHARACTERS]
            line = f"kernel {code.co_name}, line {trace.tb_lineno}" + (f" `{text}`" if text else "")
        trace = trace.tb_next
    if isinstance(error, Fault):
        return Fault(error.code, f"{line}: {error} (program {', '.join(map(str, program))})")
    return KernelError(f"{line}: {type(error).__name__}: {error}"[:600])
