"""The strategy `sample`: k independent tries of the same prompt, reported as pass@k and best of k."""

from collections.abc import Hashable
from functools import partial
from math import comb
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import Round, best_of
from agents.prompting.builder import coder_messages
from agents.protocols import JSON
from agents.stop_rules import Stop
from agents.strategies.base import MAX_PARALLEL_CALLS, run_graph, run_parallel, seed_rounds
from agents.strategies.context import Branch, Draft, SearchContext, SearchResult

CHANGE = "an independent try"


class State(TypedDict):
    """What the graph carries from node to node; values are immutable.

    Attributes:
        rounds: the rounds so far.
        seeds: how many of them came from the seed model.
        branches: tries that are written and not evaluated yet.
        stop: why the job stops here; None: it goes on.
    """

    rounds: tuple[Round, ...]
    seeds: int
    branches: tuple[Branch, ...]
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """As many tries as the job has rounds, MAX_PARALLEL_CALLS written at a time, evaluated one after the other."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("write", partial(_write, context))
    graph.add_node("evaluate", partial(_evaluate, context))
    targets: dict[Hashable, str] = {"write": "write", "end": END}
    graph.add_edge(START, "seed")
    graph.add_conditional_edges("seed", _next_node, targets)
    graph.add_edge("write", "evaluate")
    graph.add_conditional_edges("evaluate", _next_node, targets)
    state: State = {"rounds": (), "seeds": 0, "branches": (), "stop": None}
    final = run_graph(graph, state, steps=2 * context.rules.rounds + 10)
    return SearchResult(final["rounds"], final["stop"], summary_of(final["rounds"][final["seeds"] :]))


def pass_at_k(tries: int, passed: int, k: int) -> float:
    """The unbiased estimate of the chance that at least one of `k` tries passes, if `passed` of `tries` did.

    Formula: `1 - C(tries - passed, k) / C(tries, k)` (Chen et al., Evaluating Large Language Models Trained on Code,
    2021, equation 1).

    Raises:
        ValueError: not 0 <= passed <= tries or not 1 <= k <= tries.
    """
    if not 0 <= passed <= tries or not 1 <= k <= tries:
        raise ValueError(f"tries={tries}, passed={passed}, k={k}: need 0 <= passed <= tries and 1 <= k <= tries")
    return 1.0 - comb(tries - passed, k) / comb(tries, k)


def summary_of(rounds: tuple[Round, ...]) -> dict[str, JSON]:
    """The figures of tries: how many passed, pass@k for powers of two and for all of them, and the best speedup."""
    tries = len(rounds)
    passed = sum(entry.outcome is not None and entry.outcome.right for entry in rounds)
    best = best_of(rounds)
    ks = sorted({k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, tries) if 1 <= k <= tries})
    return {
        "tries": tries,
        "passed": passed,
        "pass_at_k": {str(k): round(pass_at_k(tries, passed, k), 4) for k in ks},
        "best_of_k": best.outcome.speedup if best else None,
    }


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context, plateau=False)
    return {**state, "rounds": rounds, "seeds": len(rounds), "stop": stop}


def _write(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    first = len(rounds) + 1
    left = context.evaluations_left(rounds)
    count = min(MAX_PARALLEL_CALLS, context.rules.rounds - len(rounds), MAX_PARALLEL_CALLS if left is None else left)
    # Tries are independent: their prompt shows the seed, if there is one, and no other try.
    seed = best_of(rounds[: state["seeds"]])
    request = "write" if seed is None else "improve"

    def write(number: int) -> Draft:
        messages = coder_messages(context.brief, request, seed, rounds[: state["seeds"]], variants=False)
        context.start_round(number, request, seed)
        return context.write_in_parallel(number, messages, request=request, base=seed, variants=False)

    numbers = range(first, first + count)
    drafts = run_parallel([partial(write, number) for number in numbers])
    parent = seed.round if seed else None
    branches = tuple(Branch(number, draft, CHANGE, parent) for number, draft in zip(numbers, drafts, strict=True))
    return {**state, "branches": branches}


def _evaluate(context: SearchContext, state: State) -> State:
    rounds, stop = context.finish_branches(state["branches"], state["rounds"], plateau=False)
    return {**state, "rounds": rounds, "branches": (), "stop": stop}


def _next_node(state: State) -> Literal["write", "end"]:
    return "end" if state["stop"] is not None else "write"
