"""What the generated `call` tells about the buffers that it hands to kernels: sizes, aliases, uses."""

import ast
from dataclasses import dataclass
from math import prod

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.compilation_unit import CompilationUnit

ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


@dataclass(frozen=True)
class Buffers:
    """`roots`: which names share memory (same root); `offsets`: where in it each one begins, in elements, if known;
    `bytes`: size of those allocated in `call`; `uses`: the names that each kernel is given, in order; `last`: names
    that nothing after their last kernel reads but the result."""

    roots: dict[str, str]
    offsets: dict[str, int]
    bytes: dict[str, int]
    uses: dict[str, tuple[str, ...]]
    last: frozenset[str]


def read_buffers(unit: CompilationUnit) -> Buffers:
    """Follows the statements of `call` once; what it does not understand it takes to share memory."""
    kernels = {kernel.name for kernel in unit.module.kernels}
    roots = {name: name for name in unit.module.parameters}
    offsets = dict.fromkeys(roots, 0)
    sizes: dict[str, int] = {}
    uses: dict[str, tuple[str, ...]] = {}
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
            if function in kernels:
                plain = [argument.id for argument in statement.value.args if isinstance(argument, ast.Name)]
                arguments = tuple(plain) if len(plain) == len(statement.value.args) else ()
                # A kernel that is called twice with different buffers would need two analyses.
                uses[function] = arguments if function not in uses else ()
                written |= {roots.get(name, name): position for name in arguments}
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
    last = frozenset(root for root in returned if read_later.get(root, -1) < written.get(root, -1))
    return Buffers(roots, offsets, sizes, uses, last)


def _allocated(value: ast.expr) -> int | None:
    """The bytes of an `empty_strided_cpu(size, stride, dtype)`, counted by its size."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "empty_strided_cpu" and len(value.args) == 3):
        return None
    try:
        size = ast.literal_eval(value.args[0])
        return prod(int(extent) for extent in size) * ITEM_BYTES.get(
            ast.unparse(value.args[2]).removeprefix("torch."), 1
        )
    except (ValueError, TypeError):
        return 0


def _view_offset(value: ast.expr, offsets: dict[str, int]) -> int | None:
    """Where a name that is assigned `value` begins, if that is a name or a view of one."""
    if isinstance(value, ast.Name):
        return offsets.get(value.id)
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "reinterpret_tensor" and len(value.args) == 4):
        return None
    base, offset = value.args[0], value.args[3]
    if not (isinstance(base, ast.Name) and isinstance(offset, ast.Constant) and isinstance(offset.value, int)):
        return None
    return offsets[base.id] + offset.value if base.id in offsets else None


@dataclass(frozen=True)
class Place:
    """Where a pointer points: `offset` elements into the buffer that `name`, one of the kernel's pointers, stands for.

    `name` is "" where the pointer may overlap others in an unknown way.
    """

    name: str
    offset: int = 0


UNKNOWN = Place("")


def find_places(kernel: Kernel, buffers: Buffers) -> dict[str, Place] | None:
    """The place of each of a kernel's pointers, or None where it is not known what the kernel is given."""
    uses = buffers.uses.get(kernel.name, ())
    if len(uses) != len(kernel.names):
        return None
    roots = [buffers.roots.get(name, "") for name in uses]
    kinds = [kind.replace("const ", "").replace(" __restrict__", "") for kind in kernel.types]
    result: dict[str, Place] = {}
    for position, name in enumerate(kernel.names):
        same = [i for i, root in enumerate(roots) if root == roots[position]]
        known = all(uses[i] in buffers.offsets and kinds[i] == kinds[position] for i in same)
        offset = buffers.offsets.get(uses[position], 0)
        result[name] = Place(kernel.names[same[0]], offset) if known and roots[position] else UNKNOWN
    return result
