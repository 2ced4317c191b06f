"""Which nodes of a graph may give tensors that lie in the memory of others."""

from collections import Counter

from whole_models.graph import Graph, Node
from whole_models.operator_classes import FREE, OTHER, class_of, short_name

_MAY_ALIAS = frozenset({"to", "conj", "meshgrid"})


def may_alias(node: Node) -> bool:
    """Whether a result may lie in the memory of an argument. Operators that are not known may give such results."""
    return class_of(node) in (FREE, OTHER) or short_name(node.operator) in _MAY_ALIAS


def memories_of(graph: Graph, name: str) -> set[str]:
    """The nodes and inputs in whose memory the value of a node or input may lie, itself among them."""
    found, waiting = set[str](), [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            if each in graph.node_of and may_alias(graph.node_of[each]):
                waiting += graph.node_of[each].refs
    return found


def shared_outside(graph: Graph) -> frozenset[str]:
    """The nodes by which a result may lie in the memory of an input or of another result.

    What goes on with a fragment's results may change one in place, and read the other.
    """
    memories = {name: memories_of(graph, name) for name in graph.leaving}
    count = Counter(each for found in memories.values() for each in found)
    shared = set[str]()
    for found in memories.values():
        if any(each in graph.input_of or count[each] > 1 for each in found):
            shared |= {each for each in found if each in graph.node_of and may_alias(graph.node_of[each])}
    return frozenset(shared)
