"""Fuses consecutive parallel loops over the same rows, so that the next finds in cache what one has written.

TorchInductor ends its parallel loop where the shape of the iteration changes: a softmax over the last of four
dimensions is two loops, with the whole tensor between them. Here the rows are cut into chunks, and each chunk goes
through all loops before the next one begins. That is safe where no chunk touches what another chunk writes; the index
expressions are affine and their bounds constant, so the ranges that a chunk touches are known exactly enough.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agents.builtin.analysis.accesses import Access, aliases, find_accesses
from agents.builtin.analysis.buffers import UNKNOWN, Place, find_places, read_buffers
from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, make_loop, map_lines, parse_body, render_body
from agents.builtin.compilation_unit import CompilationUnit

MAX_CHUNKS = 8192
MIN_CHUNKS_A_THREAD = 4
SHORT_TRIPS = 64
CHUNK_BYTES = 512 * 1024  # what a chunk may write and read again, to stay in a second-level cache


@dataclass(frozen=True)
class Stage:
    """One parallel loop: perfectly nested `outer` loops around `inner`; `before` are the declarations in front."""

    before: tuple[Line, ...]
    outer: tuple[Block, ...]
    inner: tuple[Node, ...]


@dataclass(frozen=True)
class Cut:
    """A way to cut a stage into chunks: loops before `depth` run one step each, that at `depth` runs `trips` steps."""

    depth: int
    trips: int


def fuse_rows(unit: CompilationUnit) -> CompilationUnit:
    """Fuses in every kernel what can be fused."""
    lanes = max(4, unit.generated.vector_bytes // 4)  # without a count, a vector is one of float
    buffers = read_buffers(unit)

    def change(kernel: Kernel) -> Kernel:
        places = find_places(kernel, buffers)
        if places is None:
            return kernel
        nodes = parse_body(kernel.body)
        names = places | {alias: places.get(name, UNKNOWN) for alias, name in aliases(nodes).items()}
        fused = tuple(_in_region(node, names, lanes, unit.generated.threads) for node in nodes)
        return kernel if fused == nodes else replace(kernel, body=render_body(fused))

    return unit.with_kernels(change)


def _in_region(node: Node, names: Mapping[str, Place], lanes: int, threads: int) -> Node:
    if not (isinstance(node, Block) and node.head and node.head[-1].startswith("#pragma omp parallel")):
        return node
    body: list[Node] = []
    run: list[tuple[Node, Stage]] = []

    def flush() -> None:
        first, rest = _split(run, names, lanes)
        merged = _fused([stage for _, stage in rest], names, lanes, threads) if len(rest) > 1 else None
        if merged is None:
            body.extend(original for original, _ in run)
        else:
            body.extend([*(original for original, _ in first), merged])
        run.clear()

    for child in node.body:
        stage = read_stage(child)
        if stage is None:
            flush()
            body.append(child)
        else:
            run.append((child, stage))
    flush()
    return replace(node, body=tuple(body))


def _split(
    run: list[tuple[Node, Stage]], names: Mapping[str, Place], lanes: int
) -> tuple[list[tuple[Node, Stage]], list[tuple[Node, Stage]]]:
    """Short stages that may as well run before all others, and the rest: a short one has no rows to cut."""
    first: list[tuple[Node, Stage]] = []
    rest: list[tuple[Node, Stage]] = []
    for node, stage in run:
        short = math.prod(loop.trips for loop in stage.outer) <= SHORT_TRIPS
        if short and all(_apart(node, other, names, lanes) for other, _ in rest):
            first.append((node, stage))
        else:
            rest.append((node, stage))
    return first, rest


def _apart(one: Node, other: Node, names: Mapping[str, Place], lanes: int) -> bool:
    """Whether neither of two stages touches a buffer that the other one writes."""
    touched = [list(find_accesses((node,), lanes)) for node in (one, other)]
    buffers = [{names.get(access.pointer, UNKNOWN).name for access in accesses} for accesses in touched]
    written = [{names.get(access.pointer, UNKNOWN).name for access in accesses if access.write} for accesses in touched]
    return not (written[0] & buffers[1] or written[1] & buffers[0]) and "" not in written[0] | written[1]


def read_stage(node: Node) -> Stage | None:
    """The stage that a block inside a parallel region is, or None."""
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
    return Stage(tuple(item for item in before if isinstance(item, Line)), tuple(outer), inner)


def _fused(stages: list[Stage], names: Mapping[str, Place], lanes: int, threads: int) -> Block | None:
    """All stages in one loop over as many chunks as are safe (a row may even stay in the nearest cache), or None."""
    cuts = [_cuts(stage) for stage in stages]
    common = set(cuts[0]).intersection(*cuts[1:])
    least = MIN_CHUNKS_A_THREAD * threads
    for count in sorted((c for c in common if least <= c <= MAX_CHUNKS), reverse=True):
        chosen = [options[count] for options in cuts]
        if _independent(stages, chosen, count, names, lanes):
            return _emit(stages, chosen, count)
    return None


def _cuts(stage: Stage) -> dict[int, Cut]:
    """For each number of chunks that this stage can be cut into, how."""
    found: dict[int, Cut] = {}
    before = 1
    for depth, loop in enumerate(stage.outer):
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


def _independent(stages: list[Stage], cuts: list[Cut], count: int, names: Mapping[str, Place], lanes: int) -> bool:
    """Whether no chunk touches what another one writes, and a chunk is small enough to stay in cache."""
    spans: dict[str, list[tuple[int, int]]] = {}
    accesses: list[tuple[Stage, Cut, Access]] = []
    for stage, cut in zip(stages, cuts, strict=True):
        accesses += [(stage, cut, access) for access in find_accesses(_remaining(stage, cut), lanes)]
    written = {names.get(access.pointer, UNKNOWN).name for _, _, access in accesses if access.write}
    for stage, cut, access in accesses:
        place = names.get(access.pointer, UNKNOWN)
        if place.name not in written:
            continue
        if access.index is None or not place.name:
            return False
        for chunk in range(count):
            span = access.index.span({**access.ranges, **_outer_ranges(stage, cut, chunk)})
            if span is None:
                return False
            low, high = span[0] + place.offset, span[1] + place.offset + access.lanes - 1
            held = spans.setdefault(place.name, [])
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


def _outer_ranges(stage: Stage, cut: Cut, chunk: int) -> dict[str, tuple[int, int]]:
    """The values of the loop variables down to `depth` within a chunk."""
    ranges: dict[str, tuple[int, int]] = {}
    loop = stage.outer[cut.depth]
    parts = loop.trips // cut.trips
    chunk, part = divmod(chunk, parts)
    assert loop.var is not None
    first = loop.start + part * cut.trips * loop.step
    ranges[loop.var] = (first, first + (cut.trips - 1) * loop.step)
    for outer in reversed(stage.outer[: cut.depth]):
        chunk, position = divmod(chunk, outer.trips)
        assert outer.var is not None
        ranges[outer.var] = (outer.start + position * outer.step,) * 2
    return ranges


def _remaining(stage: Stage, cut: Cut) -> tuple[Node, ...]:
    """What runs inside a chunk below the loop at `depth`."""
    if cut.depth + 1 < len(stage.outer):
        below = stage.outer[cut.depth + 1]
        return (replace(below, head=tuple(line for line in below.head if "omp" not in line)),)
    return stage.inner


def _emit(stages: list[Stage], cuts: list[Cut], count: int) -> Block:
    """`omp for` over chunks, with all stages inside."""
    declarations: list[Node] = []
    bodies: list[Node] = []
    for number, (stage, cut) in enumerate(zip(stages, cuts, strict=True)):
        body = _chunk_body(stage, cut)
        if stage.before:
            # Local buffers are made once a thread, under names of their own.
            for line in stage.before:
                declarations.append(Line(_numbered(line.text, number)))
            body = _renamed(body, number)
        bodies.append(Block((), body))
    loop = make_loop("chunk", 0, count, 1, tuple(bodies), "#pragma omp for")
    return Block((), (*declarations, loop))


def _numbered(text: str, number: int) -> str:
    return text.replace("local_buffer_data_", f"local_buffer_{number}_data_")


def _renamed(nodes: tuple[Node, ...], number: int) -> tuple[Node, ...]:
    return map_lines(nodes, lambda text: _numbered(text, number))


def _chunk_body(stage: Stage, cut: Cut) -> tuple[Node, ...]:
    loop = stage.outer[cut.depth]
    parts = loop.trips // cut.trips
    lines: list[Node] = []
    divisor = parts
    for outer in reversed(stage.outer[: cut.depth]):
        position = f"chunk / {divisor}L % {outer.trips}L"
        lines.append(Line(f"const int64_t {outer.var} = {_value(outer, position)};"))
        divisor *= outer.trips
    inner = _remaining(stage, cut)
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
