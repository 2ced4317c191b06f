"""Transforms of how loops are shared among threads: by one thread only, or by a dynamic schedule."""

import re
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Node, make_block, map_lines, parse_body, render_body, walk
from agents.builtin.compilation_unit import CompilationUnit

CHUNKS_PER_THREAD = 16  # so that threads finish at about the same time; a chunk costs a fraction of a microsecond
MIN_STEPS_PER_THREAD = 4  # with fewer steps a dynamic schedule cannot balance the load
_SHARING = re.compile(r"#pragma omp (parallel|for|single)\b")
_LOOP = re.compile(r"#pragma omp (?:parallel )?for\b(?!.*\bschedule\()")
_COLLAPSED = re.compile(r"\bcollapse\((\d+)\)")
_THREAD = re.compile(r"\b(tid|omp_get_thread_num)\b")
_THREAD_NUMBER = "int tid = omp_get_thread_num();"


def one_thread(unit: CompilationUnit) -> CompilationUnit:
    """Remove all parallel regions: to start threads and wait for them takes some microseconds each time."""

    def change(kernel: Kernel) -> Kernel:
        nodes = parse_body(kernel.body)
        serial = tuple(_without_sharing(node) for node in nodes)
        if serial == nodes:
            return kernel
        plain = map_lines(serial, lambda text: text.replace("omp_get_thread_num()", "0"))
        return replace(kernel, body=render_body(plain))

    return unit.with_kernels(change)


def _without_sharing(node: Node) -> Node:
    if not isinstance(node, Block):
        return node
    head = tuple(line for line in node.head if not _SHARING.match(line))
    return make_block(head, tuple(_without_sharing(child) for child in node.body))


def free_schedule(unit: CompilationUnit) -> CompilationUnit:
    """Give parallel loops a dynamic schedule if their results do not depend on it.

    A region whose threads add up sums of their own keeps the static schedule: with a dynamic one its result would
    change from call to call.
    """

    def change(kernel: Kernel) -> Kernel:
        nodes = parse_body(kernel.body)
        shared = tuple(_with_dynamic_schedule(node, unit.generated.threads) for node in nodes)
        return kernel if shared == nodes else replace(kernel, body=render_body(shared))

    return unit.with_kernels(change)


def _with_dynamic_schedule(node: Node, threads: int) -> Node:
    if not isinstance(node, Block):
        return node
    if any(line.startswith("#pragma omp parallel") for line in node.head) and _uses_thread_number(node):
        return node
    head = tuple(_scheduled(line, node, threads) if _LOOP.match(line) else line for line in node.head)
    return make_block(head, tuple(_with_dynamic_schedule(child, threads) for child in node.body))


def _uses_thread_number(region: Block) -> bool:
    """Whether a parallel region uses the number of the thread, apart from declaring it."""
    return any(_THREAD.search(text) for text in _texts(region) if text != _THREAD_NUMBER)


def _texts(region: Block) -> Iterator[str]:
    for node in walk((region,)):
        if isinstance(node, Block):
            yield from node.head
        else:
            yield node.text


def _scheduled(line: str, loop: Block, threads: int) -> str:
    collapsed = _COLLAPSED.search(line)
    steps = _steps(loop, int(collapsed[1]) if collapsed else 1)
    if steps is None or steps < MIN_STEPS_PER_THREAD * threads:
        return line
    return f"{line} schedule(dynamic, {max(1, steps // (CHUNKS_PER_THREAD * threads))})"


def _steps(loop: Block, depth: int) -> int | None:
    """How many steps the outermost `depth` loops make together; None: not known."""
    trips: list[int] = []
    node: Node = loop
    while len(trips) < depth:
        if not isinstance(node, Block) or node.var is None:
            return None
        trips.append(node.trips)
        if len(trips) < depth and len(node.body) != 1:
            return None
        node = node.body[0] if node.body else node
    return prod(trips)
