"""What the generated `call` tells about the buffers that it hands to kernels: sizes, aliases, uses."""

import ast
from dataclasses import dataclass
from math import prod

from agents.builtin.draft import Draft
from agents.builtin.module import Kernel

_SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


@dataclass(frozen=True)
class Buffers:
    """`roots`: which names share memory (same root); `bytes`: size of those allocated in `call`; `uses`: the names
    that each kernel is given, in order; `last`: names that nothing after their last kernel reads but the result."""

    roots: dict[str, str]
    bytes: dict[str, int]
    uses: dict[str, tuple[str, ...]]
    last: frozenset[str]


def read_buffers(draft: Draft) -> Buffers:
    """Follows the statements of `call` once; what it does not understand it takes to share memory."""
    kernels = {kernel.name for kernel in draft.module.kernels}
    roots = {name: name for name in draft.module.parameters}
    sizes: dict[str, int] = {}
    uses: dict[str, tuple[str, ...]] = {}
    read_later: dict[str, int] = {}
    written: dict[str, int] = {}
    returned: set[str] = set()
    for position, statement in enumerate(draft.module.statements):
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
                sizes[target] = size
            else:
                sources = [roots[name] for name in names if name != target and name in roots]
                roots[target] = sources[0] if sources else target
                if not isinstance(statement.value, ast.Name):
                    read_later |= dict.fromkeys(sources, position)
    last = frozenset(root for root in returned if read_later.get(root, -1) < written.get(root, -1))
    return Buffers(roots, sizes, uses, last)


def _allocated(value: ast.expr) -> int | None:
    """The bytes of an `empty_strided_cpu(size, stride, dtype)`, counted by its size."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "empty_strided_cpu" and len(value.args) == 3):
        return None
    try:
        size = ast.literal_eval(value.args[0])
        return prod(int(extent) for extent in size) * _SIZES.get(ast.unparse(value.args[2]).removeprefix("torch."), 1)
    except (ValueError, TypeError):
        return 0


def canonical_pointers(kernel: Kernel, buffers: Buffers) -> dict[str, str] | None:
    """For each pointer of a kernel, the one that stands for its buffer, or "" where two overlap in an unknown way.

    None where it is not known what the kernel is given.
    """
    uses = buffers.uses.get(kernel.name, ())
    if len(uses) != len(kernel.names):
        return None
    roots = [buffers.roots.get(name, "") for name in uses]
    result: dict[str, str] = {}
    for position, name in enumerate(kernel.names):
        same = [i for i, root in enumerate(roots) if root == roots[position]]
        kinds = {kernel.types[i].replace("const ", "").replace(" __restrict__", "") for i in same}
        plain = len({uses[i] for i in same}) == 1 and len(kinds) == 1 and roots[position]
        result[name] = kernel.names[same[0]] if plain else ""
    return result
