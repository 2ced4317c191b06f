"""Regions of a graph that are worth one kernel each."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Occurrence:
    """One place of a region in its graph; position by position the same operators in every occurrence.

    Attributes:
        nodes: the names of its nodes in the graph's order.
        inputs: the activations that it takes, in order: nodes, or inputs of the graph.
        weights: the parameters, buffers and constants that it takes: the local name, and the input of the graph.
        outputs: the nodes whose values leave it, in order.
    """

    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    weights: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Region:
    """A piece of a graph, in all places where it occurs.

    Attributes:
        name: `r`, two digits, and a few words of `[a-z0-9_]`.
        kind: what it is, in words.
        graph: the path of its graph.
        nodes: those of its first occurrence.
        occurrences: its places.
        eager_ms: the time of all of them together under eager.
    """

    name: str
    kind: str
    graph: str
    nodes: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]
    eager_ms: float
