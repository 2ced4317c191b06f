"""The transform `stream_stores`: it writes large results by non-temporal stores.

An ordinary store to memory that is not in cache first reads the line that it overwrites. For a result that is too
large to stay in cache that is a third of the traffic of a copy, and it evicts lines that are still needed. A
non-temporal store writes the whole line without reading it.
"""

import re
from dataclasses import replace

from agents.builtin.analysis.accesses import find_accesses, pointer_aliases
from agents.builtin.analysis.buffers import UNKNOWN, pointer_targets, read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, map_blocks, map_lines, parse_body, render_body
from agents.builtin.compilation_unit import CompilationUnit

LARGE_BYTES = 2 * 1024 * 1024
_STORE = re.compile(r"^(tmp\w+)\.store\((\w+) \+ (.*)\);$")


def stream_stores(unit: CompilationUnit) -> CompilationUnit:
    """Stream every float result of at least LARGE_BYTES that its kernel only writes and nothing reads afterwards."""
    buffers = read_buffers(unit)
    lanes = max(4, unit.generated.vector_bytes // 4)

    def change(kernel: Kernel) -> Kernel:
        targets = pointer_targets(kernel, buffers)
        if targets is None:
            return kernel
        nodes = parse_body(kernel.body)
        by_name = targets | {alias: targets.get(name, UNKNOWN) for alias, name in pointer_aliases(nodes).items()}
        accesses = list(find_accesses(nodes, lanes))
        read = {
            by_name.get(access.pointer, UNKNOWN).name for access in accesses if not access.write or not access.index
        }
        large = {
            pointer
            for pointer, argument, kind in zip(kernel.names, buffers.arguments[kernel.name], kernel.types, strict=True)
            if kind.startswith("float*")
            and buffers.roots.get(argument) in buffers.unread_results
            and buffers.bytes.get(buffers.roots[argument], 0) >= LARGE_BYTES
            and targets[pointer].name
            and targets[pointer].name not in read
        }
        streamed = {
            name for name, target in by_name.items() if target.name in {targets[pointer].name for pointer in large}
        }
        if not streamed:
            return kernel
        changed = map_lines(nodes, lambda text: _streamed(text, streamed))
        if changed == nodes:
            return kernel
        return replace(kernel, body=render_body(map_blocks(changed, _with_fence)))

    return unit.with_kernels(change)


def _streamed(text: str, pointers: set[str]) -> str:
    match = _STORE.match(text)
    if match is None or match[2] not in pointers or ", " in match[3]:
        return text
    return f"kw::stream_store({match[2]} + {match[3]}, {match[1]});"


def _with_fence(block: Block) -> Block:
    """A parallel region with a fence at its end: it orders a thread's non-temporal stores before all that follows."""
    if not (block.head and block.head[-1].startswith("#pragma omp parallel")):
        return block
    fence: Node = Line("kw::stream_fence();")
    return replace(block, body=(*block.body, fence))
