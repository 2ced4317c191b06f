"""What strategies share: running a graph, the seed round, and calls in parallel."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from langgraph.graph import StateGraph
from langsmith import tracing_context

from agents.history import Round
from agents.prompting.builder import coder_messages
from agents.protocols import LLMError
from agents.stop_rules import Stop, stop_for_error
from agents.strategies.context import SearchContext

MAX_PARALLEL_CALLS = 4  # to models, of one job
SEED_CHANGE = "the compiler's kernels as they are"

Result = TypeVar("Result")


def run_graph(graph: StateGraph[Any], state: Any, *, steps: int) -> Any:
    """The state in which a graph ends. It may visit at most `steps` nodes, so that a graph with a fault ends, too."""
    with tracing_context(enabled=False):  # LangSmith must not send prompts anywhere
        return graph.compile().invoke(state, {"recursion_limit": steps})


def seed_rounds(context: SearchContext, *, plateau: bool = True) -> tuple[tuple[Round, ...], Stop | None]:
    """The rounds that a strategy begins with: round 1 by the seed model, or none without such a model.

    Args:
        context: the job's.
        plateau: whether the plateau rule applies.

    Returns:
        The rounds, and why the job stops after them; None: it goes on.

    Raises:
        Exception: whatever the evaluator raises.
    """
    rounds: tuple[Round, ...] = ()
    if context.seed_model is not None:
        context.start_round(1, "write", None)
        messages = coder_messages(context.brief, "write", None, ())
        try:
            draft = context.write(1, messages, request="write", base=None, model=context.seed_model)
            rounds = (context.finish_round(1, draft, (), change=SEED_CHANGE),)
        except LLMError as error:
            return (), stop_for_error(error)
    return rounds, context.stop_now(rounds, plateau=plateau)


def run_parallel(calls: Sequence[Callable[[], Result]]) -> list[Result | LLMError]:
    """The result of each call, or the LLMError that it raised, in the order of `calls`. All calls have then ended.

    At most MAX_PARALLEL_CALLS run at the same time, each in a thread of its own; a single call runs in this thread.

    Raises:
        BaseException: the first exception of a call that is no LLMError, once all calls have ended.
    """
    if len(calls) <= 1:
        return [_result_or_error(call) for call in calls]
    with ThreadPoolExecutor(min(MAX_PARALLEL_CALLS, len(calls)), thread_name_prefix="branch") as pool:
        futures = [pool.submit(_result_or_error, call) for call in calls]
    return [future.result() for future in futures]


def _result_or_error(call: Callable[[], Result]) -> Result | LLMError:
    try:
        return call()
    except LLMError as error:
        return error
