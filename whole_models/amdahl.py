"""What the whole can gain by a part of it: tables by region, by module and by operator.

By Amdahl's law a part with the share s of the time gives at most 1 / (1 - s), if it took no time at all.
G. M. Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", 1967.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whole_models.graph import Captured, Graph, Node, TensorFacts
from whole_models.operator_classes import FREE, class_of
from whole_models.regions import Occurrence, Region, counted_ms

BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip
"""The size of an element by dtype."""


@dataclass(frozen=True)
class RegionRow:
    """What a region can give.

    Attributes:
        region: its name.
        kind: its kind.
        occurrences: in how many places it is.
        eager_ms: of all of them in a call of the model.
        share: of the model's time under eager.
        most: the speed-up of the model if the region took no time; infinite if nothing else takes any.
        traffic_bytes: what it must read and write in all places: inputs, weights and outputs, each element once.
        eager_bytes: what its operators read and write, one after the other.
        gb_per_s: `traffic_bytes` in `eager_ms`; None if it was not timed.
    """

    region: str
    kind: str
    occurrences: int
    eager_ms: float
    share: float
    most: float
    traffic_bytes: int
    eager_bytes: int
    gb_per_s: float | None


@dataclass(frozen=True)
class Row:
    """The time of nodes that have a name in common.

    Attributes:
        name: the path of a module, or an operator.
        nodes: how many calls of operators.
        eager_ms: of all of them in a call of the model.
        share: of the model's time under eager.
        most: the speed-up of the model if they took no time.
    """

    name: str
    nodes: int
    eager_ms: float
    share: float
    most: float


def by_region(captured: Captured, regions: Sequence[Region]) -> tuple[RegionRow, ...]:
    """A row for each region, in their order."""
    graphs = {graph.key: graph for graph in captured.graphs}
    total = counted_ms(captured)
    rows = []
    for region in regions:
        graph = graphs[region.graph]
        share = min(1.0, region.eager_ms / total) if total else 0.0
        traffic = graph.calls * sum(_traffic(graph, each) for each in region.occurrences)
        eager = graph.calls * sum(_node_bytes(graph, name) for each in region.occurrences for name in each.nodes)
        rate = traffic / region.eager_ms / 1e6 if region.eager_ms else None
        count = len(region.occurrences)
        rows.append(
            RegionRow(region.name, region.kind, count, region.eager_ms, share, most(share), traffic, eager, rate)
        )
    return tuple(rows)


def by_module(captured: Captured, *, depth: int | None = None) -> tuple[Row, ...]:
    """A row for each module's path, with what lies within it; longest time first, a module before what is in it.

    Args:
        captured: the model.
        depth: the most parts that a path may have; None for all.
    """

    def paths(graph: Graph, node: Node) -> list[str]:
        parts = [part for part in (*graph.path.split("."), *node.module.split(".")) if part]
        return [".".join(parts[:length]) for length in range(len(parts[:depth]) + 1)]

    return _table(captured, paths)


def by_operator(captured: Captured) -> tuple[Row, ...]:
    """A row for each operator, longest time first."""
    return _table(captured, lambda graph, node: [node.operator])


def most(share: float) -> float:
    """The speed-up of the whole if a part with this share of its time took none."""
    return math.inf if share >= 1 else 1 / (1 - share)


def tensor_bytes(facts: TensorFacts) -> int:
    """The memory that the elements of a tensor lie in; elements that strides of 0 repeat are counted once."""
    sizes = (size for size, step in zip(facts.shape, facts.stride, strict=True) if step != 0 or size == 0)
    return math.prod(sizes) * BYTES[facts.dtype]


def _table(captured: Captured, names: Callable[[Graph, Node], Sequence[str]]) -> tuple[Row, ...]:
    total = counted_ms(captured)
    ms: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for graph in captured.graphs:
        for node in graph.nodes:
            for name in names(graph, node):
                ms[name] += graph.calls * (node.eager_ms or 0.0)
                count[name] += graph.calls
    shares = {name: min(1.0, each / total) if total else 0.0 for name, each in ms.items()}
    rows = [Row(name, count[name], ms[name], shares[name], most(shares[name])) for name in ms]
    return tuple(sorted(rows, key=lambda row: (-row.eager_ms, row.name)))


def _traffic(graph: Graph, occurrence: Occurrence) -> int:
    names = (*occurrence.inputs, *(name for _, name in occurrence.weights), *occurrence.outputs)
    return sum(tensor_bytes(facts) for name in names if (facts := graph.tensor_of(name)) is not None)


def _node_bytes(graph: Graph, name: str) -> int:
    node = graph.node_of[name]
    if class_of(node) == FREE:
        return 0
    taken = [facts for ref in node.refs if (facts := graph.tensor_of(ref)) is not None]
    return sum(map(tensor_bytes, (*taken, *node.results)))
