"""The transform `unroll_sums`: it splits long reductions over several accumulators.

With one accumulator each addition waits for the one before, four cycles for a vector although two vectors could be
added in each cycle; a running variance waits three times as long. Several accumulators, added at the end, wait in
parallel.
"""

import re
from dataclasses import replace

from agents.builtin.analysis.inductor_module import Kernel
from agents.builtin.analysis.loops import Block, Line, Node, make_loop, map_lines, parse_body, render_body, walk
from agents.builtin.analysis.reductions import Update, read_update
from agents.builtin.compilation_unit import CompilationUnit

ACCUMULATORS = (4, 2)  # the first number that leaves each accumulator MIN_STEPS steps is used
MIN_STEPS = 2
_ACCUMULATOR = re.compile(r"^(?:float|double|int64_t|int32_t|Vectorized\w*<.*?>|Welford<.*>) (\w*tmp_acc\w*) = [^;]+;$")
_HELPER = re.compile(r"^(?:CascadeSum|Welford)Helper<.*> (\w*_helper\d+)\([^;]*\);$")


def unroll_sums(unit: CompilationUnit) -> CompilationUnit:
    """Split every reduction whose loop uses its accumulators for nothing else."""

    def change(kernel: Kernel) -> Kernel:
        nodes = parse_body(kernel.body)
        changed = _with_parts(nodes)
        return kernel if changed == nodes else replace(kernel, body=render_body(changed))

    return unit.with_kernels(change)


def _with_parts(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes with each loop split that updates accumulators which are declared among these nodes."""
    declared: dict[str, int] = {}
    result: list[Node] = []
    for node in nodes:
        if isinstance(node, Line):
            if match := _ACCUMULATOR.match(node.text) or _HELPER.match(node.text):
                declared[match[1]] = len(result)
            result.append(node)
            continue
        updates = _updates(node, set(declared)) if node.var is not None else None
        parts = _unrolled(node, updates) if updates else None
        if not updates or parts is None:
            result.append(replace(node, body=_with_parts(node.body)))
            continue
        count, unrolled = parts
        names = {update.accumulator for update in updates} | {update.helper for update in updates if update.helper}
        result = _declare(result, {declared[name]: name for name in names}, count)
        result += [unrolled, *(Line(_merged(update, part)) for update in updates for part in range(1, count))]
        declared = {}  # their positions have changed; an accumulator has only one loop
    return tuple(result)


def _declare(nodes: list[Node], positions: dict[int, str], count: int) -> list[Node]:
    """The nodes with declarations of the parts 1 to `count - 1` after each declaration in `positions`."""
    result: list[Node] = []
    for position, node in enumerate(nodes):
        result.append(node)
        if position in positions and isinstance(node, Line):
            names = {positions[position]}
            result += [Line(_renamed(node.text, names, part)) for part in range(1, count)]
    return result


def _updates(loop: Block, declared: set[str]) -> tuple[Update, ...] | None:
    """The updates of `declared` accumulators in a loop; None: the loop uses one of them for something else."""
    found: dict[str, Update] = {}
    for text in _texts(loop):
        words = set(re.findall(r"\w+", text)) & declared
        if not words:
            continue
        update = read_update(text)
        if update is None or words - {update.accumulator, update.helper}:
            return None
        if update.accumulator not in declared or (update.helper and update.helper not in declared):
            return None
        if found.setdefault(update.accumulator, update) != update:
            return None
    helpers = [update.helper for update in found.values() if update.helper]
    return tuple(found.values()) if len(helpers) == len(set(helpers)) else None


def _merged(update: Update, part: int) -> str:
    """The line that adds another part of the accumulator to it."""
    whole, other = update.accumulator, _part(update.accumulator, part)
    if update.operation == "cascade":
        assert update.helper is not None
        return f"{update.helper}.total = {update.helper}.total + cascade_sum_final(&{_part(update.helper, part)});"
    if update.operation == "welford":
        value = other if update.helper is None else f"welford_combine({other}, &{_part(update.helper, part)})"
        return f"{whole} = welford_combine({whole}, {value});"
    if update.operation in ("+", "*"):
        return f"{whole} = {whole} {update.operation} {other};"
    return f"{whole} = {update.operation}({whole}, {other});"


def _texts(loop: Block) -> list[str]:
    texts: list[str] = []
    for node in walk(loop.body):
        texts += node.head if isinstance(node, Block) else [node.text]
    return texts


def _unrolled(loop: Block, updates: tuple[Update, ...]) -> tuple[int, Block] | None:
    """The number of accumulators, and the loop with its innermost loop unrolled so many times.

    None: the innermost loop is too short, or threads share it.
    """
    body = loop.body
    while len(body) == 1 and isinstance(body[0], Block) and not body[0].head:
        body = body[0].body  # braces without a head
    inner = body[0] if len(body) == 1 and isinstance(body[0], Block) and body[0].var is not None else None
    if inner is not None:
        deeper = _unrolled(inner, updates)
        return None if deeper is None else (deeper[0], replace(loop, body=(deeper[1],)))
    count = next((count for count in ACCUMULATORS if loop.trips >= MIN_STEPS * count), None)
    if count is None or loop.var is None or any("omp" in pragma for pragma in loop.pragmas):
        return None
    names = {update.accumulator for update in updates} | {update.helper for update in updates if update.helper}
    stop = loop.start + loop.trips // count * count * loop.step
    first = f"{loop.var}_first"
    copies = tuple(_copy(loop, first, names, part) for part in range(count))
    main = make_loop(first, loop.start, stop, count * loop.step, copies)
    if stop >= loop.stop:
        return count, main
    rest = make_loop(loop.var, stop, loop.stop, loop.step, loop.body)
    return count, Block((), (main, rest))


def _copy(loop: Block, first: str, names: set[str], part: int) -> Block:
    """The step of a loop `part` steps after the one at `first`, with the accumulators of that part."""
    place = Line(f"const int64_t {loop.var} = {first} + {part * loop.step}L;")
    return Block((), (place, *map_lines(loop.body, lambda text: _renamed(text, names, part))))


def _renamed(text: str, names: set[str], part: int) -> str:
    if part == 0:
        return text
    return re.sub(r"\w+", lambda match: _part(match[0], part) if match[0] in names else match[0], text)


def _part(name: str, part: int) -> str:
    return f"{name}_part{part}"
