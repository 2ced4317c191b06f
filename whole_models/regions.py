"""Regions: the pieces of a model's graph that are worth one kernel each, found by rule.

There are regions of several grains. Those of one grain share no node, and can all be put in place together; those of
different grains overlap, as alternatives:

- *attention*: `scaled_dot_product_attention`, or two products with a softmax between, with what scales, masks, rotates,
  splits and merges heads around it;
- *chains*: nodes without products that feed each other, as many as stay convex, up to `CHAIN_NODES`;
- *around products*: a linear layer or convolution with the element-wise chain that takes nothing else of the model's
  products, or that takes other products of the same input (a gate); small products take their neighbours, too;
- *blocks*: the nodes of a submodule that repeats or takes a tenth of the time, at each depth a grain of its own;
- *whole*: all nodes.

Nodes that are views stay outside at a region's edge, because eager gives views away for nothing. Attention keeps those
that it starts with, which split heads.

Equal regions, twelve identical layers for instance, are one with several occurrences: same operators, arguments,
wiring, and shapes, strides and dtypes of all that they take and give.
"""

import hashlib
import json
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from whole_models.aliases import shared_outside
from whole_models.contraction import Contraction, contraction_of
from whole_models.graph import GET_ITEM, Argument, Captured, Graph, GraphInput, Node, Ref, TensorFacts, TorchName
from whole_models.operator_classes import (
    ATTENTION,
    COMPUTING,
    COPY,
    ELEMENT_WISE,
    FREE,
    INDEXING,
    NORMALIZATION,
    OF_A_ROOT,
    OF_CHAINS,
    OF_TWO_ACTIVATIONS,
    PRODUCT,
    RECURRENCE,
    REDUCTION,
    SOFTMAX,
    class_of,
    short_name,
)

CHAIN_NODES = 40
ATTENTION_NODES = 80
BLOCK_NODES = 200
WHOLE_NODES = 1000
"""A graph with more nodes is no region. A compiler writes kernels for larger ones than a language model would."""
MOST_TOGETHER = 4
"""A value that more nodes take, or a node that takes more values, joins nothing: it is a hub, not a link of a chain."""
MOST_APART = 500
"""Nodes further apart in the order of computation are not joined to a chain."""
SMALL_SIDE = 64
"""A product is small if a side of its matrices is at most this long: it is bound by memory rather than arithmetic."""
PRODUCT_GAIN = 0.1
"""The share of the time of a large product that a kernel may save: libraries come near to what the device can do."""
CONVOLUTION_GAIN = 0.5
"""The same for a convolution with 3 x 3 kernels and stride 1, for which there is an algorithm that does less."""
CONVOLUTION_CHANNELS = 16
"""With fewer channels that algorithm does not do less."""
WORDS_CHARS = 40
"""The most that the words in a region's name take."""
BLOCK_SHARE = 0.1
BLOCK_DEPTHS = 3
_LOOK = 24  # nodes between a product and a softmax
_BLOCK_PATH = 12  # parts of a module's path

ATTENTION_GRAIN, PRODUCT_GRAIN, CHAIN_GRAIN, WHOLE_GRAIN = "attention", "around products", "chains", "whole"
_WEIGHTS = ("parameter", "buffer", "constant")


@dataclass(frozen=True)
class Occurrence:
    """One place of a region in its graph. The same positions mean the same in all occurrences of a region.

    Attributes:
        nodes: in the graph's order.
        inputs: the activations that it takes: nodes, or inputs of the graph of kind `argument`.
        weights: a local name, and the input of the graph, for each parameter, buffer and constant that it takes.
        outputs: the nodes whose values leave it.
    """

    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    weights: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Region:
    """A convex set of pure nodes, and all the places where an equal one is.

    Attributes:
        name: `r`, a number by share, and a few words of `[a-z0-9_]`.
        kind: element-wise, reduction, normalization, indexing, attention, around a matrix product, block or whole.
        graph: `Graph.key` of the graph that holds it.
        nodes: those of the first occurrence.
        occurrences: in the graph's order.
        eager_ms: the time of all occurrences together, in one call of the model.
        form: equal for equal regions, which are one in a graph; those of several graphs can share a kernel.
    """

    name: str
    kind: str
    graph: str
    nodes: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]
    eager_ms: float
    form: str = ""


def find_regions(captured: Captured, *, min_share: float = 0.005) -> tuple[Region, ...]:
    """The regions of all grains, those that take the most time first.

    Args:
        captured: the model.
        min_share: regions with a smaller share of `counted_ms` are left out; none is if nothing was timed.
    """
    total = counted_ms(captured)
    found: list[Region] = []
    first_of: dict[str, Occurrence] = {}
    for graph in captured.graphs:
        wiring = _Wiring(graph)
        by_signature: dict[str, list[tuple[str, Occurrence]]] = defaultdict(list)
        seen = set[frozenset[int]]()
        for grain, sets in _grains(wiring, total).items():
            for members in sets:
                occurrence = None if members in seen else _occurrence(wiring, members)
                if occurrence is not None:
                    seen.add(members)
                    by_signature[signature(graph, occurrence)].append((grain, occurrence))
        for form, places in by_signature.items():
            occurrences = tuple(sorted((each for _, each in places), key=lambda each: wiring.place[each.nodes[0]]))
            first = first_of.setdefault(form, occurrences[0])
            occurrences = tuple(replace(each, weights=_renamed(first, each)) for each in occurrences)
            kind = _kind(wiring, places[0][0], occurrences[0].nodes)
            ms = sum(_ms(graph, each.nodes) for each in occurrences)
            words = _words(wiring, kind, occurrences[0].nodes)
            found.append(Region(words, kind, graph.key, occurrences[0].nodes, occurrences, ms, form))
    kept = [region for region in found if total == 0 or region.eager_ms >= min_share * total]
    kept.sort(key=lambda region: -region.eager_ms)  # keeps the order of grains and graphs where times are equal
    return tuple(replace(each, name=f"r{number:02d}_{each.name}") for number, each in enumerate(kept, 1))


def choose(captured: Captured, regions: Sequence[Region]) -> tuple[Region, ...]:
    """Regions that share no node and can all be in place together.

    Attention is taken first, then what is around products, then chains, then the rest; among those, what takes more
    time first. A region keeps the occurrences that still fit.
    """
    graphs = {graph.key: graph for graph in captured.graphs}
    contractions = {key: contraction_of(graph) for key, graph in graphs.items()}
    places = {key: {node.name: n for n, node in enumerate(graph.nodes)} for key, graph in graphs.items()}
    taken: dict[str, set[str]] = defaultdict(set)
    rank = {"attention": 0, "around a matrix product": 1, "block": 3, "whole": 4}
    chosen: dict[str, Region] = {}
    for region in sorted(regions, key=lambda each: (rank.get(each.kind, 2), -each.eager_ms, each.name)):
        kept = []
        for occurrence in region.occurrences:
            place = places[region.graph]
            if taken[region.graph].isdisjoint(occurrence.nodes) and contractions[region.graph].draw_together(
                [place[name] for name in occurrence.nodes]
            ):
                taken[region.graph].update(occurrence.nodes)
                kept.append(occurrence)
        if kept:
            ms = sum(_ms(graphs[region.graph], each.nodes) for each in kept)
            chosen[region.name] = replace(region, nodes=kept[0].nodes, occurrences=tuple(kept), eager_ms=ms)
    return tuple(chosen[region.name] for region in regions if region.name in chosen)


def with_a_block(captured: Captured, regions: Sequence[Region]) -> tuple[Region, ...]:
    """What `choose` chooses, and beside it the block that takes the most time, one that repeats before others.

    The block overlaps the parts that it holds. A kernel for it keeps between them what theirs write and read again.
    A block that holds no more than one of the parts is left out.
    """
    parts = choose(captured, regions)
    held = [(each.graph, set(each.nodes)) for each in parts]
    blocks = [
        region
        for region in regions
        if region.kind == "block"
        and sum(graph == region.graph and nodes <= set(region.nodes) for graph, nodes in held) > 1
    ]
    best = max(blocks, key=lambda each: (len(each.occurrences) > 1, each.eager_ms), default=None)
    kept = {each.name: each for each in parts} | ({best.name: best} if best else {})
    return tuple(kept[region.name] for region in regions if region.name in kept)


def named_for(region: Region, shape_group: int) -> Region:
    """A region of the graphs for a shape group, whose name says so: `g0_r01_norm`."""
    return replace(region, name=f"g{shape_group}_{region.name}")


def shape_group_in(name: str) -> int | None:
    """The shape group that a region's name says; None: its graph is for the inputs of `get_inputs()`."""
    found = re.match(r"g(\d{1,4})_r\d", name)
    return None if found is None else int(found[1])


def to_gain_ms(captured: Captured, region: Region) -> float:
    """What a kernel could save of the time of a region in all its places under eager: an estimate, and no bound.

    All of the time counts but that of large products, of which a share does (`PRODUCT_GAIN`, `CONVOLUTION_GAIN`).
    """
    graph = next(graph for graph in captured.graphs if graph.key == region.graph)
    wiring = _Wiring(graph)
    return sum(
        _to_gain_share(wiring, wiring.place[name]) * _ms(graph, (name,))
        for occurrence in region.occurrences
        for name in occurrence.nodes
    )


def is_bare_product(captured: Captured, region: Region) -> bool:
    """Whether a region is nothing but views and large products, none of which has a shorter form."""
    wiring = _Wiring(next(graph for graph in captured.graphs if graph.key == region.graph))
    places = [wiring.place[name] for name in region.nodes]
    return all(
        wiring.kind[place] == FREE
        or (_is_large_product(wiring, place) and not _has_a_shorter_form(wiring.graph, wiring.nodes[place]))
        for place in places
    )


def counted_ms(captured: Captured) -> float:
    """What shares are shares of: the time of a call under eager, or that of all its nodes if this is longer."""
    nodes = sum(_ms(graph, (node.name for node in graph.nodes)) for graph in captured.graphs)
    return max(captured.eager_ms, nodes) if nodes else 0.0


def grains(captured: Captured, graph: Graph) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """The sets of nodes of each grain that make valid regions, before equal ones are put together."""
    wiring = _Wiring(graph)
    return {
        grain: tuple(
            tuple(wiring.names(members)) for members in sets if _occurrence(wiring, members, named=False) is not None
        )
        for grain, sets in _grains(wiring, counted_ms(captured)).items()
    }


def signature(graph: Graph, occurrence: Occurrence) -> str:
    """A hash that two occurrences share if they compute the same in the same way of tensors of the same form.

    Names of nodes do not enter, nor values of weights; those of constants do.
    """
    place: dict[str, object] = {name: ["node", number] for number, name in enumerate(occurrence.nodes)}
    place |= {name: ["input", number] for number, name in enumerate(occurrence.inputs)}
    place |= {name: ["weight", number] for number, (_, name) in enumerate(occurrence.weights)}

    def argument(value: Argument) -> object:
        if isinstance(value, Ref):
            return place.get(value.name) or ["scalar", repr(graph.input_of[value.name].value)]
        if isinstance(value, tuple):
            return ["list", *map(argument, value)]
        if isinstance(value, TorchName):
            return [value.kind, value.name]
        return [type(value).__name__, repr(value)]

    def facts(tensor: TensorFacts | None) -> object:
        return None if tensor is None else [tensor.shape, tensor.stride, tensor.dtype]

    def weight(item: GraphInput) -> object:
        return [item.kind, facts(item.tensor), item.base64]

    nodes = [graph.node_of[name] for name in occurrence.nodes]
    form = [
        [
            [
                node.operator,
                [argument(value) for value in node.args],
                [[name, argument(value)] for name, value in node.kwargs],
                [facts(result) for result in node.results],
            ]
            for node in nodes
        ],
        [facts(graph.tensor_of(name)) for name in occurrence.inputs],
        [weight(graph.input_of[name]) for _, name in occurrence.weights],
        [place[name] for name in occurrence.outputs],
    ]
    return hashlib.sha256(json.dumps(form).encode()).hexdigest()


class _Wiring:
    """A graph by positions of its nodes, with what the rules ask of it again and again."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.place = {node.name: number for number, node in enumerate(graph.nodes)}
        self.before = [[self.place[ref] for ref in node.refs if ref in self.place] for node in graph.nodes]
        self.after: list[list[int]] = [[] for _ in graph.nodes]
        for number, taken in enumerate(self.before):
            for each in taken:
                self.after[each].append(number)
        self.leaves = [node.name in graph.leaving for node in graph.nodes]
        self.kind = [class_of(node) for node in graph.nodes]
        # An atom: a node with several results and the nodes that take one of them each; or else a node alone.
        self.atom: list[tuple[int, ...]] = [(number,) for number in range(len(graph.nodes))]
        for number, node in enumerate(graph.nodes):
            if node.several:
                self._bind(number)
        self._shared = frozenset[str]() if graph.fragment is None else shared_outside(graph)
        self.usable = [all(map(self._usable, atom)) for atom in self.atom]

    def _bind(self, number: int) -> None:
        items = [each for each in self.after[number] if self.nodes[each].operator == GET_ITEM]
        atom = (number, *items)
        for each in atom:
            self.atom[each] = atom
            self.kind[each] = self.kind[number]

    def _usable(self, number: int) -> bool:
        """Whether a region may hold a node: it is pure, and gives tensors that can leave it and lie where they may."""
        node = self.nodes[number]
        if node.several:
            whole = not self.leaves[number] and set(self.after[number]) < set(self.atom[number])
        else:
            whole = len(node.results) == 1  # an assertion has none
        return node.pure and whole and node.name not in self._shared

    @cached_property
    def of_weights(self) -> list[bool]:
        """For each node whether it depends on no activation."""
        activations = {item.name for item in self.graph.inputs if item.kind == "argument"}
        found: list[bool] = []
        for node, taken in zip(self.nodes, self.before, strict=True):
            found.append(activations.isdisjoint(node.refs) and all(found[each] for each in taken))
        return found

    @cached_property
    def _users(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()] * len(self.nodes)
        for number in reversed(range(len(self.nodes))):
            users = dict[int, None]()
            for each in self.after[number]:
                through = self.kind[each] == FREE or self.nodes[each].operator == GET_ITEM
                users.update(dict.fromkeys(found[each] if through else (each,)))
                if len(users) > CHAIN_NODES:
                    break
            found[number] = tuple(users)
        return found

    def users(self, number: int) -> tuple[int, ...]:
        """The nodes that take an element of a node: through views, and through the items of several results.

        More than `CHAIN_NODES` of them, which no chain can hold together, are not all of them.
        """
        return self._users[number]

    def sources(self, number: int) -> list[tuple[int, tuple[int, ...]]]:
        """The nodes that are no views whose elements a node takes, each with the views between.

        A view is of the first tensor that it takes. After `CHAIN_NODES` views in a row the next stands for the rest.
        """
        found: dict[int, tuple[int, ...]] = {}
        open_paths: list[tuple[int, tuple[int, ...]]] = [(each, ()) for each in reversed(self.before[number])]
        while open_paths:
            each, path = open_paths.pop()
            if self.kind[each] == FREE and len(path) <= CHAIN_NODES:
                atom = self.atom[each]
                open_paths += [(other, (*path, *atom)) for other in self.before[atom[0]][:1]]
            else:
                first = self.atom[each][0]
                found[first] = tuple(dict.fromkeys((*found.get(first, ()), *path)))
        return list(found.items())

    def escapes(self, number: int, members: frozenset[int] | set[int]) -> bool:
        """Whether the value of a member leaves."""
        return self.leaves[number] or any(each not in members for each in self.after[number])

    def outputs(self, members: frozenset[int] | set[int]) -> list[int]:
        """The members whose values leave, in order."""
        return [
            number for number in sorted(members) if self.escapes(number, members) and not self.nodes[number].several
        ]

    def is_new(self, number: int, inside: set[str]) -> bool:
        """Whether the memory of a value is of a member, and not of something that the members take."""
        node = self.nodes[number]
        while self.kind[number] == FREE and node.refs:
            if node.refs[0] not in inside:
                return False
            number = self.place[node.refs[0]]
            node = self.nodes[number]
        return True

    def names(self, members: Iterable[int]) -> list[str]:
        return [self.nodes[number].name for number in sorted(members)]

    def without_edges(self, members: Iterable[int], *, start: bool = True) -> frozenset[int]:
        """The members without the views that a set ends with and, where asked, those that it starts with."""
        kept = set(members)
        for number in sorted(kept, reverse=True):
            atom = self.atom[number]
            if number == atom[0] and self.kind[number] == FREE and kept.isdisjoint(self._after_atom(atom)):
                kept.difference_update(atom)
        for number in sorted(kept) if start else ():
            atom = self.atom[number]
            if number == atom[0] and self.kind[number] == FREE and kept.isdisjoint(self.before[number]):
                kept.difference_update(atom)
        return frozenset(kept)

    def _after_atom(self, atom: tuple[int, ...]) -> set[int]:
        return {each for number in atom for each in self.after[number]} - set(atom)

    def convex(self, members: frozenset[int]) -> bool:
        """Whether no path leaves the members and comes back."""
        needs = set[int]()  # nodes between that take a member's value, directly or not
        for number in range(min(members), max(members) + 1):
            if number in members:
                if not needs.isdisjoint(self.before[number]):
                    return False
            elif not members.isdisjoint(self.before[number]) or not needs.isdisjoint(self.before[number]):
                needs.add(number)
        return True

    def feeds_only(self, number: int, members: set[int] | frozenset[int]) -> bool:
        """Whether all that a node's atom gives is taken by members."""
        atom = self.atom[number]
        if any(self.leaves[each] or len(self.after[each]) > BLOCK_NODES for each in atom):
            return False
        return self._after_atom(atom) <= members

    def with_weight_nodes(self, members: frozenset[int]) -> frozenset[int]:
        """The members, and the nodes that depend on weights alone and feed only them."""
        kept = set(members)
        waiting = sorted(kept)
        while waiting:
            for each in self.before[waiting.pop()]:
                atom = self.atom[each]
                if each not in kept and self.usable[each] and self.of_weights[atom[0]] and self.feeds_only(each, kept):
                    kept.update(atom)
                    waiting += atom
        return frozenset(kept)


def _grains(wiring: _Wiring, total_ms: float) -> dict[str, list[frozenset[int]]]:
    """The sets of nodes of each grain, in the order in which a kind is given to equal ones."""
    attention = _attention(wiring)
    chains = _chains(wiring, {number: members for members in attention for number in members})
    found = {
        ATTENTION_GRAIN: attention,
        PRODUCT_GRAIN: _around_products(wiring, frozenset().union(*attention), chains),
        CHAIN_GRAIN: [chain for chain in chains if _computes(wiring, chain)],
    }
    for depth, blocks in enumerate(_blocks(wiring, total_ms), 1):
        found[f"blocks {depth}"] = blocks
    everything = frozenset(range(len(wiring.nodes)))
    found[WHOLE_GRAIN] = [everything] if len(everything) <= WHOLE_NODES and all(wiring.usable) else []
    return found


def _chains(wiring: _Wiring, attention: Mapping[int, frozenset[int]]) -> list[frozenset[int]]:
    """Chains: nodes are joined to what they take, in the graph's order, as long as the rules allow.

    No chain crosses the edge of `attention`, the region of attention that a node lies in.
    """
    contraction = _with_atoms(wiring)
    members = [
        wiring.usable[number] and wiring.kind[number] in OF_CHAINS and number == wiring.atom[number][0]
        for number in range(len(wiring.nodes))
    ]

    def join(nodes: Sequence[int]) -> None:
        groups = {contraction.group_of(node) for node in nodes}
        size = sum(len(contraction.members(group)) for group in groups)
        if size <= CHAIN_NODES:
            _joined(contraction, nodes)

    hubs = []
    for number in range(len(wiring.nodes)):
        sources = wiring.sources(number) if members[number] else []
        if len(sources) > MOST_TOGETHER:
            continue
        for source, path in sources:
            same_side = attention.get(source) == attention.get(number)
            if members[source] and same_side and all(wiring.usable[each] for each in path):
                if len(wiring.users(source)) > MOST_TOGETHER:
                    hubs.append((number, source, path))
                else:
                    join((source, *path, number))
    for number, source, path in hubs:  # a hub joins if all that take it have been joined
        users = wiring.users(source)
        together = len(users) <= CHAIN_NODES and len({contraction.group_of(each) for each in users}) == 1
        if together and not wiring.leaves[source]:
            join((source, *path, number))
    groups = dict.fromkeys(contraction.group_of(number) for number, is_member in enumerate(members) if is_member)
    return [wiring.without_edges(contraction.members(group)) for group in groups]


def _joined(contraction: Contraction, nodes: Iterable[int]) -> bool:
    """Draw nodes together if they are not too far apart and the rest allows it."""
    wanted = list(nodes)
    return contraction.span(wanted) <= MOST_APART and contraction.draw_together(wanted)


def _with_atoms(wiring: _Wiring) -> Contraction:
    contraction = contraction_of(wiring.graph)
    for atom in dict.fromkeys(wiring.atom):
        contraction.draw_together(atom)
    return contraction


def _computes(wiring: _Wiring, members: Iterable[int]) -> bool:
    return any(wiring.kind[number] in COMPUTING for number in members)


def _attention(wiring: _Wiring) -> list[frozenset[int]]:
    contraction = _with_atoms(wiring)
    found: list[frozenset[int]] = []
    taken = set[int]()
    for number, node in enumerate(wiring.nodes):
        centre: set[int] | None = None
        if wiring.kind[number] == ATTENTION and wiring.atom[number][0] == number:
            centre = set(wiring.atom[number])
        elif short_name(node.operator) in SOFTMAX:
            centre = _between_products(wiring, number)
        if not centre or not taken.isdisjoint(centre) or not all(wiring.usable[each] for each in centre):
            continue
        if len(centre) > ATTENTION_NODES or not _joined(contraction, centre):
            continue
        _grow_up(wiring, contraction, centre, taken, OF_CHAINS | {FREE}, ATTENTION_NODES)
        _grow_down(wiring, contraction, centre, taken, {FREE, COPY}, ATTENTION_NODES)
        members = wiring.without_edges(centre, start=False)
        taken |= members
        found.append(members)
    return found


def _between_products(wiring: _Wiring, softmax: int) -> set[int] | None:
    """The products of activations on both sides of a softmax, and all that lies on a path between."""

    def nearest(step: Sequence[Sequence[int]]) -> set[int]:
        seen, waiting, products = {softmax}, [softmax], set[int]()
        while waiting and len(seen) < _LOOK:
            for each in step[waiting.pop(0)]:
                if each in seen:
                    continue
                if len(seen) > _LOOK:
                    break
                seen.add(each)
                if wiring.kind[each] == PRODUCT:
                    if short_name(wiring.nodes[each].operator) in OF_TWO_ACTIVATIONS:
                        products.add(each)
                elif wiring.kind[each] in OF_CHAINS - {NORMALIZATION} | {FREE}:
                    waiting.append(each)
        return products

    above, below = nearest(wiring.before), nearest(wiring.after)
    if not above or not below:
        return None
    first, last = min(above), max(below)
    if last - first > MOST_APART:
        return None
    down, up = set(above), set(below)
    for number in range(first, last + 1):
        if not down.isdisjoint(wiring.before[number]):
            down.add(number)
    for number in range(last, first - 1, -1):
        if not up.isdisjoint(wiring.after[number]):
            up.add(number)
    centre = (down & up) | above | below
    return {each for number in centre for each in wiring.atom[number]}


def _grow_up(
    wiring: _Wiring,
    contraction: Contraction,
    members: set[int],
    taken: set[int],
    kinds: frozenset[str] | set[str],
    most: int,
) -> None:
    """Add the nodes of some kinds that feed only members, again and again."""
    waiting = sorted(members, reverse=True)
    while waiting:
        number = waiting.pop(0)
        for each in wiring.before[number]:
            atom = wiring.atom[each]
            fits = wiring.usable[each] and wiring.kind[each] in kinds and taken.isdisjoint(atom)
            if each in members or not fits or len(members) + len(atom) > most or not wiring.feeds_only(each, members):
                continue
            if _joined(contraction, [*members, *atom]):
                members.update(atom)
                waiting += atom


def _grow_down(
    wiring: _Wiring,
    contraction: Contraction,
    members: set[int],
    taken: set[int],
    kinds: frozenset[str] | set[str],
    most: int,
) -> None:
    """Add the nodes of some kinds that alone take the value of a member, again and again."""
    waiting = sorted(members)
    while waiting:
        number = waiting.pop(0)
        outside = {wiring.atom[each] for each in wiring.after[number] if each not in members}
        if len(outside) != 1 or wiring.leaves[number]:
            continue
        (atom,) = outside
        fits = wiring.usable[atom[0]] and wiring.kind[atom[0]] in kinds and taken.isdisjoint(atom)
        if fits and len(members) + len(atom) <= most and _joined(contraction, [*members, *atom]):
            members.update(atom)
            waiting += atom


def _around_products(
    wiring: _Wiring, in_attention: frozenset[int], chains: Sequence[frozenset[int]]
) -> list[frozenset[int]]:
    """Each product with the chain that its value goes to, if the rules allow.

    The chain is taken whole, is element-wise, and the product feeds nothing else. What leaves is one value. Another
    product that the chain takes comes along if it has the same input and feeds nothing else.
    """
    contraction = _with_atoms(wiring)
    chain_of = {number: chain for chain in chains for number in chain}
    owned: dict[int, frozenset[int]] = {}

    def inputs(number: int) -> set[int | str]:
        node = wiring.nodes[number]
        sources: set[int | str] = {source for source, _ in wiring.sources(number) if not wiring.of_weights[source]}
        return sources or {ref for ref in node.refs if _is_activation(wiring.graph, ref)}

    for number in range(len(wiring.nodes)):
        atom = wiring.atom[number]
        is_product = wiring.kind[number] in (PRODUCT, RECURRENCE) and number == atom[0]
        if not is_product or number in in_attention or number in owned or not wiring.usable[number]:
            continue
        members = set(atom)
        small = _is_small(wiring, number)
        users = wiring.users(number)
        after = {id(chain_of.get(each)): chain_of.get(each) for each in users}
        chain = next(iter(after.values())) if len(after) == 1 and len(users) <= CHAIN_NODES else None
        if chain is not None and not any(wiring.leaves[each] for each in atom):
            allowed = small or all(wiring.kind[each] in (ELEMENT_WISE, COPY, FREE) for each in chain)
            if allowed and chain.isdisjoint(in_attention) and chain.isdisjoint(owned):
                wanted = members | chain | _views_between(wiring, members, chain)
                for other in dict.fromkeys(source for each in sorted(chain) for source, _ in wiring.sources(each)):
                    gate = (
                        wiring.kind[other] == PRODUCT
                        and other not in owned
                        and wiring.usable[other]
                        and other not in in_attention
                        and inputs(other) == inputs(number)
                        and set(wiring.users(other)) <= chain
                    )
                    if gate and other not in wanted:
                        wanted |= {other} | _views_between(wiring, {other}, chain)
                trimmed = wiring.without_edges(wanted)
                one_value = len(wiring.outputs(trimmed)) == 1
                usable = all(wiring.usable[each] for each in wanted)
                if one_value and usable and _joined(contraction, wanted):
                    members = set(wanted)
        if small:
            unavailable = set(owned) | in_attention
            _grow_up(wiring, contraction, members, unavailable, {FREE, COPY, ELEMENT_WISE}, CHAIN_NODES)
        region = wiring.without_edges(members)
        owned |= dict.fromkeys(members, region)
    return list(dict.fromkeys(owned.values()))


def _views_between(wiring: _Wiring, members: set[int], chain: frozenset[int]) -> set[int]:
    """The views that lead from members to a chain, with their atoms."""
    found = set[int]()
    for number in sorted(chain):
        for source, path in wiring.sources(number):
            if source in members:
                found.update(path)
    return found


def _is_large_product(wiring: _Wiring, number: int) -> bool:
    return wiring.kind[number] == PRODUCT and not _is_small(wiring, number)


def _to_gain_share(wiring: _Wiring, number: int) -> float:
    if not _is_large_product(wiring, number):
        return 1.0
    return CONVOLUTION_GAIN if _has_a_shorter_form(wiring.graph, wiring.nodes[number]) else PRODUCT_GAIN


def _has_a_shorter_form(graph: Graph, node: Node) -> bool:
    """Whether a node is a convolution with 3 x 3 kernels, stride 1 and one group: Winograd's algorithm is for these."""
    if short_name(node.operator) != "conv2d" or len(node.args) < 2 or not isinstance(node.args[1], Ref):
        return False
    weight = graph.tensor_of(node.args[1].name)
    given = dict(zip(("stride", "padding", "dilation", "groups"), node.args[3:], strict=False)) | dict(node.kwargs)
    return (
        weight is not None
        and weight.shape[2:] == (3, 3)
        and min(weight.shape[:2]) >= CONVOLUTION_CHANNELS
        and weight.dtype == "float32"
        and given.get("stride", 1) in (1, (1,), (1, 1))
        and given.get("dilation", 1) in (1, (1,), (1, 1))
        and given.get("groups", 1) == 1
    )


def _is_small(wiring: _Wiring, number: int) -> bool:
    """Whether a side of the matrices of a product of two activations is short."""
    node = wiring.nodes[number]
    if short_name(node.operator) not in OF_TWO_ACTIVATIONS:
        return False
    sides = [
        side
        for ref in node.refs
        if (tensor := wiring.graph.tensor_of(ref)) is not None and len(tensor.shape) >= 2
        for side in tensor.shape[-2:]
    ]
    return bool(sides) and min(sides) <= SMALL_SIDE


def _blocks(wiring: _Wiring, total_ms: float) -> list[list[frozenset[int]]]:
    """The submodules that are worth a region: by the number of such submodules that they lie in."""
    by_path: dict[str, set[int]] = defaultdict(set)
    for number, node in enumerate(wiring.nodes):
        parts = node.module.split(".") if node.module else []
        for length in range(1, min(len(parts), _BLOCK_PATH) + 1):
            by_path[".".join(parts[:length])].update(wiring.atom[number])
    products = (PRODUCT, ATTENTION, RECURRENCE)
    valid: dict[str, frozenset[int]] = {}
    signatures: dict[str, str] = {}
    count: dict[str, int] = defaultdict(int)
    for path, members in by_path.items():
        if len(members) > 2 * BLOCK_NODES or max(members) - min(members) > MOST_APART:
            continue
        trimmed = wiring.with_weight_nodes(wiring.without_edges(members))
        heavy = len(trimmed) > 1 and any(wiring.kind[each] in products for each in trimmed)
        if not heavy or len(trimmed) > BLOCK_NODES or not wiring.convex(trimmed):
            continue
        occurrence = _occurrence(wiring, trimmed, named=False)
        if occurrence is None:
            continue
        valid[path] = trimmed
        signatures[path] = signature(wiring.graph, occurrence)
        count[signatures[path]] += 1
    levels: list[list[frozenset[int]]] = [[] for _ in range(BLOCK_DEPTHS)]
    contractions = [_with_atoms(wiring) for _ in range(BLOCK_DEPTHS)]
    taken: list[set[int]] = [set() for _ in range(BLOCK_DEPTHS)]
    worth = [
        path
        for path, members in valid.items()
        if count[signatures[path]] > 1
        or (total_ms > 0 and _ms(wiring.graph, wiring.names(members)) >= BLOCK_SHARE * total_ms)
    ]
    known = set(worth)
    for path in worth:
        above = (path[: end.start()] for end in re.finditer(r"\.", path))
        depth = sum(other in known and valid[path] != valid[other] for other in above)
        free = depth < BLOCK_DEPTHS and taken[depth].isdisjoint(valid[path])
        if free and contractions[depth].draw_together(valid[path]):
            taken[depth] |= valid[path]
            levels[depth].append(valid[path])
    return levels


def _is_activation(graph: Graph, name: str) -> bool:
    return name in graph.node_of or graph.input_of[name].kind == "argument"


def _occurrence(wiring: _Wiring, members: frozenset[int], *, named: bool = True) -> Occurrence | None:
    """What a set of nodes takes and gives; None if it cannot be a region.

    A region holds usable nodes with all their items, takes a tensor that is an activation, and gives new tensors.
    """
    graph = wiring.graph
    if not members or any(not wiring.usable[n] or not members.issuperset(wiring.atom[n]) for n in members):
        return None
    nodes = wiring.names(members)
    inside = set(nodes)
    taken = list(dict.fromkeys(ref for name in nodes for ref in graph.node_of[name].refs if ref not in inside))
    inputs = [ref for ref in taken if _is_activation(graph, ref)]
    weights = [ref for ref in taken if ref in graph.input_of and graph.input_of[ref].kind in _WEIGHTS]
    outputs = wiring.outputs(members)
    if not inputs or not outputs or any(graph.tensor_of(ref) is None for ref in inputs):
        return None
    if not all(wiring.is_new(number, inside) for number in outputs):
        return None
    locals_ = local_names([graph.input_of[ref] for ref in weights]) if named else weights
    return Occurrence(
        tuple(nodes), tuple(inputs), tuple(zip(locals_, weights, strict=True)), tuple(wiring.names(outputs))
    )


def _renamed(first: Occurrence, other: Occurrence) -> tuple[tuple[str, str], ...]:
    """The weights of an occurrence under the local names of the first."""
    return tuple((local, name) for (local, _), (_, name) in zip(first.weights, other.weights, strict=True))


# What torch.nn.Module defines: a parameter of such a name would hide it.
_MODULE_WORDS = """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval
    extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules
    mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory
    state_dict to to_empty train training type xpu zero_grad
"""
MODULE_NAMES = frozenset(_MODULE_WORDS.split())


def local_names(weights: Sequence[GraphInput]) -> list[str]:
    """Identifiers for weights, of their paths without what all share; each once."""
    paths = [(item.path or item.name).split(".") for item in weights]
    shared = 0
    while paths and all(len(path) > shared + 1 and path[shared] == paths[0][shared] for path in paths):
        shared += 1
    names: list[str] = []
    for path in paths:
        parts = path[shared:] if len(paths) > 1 else path[-2:]
        while len(parts) > 1 and parts[0].isdigit():
            parts = parts[1:]
        name = re.sub(r"\W|^(?=\d)", "_", "_".join(parts), flags=re.ASCII)[-60:].lstrip("_") or "weight"
        if name[0].isdigit() or keyword.iskeyword(name) or name in MODULE_NAMES:
            name = f"weight_{name}"
        number, unique = 2, name
        while unique in names:
            unique, number = f"{name}_{number}", number + 1
        names.append(unique)
    return names


def _kind(wiring: _Wiring, grain: str, nodes: Sequence[str]) -> str:
    if grain == PRODUCT_GRAIN:
        return "around a matrix product"
    if grain != CHAIN_GRAIN:
        return "block" if grain.startswith("blocks") else grain
    found = {class_of(wiring.graph.node_of[name]) for name in nodes}
    roots = any(short_name(wiring.graph.node_of[name].operator) in OF_A_ROOT for name in nodes)
    if NORMALIZATION in found or (REDUCTION in found and roots):
        return NORMALIZATION
    return next((kind for kind in (REDUCTION, INDEXING) if kind in found), ELEMENT_WISE)


def _words(wiring: _Wiring, kind: str, nodes: Sequence[str]) -> str:
    """A few words for a region: the class of the module that all or most of it is of, or else its operators."""
    graph = wiring.graph
    if kind in ("whole", "attention"):
        return kind
    computing = [graph.node_of[name] for name in nodes if class_of(graph.node_of[name]) not in (FREE, COPY)]
    if kind == "block":
        shared = _shared_module(computing or [graph.node_of[name] for name in nodes])
        owner = next((node.module_class for node in graph.nodes if node.module == shared), "")
        parts = shared.split(".")
        words = _snake(owner) or "_".join(map(_snake, parts[-2:] if parts[-1].isdigit() else parts[-1:]))
        return words[:WORDS_CHARS].strip("_") or "block"
    operators = list(dict.fromkeys(_spoken(node) for node in computing))
    classes: dict[str, int] = defaultdict(int)
    for node in computing:
        if node.module:
            classes[node.module_class] += 1
    best: str = max(classes, key=lambda name: classes[name], default="")
    most = classes.get(best, 0) * 3 >= 2 * len(computing) and len(computing) > 3
    named = most and kind == NORMALIZATION and "norm" in best.lower()
    return (_snake(best) if named else "_".join(map(_snake, operators[:3])))[:WORDS_CHARS].strip("_") or "region"


def _spoken(node: Node) -> str:
    """An operator without what its name says beside its work."""
    return re.sub(r"^native_|^fused_|_legit.*|_no_training.*", "", short_name(node.operator).strip("_"))


def _shared_module(nodes: Sequence[Node]) -> str:
    paths = [node.module.split(".") for node in nodes]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _snake(word: str) -> str:
    """`RMSNorm` as `rms_norm`."""
    word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", word.rpartition(".")[2])
    return re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")


def _ms(graph: Graph, names: Iterable[str]) -> float:
    return graph.calls * sum(graph.node_of[name].eager_ms or 0.0 for name in names)
