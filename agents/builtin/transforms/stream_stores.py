"""Writes large results past the cache.

A store to memory that is not in cache first reads the line that it overwrites. For a result that is too large to be
found in cache by whoever reads it next, that is a third of the traffic of a copy, and it evicts what is still needed.
Non-temporal stores write whole lines instead.
"""

import re
from dataclasses import replace

from agents.builtin.analysis.accesses import aliases, find_accesses
from agents.builtin.analysis.buffers import UNKNOWN, find_places, read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, map_blocks, map_lines, parse_body, render_body
from agents.builtin.compilation_unit import CompilationUnit

LARGE_BYTES = 2 * 1024 * 1024
_STORE = re.compile(r"^(tmp\w+)\.store\((\w+) \+ (.*)\);$")


def stream_stores(unit: CompilationUnit) -> CompilationUnit:
    """Streams every float result of at least LARGE_BYTES that its kernel only writes and nothing reads afterwards."""
    buffers = read_buffers(unit)
    lanes = max(4, unit.generated.vector_bytes // 4)

    def change(kernel: Kernel) -> Kernel:
        places = find_places(kernel, buffers)
        if places is None:
            return kernel
        nodes = parse_body(kernel.body)
        names = places | {alias: places.get(name, UNKNOWN) for alias, name in aliases(nodes).items()}
        accesses = list(find_accesses(nodes, lanes))
        read = {names.get(access.pointer, UNKNOWN).name for access in accesses if not access.write or not access.index}
        large = {
            pointer
            for pointer, use, kind in zip(kernel.names, buffers.uses[kernel.name], kernel.types, strict=True)
            if kind.startswith("float*")
            and buffers.roots.get(use) in buffers.last
            and buffers.bytes.get(buffers.roots[use], 0) >= LARGE_BYTES
            and places[pointer].name
            and places[pointer].name not in read
        }
        streamed = {name for name, place in names.items() if place.name in {places[pointer].name for pointer in large}}
        if not streamed:
            return kernel
        changed = map_lines(nodes, lambda text: _streamed(text, streamed))
        if changed == nodes:
            return kernel
        return replace(kernel, body=render_body(map_blocks(changed, _fenced)))

    return unit.with_kernels(change)


def _streamed(text: str, pointers: set[str]) -> str:
    match = _STORE.match(text)
    if match is None or match[2] not in pointers or ", " in match[3]:
        return text
    return f"kw::stream_store({match[2]} + {match[3]}, {match[1]});"


def _fenced(block: Block) -> Block:
    """Non-temporal stores of a thread are ordered before what follows the parallel region by a fence of that thread."""
    if not (block.head and block.head[-1].startswith("#pragma omp parallel")):
        return block
    fence: Node = Line("kw::stream_fence();")
    return replace(block, body=(*block.body, fence))
