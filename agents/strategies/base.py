"""Running a strategy's graph."""

from typing import Any

from langgraph.graph import StateGraph
from langsmith import tracing_context

from agents.errors import LLMError
from agents.history import Round
from agents.prompting.builder import coder_messages
from agents.stop_rules import Stop, stop_for_error
from agents.strategies.context import SearchContext


def run_graph(graph: StateGraph[Any], state: Any, *, steps: int) -> Any:
    """The state in which a graph ends. `steps` bounds the nodes visited, against a graph that runs in circles."""
    with tracing_context(enabled=False):  # prompts go to the chosen model and nowhere else
        return graph.compile().invoke(state, {"recursion_limit": steps})


CHANGE = "the compiler's kernels as they are"


def seed_rounds(context: SearchContext, *, plateau: bool = True) -> tuple[tuple[Round, ...], Stop | None]:
    """The rounds that a strategy begins with (round 1 from the seed model, or none), and whether that is the end.

    Raises:
        Exception: whatever the evaluator raises.
    """
    rounds: tuple[Round, ...] = ()
    if context.seed_model is not None:
        context.start_round(1, "write", None)
        messages = coder_messages(context.brief, "write", None, ())
        try:
            draft = context.write(1, messages, request="write", base=None, model=context.seed_model)
            rounds = (context.finish_round(1, draft, (), change=CHANGE),)
        except LLMError as error:
            return (), stop_for_error(error)
    return rounds, context.stop_now(rounds, plateau=plateau)
