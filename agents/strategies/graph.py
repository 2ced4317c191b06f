"""Running a strategy's graph."""

from typing import Any

from langgraph.graph import StateGraph
from langsmith import tracing_context


def run_graph(graph: StateGraph[Any], state: Any, *, steps: int) -> Any:
    """The state in which a graph ends. `steps` bounds the nodes visited, against a graph that runs in circles."""
    with tracing_context(enabled=False):  # prompts go to the chosen model and nowhere else
        return graph.compile().invoke(state, {"recursion_limit": steps})
