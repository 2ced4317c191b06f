"""Transforms to cheaper arithmetic, with a difference of at most a rounding."""

import re
from dataclasses import replace

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, map_blocks, parse_body, render_body
from agents.builtin.compilation_unit import CompilationUnit

_BROADCAST = re.compile(r"auto (tmp\d+) = Vectorized<float>\((tmp\d+)\);$")
_DIVISION = re.compile(r"auto (tmp\d+) = (tmp\d+) / (tmp\d+);$")


def contract(unit: CompilationUnit) -> CompilationUnit:
    """Let g++ contract multiplications and additions, which saves instructions and a rounding."""
    return unit.with_flags("-ffp-contract=fast", without=("-ffp-contract=off",))


def reciprocals(unit: CompilationUnit) -> CompilationUnit:
    """Replace divisions by a number that all lanes share: one division per row instead of one per vector."""

    def change(kernel: Kernel) -> Kernel:
        nodes = parse_body(kernel.body)
        changed = map_blocks(nodes, _with_reciprocals)
        return kernel if changed == nodes else replace(kernel, body=render_body(changed))

    return unit.with_kernels(change)


def _with_reciprocals(block: Block) -> Block:
    shared: dict[str, str] = {}
    body: list[Node] = []
    for node in block.body:
        if isinstance(node, Line):
            if broadcast := _BROADCAST.match(node.text):
                shared[broadcast[1]] = broadcast[2]
            division = _DIVISION.match(node.text)
            if division is not None and division[3] in shared:
                factor = f"Vectorized<float>(1.0f / {shared[division[3]]})"
                node = Line(f"auto {division[1]} = {division[2]} * {factor};")
        body.append(node)
    return replace(block, body=tuple(body))
