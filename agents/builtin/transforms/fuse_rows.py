"""The transform `fuse_rows`: it fuses consecutive parallel loops over the same rows, so that rows stay in cache.

TorchInductor ends its parallel loop where the shape of the iteration changes. A softmax over the last of four
dimensions becomes two loops, and the whole tensor is written between them. This transform divides the rows into chunks
and runs all loops on one chunk before the next. That is safe if no chunk touches what another chunk writes. The index
expressions are affine and their bounds constant, so the range that a chunk touches is known.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agents.builtin.analysis.accesses import Access, find_accesses, pointer_aliases
from agents.builtin.analysis.buffers import UNKNOWN, PointerTarget, pointer_targets, read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, make_loop, map_lines, parse_body, render_body
from agents.builtin.compilation_unit import CompilationUnit

MAX_CHUNKS = 8192
MIN_CHUNKS_PER_THREAD = 4
SHORT_LOOP_STEPS = 64
CHUNK_BYTES = 512 * 1024  # read and written by a chunk: it must stay in a second-level cache


@dataclass(frozen=True)
class LoopNest:
    """A parallel loop: perfectly nested `outer` loops around `inner`, with the declarations `before` them."""

    before: tuple[Line, ...]
    outer: tuple[Block, ...]
    inner: tuple[Node, ...]


@dataclass(frozen=True)
class Cut:
    """A way to divide a parallel loop into chunks.

    In a chunk each outer loop before `depth` runs one step, and the loop at `depth` runs `trips` steps.
    """

    depth: int
    trips: int


def fuse_rows(unit: CompilationUnit) -> CompilationUnit:
    """Fuse the parallel loops of every kernel where that is safe."""
    lanes = max(4, unit.generated.vector_bytes // 4)  # without a count, a vector is one of float
    buffers = read_buffers(unit)

    def change(kernel: Kernel) -> Kernel:
        targets = pointer_targets(kernel, buffers)
        if targets is None:
            return kernel
        nodes = parse_body(kernel.body)
        targets |= {alias: targets.get(name, UNKNOWN) for alias, name in pointer_aliases(nodes).items()}
        fused = tuple(_fuse_in_region(node, targets, lanes, unit.generated.threads) for node in nodes)
        return kernel if fused == nodes else replace(kernel, body=render_body(fused))

    return unit.with_kernels(change)


def _fuse_in_region(node: Node, targets: Mapping[str, PointerTarget], lanes: int, threads: int) -> Node:
    if not (isinstance(node, Block) and node.head and node.head[-1].startswith("#pragma omp parallel")):
        return node
    body: list[Node] = []
    consecutive: list[tuple[Node, LoopNest]] = []

    def flush() -> None:
        first, rest = _split_off_short(consecutive, targets, lanes)
        merged = _fused([nest for _, nest in rest], targets, lanes, threads) if len(rest) > 1 else None
        if merged is None:
            body.extend(original for original, _ in consecutive)
        else:
            body.extend([*(original for original, _ in first), merged])
        consecutive.clear()

    for child in node.body:
        nest = read_loop_nest(child)
        if nest is None:
            flush()
            body.append(child)
        else:
            consecutive.append((child, nest))
    flush()
    return replace(node, body=tuple(body))


def _split_off_short(
    nests: list[tuple[Node, LoopNest]], targets: Mapping[str, PointerTarget], lanes: int
) -> tuple[list[tuple[Node, LoopNest]], list[tuple[Node, LoopNest]]]:
    """Short loops that can run before all others, and the rest. A short loop cannot be divided into chunks."""
    first: list[tuple[Node, LoopNest]] = []
    rest: list[tuple[Node, LoopNest]] = []
    for node, nest in nests:
        short = math.prod(loop.trips for loop in nest.outer) <= SHORT_LOOP_STEPS
        if short and all(_touch_disjoint_buffers(node, other, targets, lanes) for other, _ in rest):
            first.append((node, nest))
        else:
            rest.append((node, nest))
    return first, rest


def _touch_disjoint_buffers(one: Node, other: Node, targets: Mapping[str, PointerTarget], lanes: int) -> bool:
    """Whether neither of two loops touches a buffer that the other one writes."""
    touched = [list(find_accesses((node,), lanes)) for node in (one, other)]
    buffers = [{targets.get(access.pointer, UNKNOWN).name for access in accesses} for accesses in touched]
    written = [
        {targets.get(access.pointer, UNKNOWN).name for access in accesses if access.write} for accesses in touched
    ]
    return not (written[0] & buffers[1] or written[1] & buffers[0]) and "" not in written[0] | written[1]


def read_loop_nest(node: Node) -> LoopNest | None:
    """A block inside a parallel region as a parallel loop; None: it is none."""
    if not isinstance(node, Block) or node.var is not None:
        return None
    if node.head and node.head[-1] != "#pragma omp single":
        return None
    body = node.body
    single = bool(node.head)
    while single and len(body) == 1 and isinstance(body[0], Block) and not body[0].head:
        body = body[0].body
    if not body or not isinstance(body[-1], Block) or body[-1].var is None:
        return None
    before = body[:-1]
    if not all(isinstance(item, Line) for item in before):
        return None
    loop = body[-1]
    if not single and not any(line.startswith("#pragma omp for") for line in loop.head):
        return None
    outer: list[Block] = []
    inner: tuple[Node, ...] = (loop,)
    while len(inner) == 1 and isinstance(inner[0], Block) and inner[0].var is not None:
        outer.append(inner[0])
        inner = inner[0].body
    return LoopNest(tuple(item for item in before if isinstance(item, Line)), tuple(outer), inner)


def _fused(nests: list[LoopNest], targets: Mapping[str, PointerTarget], lanes: int, threads: int) -> Block | None:
    """All loops as one loop over the largest number of chunks that is safe; None: no number is."""
    cuts = [_cuts(nest) for nest in nests]
    common = set(cuts[0]).intersection(*cuts[1:])
    min_chunks = MIN_CHUNKS_PER_THREAD * threads
    for count in sorted((c for c in common if min_chunks <= c <= MAX_CHUNKS), reverse=True):
        chosen = [options[count] for options in cuts]
        if _independent(nests, chosen, count, targets, lanes):
            return _chunk_loop(nests, chosen, count)
    return None


def _cuts(nest: LoopNest) -> dict[int, Cut]:
    """The cuts of a loop by the number of chunks."""
    found: dict[int, Cut] = {}
    before = 1
    for depth, loop in enumerate(nest.outer):
        for parts in _divisors(loop.trips):
            if before * parts <= MAX_CHUNKS:
                found.setdefault(before * parts, Cut(depth, loop.trips // parts))
        before *= loop.trips
        if before > MAX_CHUNKS:
            break
    return found


def _divisors(number: int) -> Iterator[int]:
    for candidate in range(1, min(number, MAX_CHUNKS) + 1):
        if number % candidate == 0:
            yield candidate


def _independent(
    nests: list[LoopNest], cuts: list[Cut], count: int, targets: Mapping[str, PointerTarget], lanes: int
) -> bool:
    """Whether no chunk touches what another one writes, and a chunk is small enough for the cache."""
    spans: dict[str, list[tuple[int, int]]] = {}
    accesses: list[tuple[LoopNest, Cut, Access]] = []
    for nest, cut in zip(nests, cuts, strict=True):
        accesses += [(nest, cut, access) for access in find_accesses(_remaining(nest, cut), lanes)]
    written = {targets.get(access.pointer, UNKNOWN).name for _, _, access in accesses if access.write}
    for nest, cut, access in accesses:
        target = targets.get(access.pointer, UNKNOWN)
        if target.name not in written:
            continue
        if access.index is None or not target.name:
            return False
        for chunk in range(count):
            span = access.index.span({**access.ranges, **_outer_ranges(nest, cut, chunk)})
            if span is None:
                return False
            low, high = span[0] + target.offset, span[1] + target.offset + access.lanes - 1
            held = spans.setdefault(target.name, [])
            if chunk < len(held):
                held[chunk] = (min(held[chunk][0], low), max(held[chunk][1], high))
            else:
                held.append((low, high))
    size = 0
    for held in spans.values():
        ordered = sorted(held)
        if any(high >= low for (_, high), (low, _) in itertools.pairwise(ordered)):
            return False
        size += max(high - low + 1 for low, high in held) * 4
    return size <= CHUNK_BYTES


def _outer_ranges(nest: LoopNest, cut: Cut, chunk: int) -> dict[str, tuple[int, int]]:
    """First and last value of the loop variables down to `cut.depth` within a chunk."""
    ranges: dict[str, tuple[int, int]] = {}
    loop = nest.outer[cut.depth]
    parts = loop.trips // cut.trips
    chunk, part = divmod(chunk, parts)
    assert loop.var is not None
    first = loop.start + part * cut.trips * loop.step
    ranges[loop.var] = (first, first + (cut.trips - 1) * loop.step)
    for outer in reversed(nest.outer[: cut.depth]):
        chunk, position = divmod(chunk, outer.trips)
        assert outer.var is not None
        ranges[outer.var] = (outer.start + position * outer.step,) * 2
    return ranges


def _remaining(nest: LoopNest, cut: Cut) -> tuple[Node, ...]:
    """The nodes inside the loop at `cut.depth`."""
    if cut.depth + 1 < len(nest.outer):
        below = nest.outer[cut.depth + 1]
        return (replace(below, head=tuple(line for line in below.head if "omp" not in line)),)
    return nest.inner


def _chunk_loop(nests: list[LoopNest], cuts: list[Cut], count: int) -> Block:
    """An `omp for` over chunks with all loops inside."""
    declarations: list[Node] = []
    bodies: list[Node] = []
    for number, (nest, cut) in enumerate(zip(nests, cuts, strict=True)):
        body = _chunk_body(nest, cut)
        if nest.before:
            # Each thread declares the local buffers once; numbers keep those of different loops apart.
            for line in nest.before:
                declarations.append(Line(_numbered(line.text, number)))
            body = _renamed(body, number)
        bodies.append(Block((), body))
    loop = make_loop("chunk", 0, count, 1, tuple(bodies), "#pragma omp for")
    return Block((), (*declarations, loop))


def _numbered(text: str, number: int) -> str:
    return text.replace("local_buffer_data_", f"local_buffer_{number}_data_")


def _renamed(nodes: tuple[Node, ...], number: int) -> tuple[Node, ...]:
    return map_lines(nodes, lambda text: _numbered(text, number))


def _chunk_body(nest: LoopNest, cut: Cut) -> tuple[Node, ...]:
    loop = nest.outer[cut.depth]
    parts = loop.trips // cut.trips
    lines: list[Node] = []
    divisor = parts
    for outer in reversed(nest.outer[: cut.depth]):
        position = f"chunk / {divisor}L % {outer.trips}L"
        lines.append(Line(f"const int64_t {outer.var} = {_value(outer, position)};"))
        divisor *= outer.trips
    inner = _remaining(nest, cut)
    position = f"chunk % {parts}L" if cut.depth else "chunk"
    if cut.trips == 1:
        lines.append(Line(f"const int64_t {loop.var} = {_value(loop, position)};"))
        return (*lines, *inner)
    lines.append(Line(f"const int64_t first = {loop.start}L + ({position}) * {cut.trips * loop.step}L;"))
    head = f"for(int64_t {loop.var}=first; {loop.var}<first + {cut.trips * loop.step}L; {loop.var}+={loop.step}L)"
    return (*lines, Block((head,), inner))


def _value(loop: Block, position: str) -> str:
    text = position if loop.step == 1 else f"({position}) * {loop.step}L"
    return text if loop.start == 0 else f"{loop.start}L + {text}"
