"""Sets of nodes drawn together into one each, as long as what remains is a graph without cycles.

Sets that can be drawn together one after the other are convex, each by itself, and can be computed in some order, all
of them together. Convexity of each alone is not enough: of two sets, each may need a result of the other.
"""

from collections.abc import Iterable, Sequence

from whole_models.graph import Graph


class Contraction:
    """The nodes of a graph by position, in groups, with an order of the groups in which they can be computed."""

    def __init__(self, before: Sequence[Sequence[int]]) -> None:
        """`before`: for each node the earlier nodes that it takes."""
        self._before = before
        self._group = list(range(len(before)))
        self._members: dict[int, list[int]] = {number: [number] for number in range(len(before))}
        self._order: list[int | None] = list(range(len(before)))
        self._rank = list(range(len(before)))

    def group_of(self, node: int) -> int:
        """The number of the group that holds a node."""
        return self._group[node]

    def members(self, group: int) -> Sequence[int]:
        """The nodes of a group, in the graph's order."""
        return self._members[group]

    def span(self, nodes: Iterable[int]) -> int:
        """How far apart the groups of these nodes lie in the order."""
        ranks = [self._rank[self._group[node]] for node in nodes]
        return max(ranks) - min(ranks)

    def draw_together(self, nodes: Iterable[int]) -> bool:
        """Make one group of the groups that hold these nodes.

        Returns:
            False, with nothing changed, if a path would leave the new group and come back to it.
        """
        groups = {self._group[node] for node in nodes}
        if len(groups) < 2:
            return True
        ranks = [self._rank[group] for group in groups]
        low, high = min(ranks), max(ranks)
        before: list[int] = []  # the groups between that need nothing of the new one, then those that do
        after: list[int] = []
        needs = set[int]()
        for group in self._order[low : high + 1]:
            if group is None:
                continue
            inside = group in groups
            taken = {self._group[each] for node in self._members[group] for each in self._before[node]} - {group}
            if inside:
                if not needs.isdisjoint(taken):
                    return False
            elif not groups.isdisjoint(taken) or not needs.isdisjoint(taken):
                needs.add(group)
                after.append(group)
            else:
                before.append(group)
        made = min(groups)
        nodes_made = sorted(node for group in groups for node in self._members[group])
        for group in groups:
            del self._members[group]
        self._members[made] = nodes_made
        for node in nodes_made:
            self._group[node] = made
        placed: list[int | None] = [*before, made, *after]
        placed += [None] * (high + 1 - low - len(placed))
        self._order[low : high + 1] = placed
        for offset, each in enumerate(placed):
            if each is not None:
                self._rank[each] = low + offset
        return True


def contraction_of(graph: Graph) -> Contraction:
    """The nodes of a graph, each a group of its own."""
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    return Contraction([[place[ref] for ref in node.refs if ref in place] for node in graph.nodes])


def fit_together(graph: Graph, sets: Iterable[Iterable[str]]) -> bool:
    """Whether these sets of nodes share no node, are convex, and can all be computed as one each, in some order."""
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    contraction = contraction_of(graph)
    seen = set[str]()
    for names in map(tuple, sets):
        if not seen.isdisjoint(names) or not contraction.draw_together(place[name] for name in names):
            return False
        seen.update(names)
    return True
