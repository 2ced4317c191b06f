"""The buffers that the generated `call` passes to kernels: their sizes, which share memory, and where each is used."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeGuard

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.compilation_unit import CompilationUnit

ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


@dataclass(frozen=True)
class Buffers:
    """What is known of the buffers of a `call`.

    Attributes:
        roots: the allocation that each name refers to. Names with the same root share memory.
        offsets: where in its root each name begins, in elements, if known.
        bytes: sizes of the buffers that `call` allocates.
        arguments: the names that each kernel is called with, in order; empty if they are not known.
        unread_results: roots that are returned and that nothing reads after the last kernel that wrote them.
    """

    roots: dict[str, str]
    offsets: dict[str, int]
    bytes: dict[str, int]
    arguments: dict[str, tuple[str, ...]]
    unread_results: frozenset[str]


def read_buffers(unit: CompilationUnit) -> Buffers:
    """Read the statements of `call`. A name that is assigned in an unknown way counts as sharing memory."""
    types = {kernel.name: kernel.types for kernel in unit.module.kernels}
    roots = {name: name for name in unit.module.parameters}
    offsets = dict.fromkeys(roots, 0)
    sizes: dict[str, int] = {}
    kernel_arguments: dict[str, tuple[str, ...]] = {}
    read_later: dict[str, int] = {}
    written: dict[str, int] = {}
    returned: set[str] = set()
    for position, statement in enumerate(unit.module.statements):
        names = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
        if isinstance(statement, ast.Return):
            returned = {roots.get(name, name) for name in names}
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = ast.unparse(statement.value.func)
            given = tuple(roots.get(name, name) for name in names)
            if function in types:
                plain = [argument.id for argument in statement.value.args if isinstance(argument, ast.Name)]
                arguments = tuple(plain) if len(plain) == len(statement.value.args) else ()
                # The analysis of a kernel assumes one set of buffers, so two calls of it count as unknown.
                kernel_arguments[function] = arguments if function not in kernel_arguments else ()
                for kind, argument in zip(types[function], statement.value.args, strict=False):
                    touched = [roots.get(node.id, node.id) for node in ast.walk(argument) if isinstance(node, ast.Name)]
                    if not kind.startswith("const "):
                        written |= dict.fromkeys(touched, position)
                    if kind.startswith("const ") or not isinstance(argument, ast.Name):
                        read_later |= dict.fromkeys(touched, position)
            elif function not in ("assert_size_stride", "assert_alignment"):
                read_later |= dict.fromkeys(given, position)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target = statement.targets[0].id
            size = _allocated(statement.value)
            if size is not None:
                roots[target] = target
                offsets[target] = 0
                sizes[target] = size
            else:
                sources = [roots[name] for name in names if name != target and name in roots]
                roots[target] = sources[0] if sources else target
                offset = _view_offset(statement.value, offsets)
                if offset is not None:
                    offsets[target] = offset
                if not isinstance(statement.value, ast.Name):
                    read_later |= dict.fromkeys(sources, position)
    unread = frozenset(root for root in returned if read_later.get(root, -1) < written.get(root, -1))
    return Buffers(roots, offsets, sizes, kernel_arguments, unread)


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in its buffer: shape, strides, and where it begins, in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def of_view(value: ast.expr) -> "Layout | None":
        """The layout of `reinterpret_tensor(base, shape, stride, offset)`; None: `value` is no such call."""
        return _layout(*value.args[1:]) if _calls(value, "reinterpret_tensor", 4) else None

    @staticmethod
    def of(operand: ast.expr, known: Mapping[str, "Layout"]) -> "Layout | None":
        """The layout of an operand of a call: of a name that is known, or of a view."""
        return known.get(operand.id) if isinstance(operand, ast.Name) else Layout.of_view(operand)

    def has_channels_last(self) -> bool:
        """Whether this is a dense tensor of four dimensions whose second one is the last in memory."""
        if len(self.shape) != 4:
            return False
        _, channels, height, width = self.shape
        dense = (channels * height * width, 1, channels * width, channels)
        return all(size == 1 or here == there for size, here, there in zip(self.shape, self.stride, dense, strict=True))


def read_layouts(unit: CompilationUnit) -> dict[str, Layout]:
    """The layouts of arguments, of what `call` allocates, and of what an assertion is about."""
    items = zip(unit.module.parameters, unit.generated.inputs, strict=False)
    found = {name: Layout(item.shape, item.stride) for name, item in items if item.dtype}
    for statement in unit.module.statements:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if ast.unparse(call.func) == "assert_size_stride" and len(call.args) >= 3:
                name, layout = call.args[0], _layout(*call.args[1:3])
                if isinstance(name, ast.Name) and layout is not None:
                    found[name.id] = layout
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value, target = statement.value, statement.targets[0].id
            layout = Layout.of_view(value)
            if isinstance(value, ast.Name):
                layout = found.get(value.id)
            elif _calls(value, "empty_strided_cpu", 3):
                layout = _layout(*value.args[:2])
            if layout is not None:
                found[target] = layout
    return found


def written_arguments(unit: CompilationUnit) -> frozenset[str]:
    """The names that a kernel of the unit may write to, in the statements that call it."""
    types = {kernel.name: kernel.types for kernel in unit.module.kernels}
    calls = [each.value for each in unit.module.statements if isinstance(each, ast.Expr)]
    return frozenset(
        node.id
        for call in calls
        if isinstance(call, ast.Call)
        for kind, argument in zip(types.get(ast.unparse(call.func), ()), call.args, strict=False)
        if not kind.startswith("const ")
        for node in ast.walk(argument)
        if isinstance(node, ast.Name)
    )


def _calls(value: ast.expr, function: str, count: int) -> TypeGuard[ast.Call]:
    """Whether an expression is a call of a function with so many arguments."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == function and len(value.args) == count


def _layout(*literals: ast.expr) -> Layout | None:
    try:
        shape, stride = (tuple(int(n) for n in ast.literal_eval(literal)) for literal in literals[:2])
        offset = int(ast.literal_eval(literals[2])) if len(literals) > 2 else 0
    except (ValueError, TypeError):
        return None
    return Layout(shape, stride, offset) if len(shape) == len(stride) else None


def _allocated(value: ast.expr) -> int | None:
    """The bytes that `empty_strided_cpu(size, stride, dtype)` allocates; None: `value` is no such call."""
    if not _calls(value, "empty_strided_cpu", 3):
        return None
    try:
        size = ast.literal_eval(value.args[0])
        return prod(int(extent) for extent in size) * ITEM_BYTES.get(
            ast.unparse(value.args[2]).removeprefix("torch."), 1
        )
    except (ValueError, TypeError):
        return 0


def _view_offset(value: ast.expr, offsets: dict[str, int]) -> int | None:
    """The offset in its root of a name that is assigned `value`; None: `value` is no name and no view of one."""
    if isinstance(value, ast.Name):
        return offsets.get(value.id)
    if not _calls(value, "reinterpret_tensor", 4):
        return None
    base, offset = value.args[0], value.args[3]
    if not (isinstance(base, ast.Name) and isinstance(offset, ast.Constant) and isinstance(offset.value, int)):
        return None
    return offsets[base.id] + offset.value if base.id in offsets else None


@dataclass(frozen=True)
class PointerTarget:
    """What a pointer of a kernel refers to: `offset` elements into the buffer named `name`.

    The buffer is named by the kernel's first pointer to it; "": the pointer may overlap others in an unknown way.
    """

    name: str
    offset: int = 0


UNKNOWN = PointerTarget("")


def pointer_targets(kernel: Kernel, buffers: Buffers) -> dict[str, PointerTarget] | None:
    """The target of each of a kernel's pointers; None: its arguments are not known."""
    arguments = buffers.arguments.get(kernel.name, ())
    if len(arguments) != len(kernel.names):
        return None
    roots = [buffers.roots.get(name, "") for name in arguments]
    kinds = [kind.replace("const ", "").replace(" __restrict__", "") for kind in kernel.types]
    result: dict[str, PointerTarget] = {}
    for position, name in enumerate(kernel.names):
        same = [i for i, root in enumerate(roots) if root == roots[position]]
        known = all(arguments[i] in buffers.offsets and kinds[i] == kinds[position] for i in same)
        offset = buffers.offsets.get(arguments[position], 0)
        result[name] = PointerTarget(kernel.names[same[0]], offset) if known and roots[position] else UNKNOWN
    return result
