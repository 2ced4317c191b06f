"""k independent tries of the same prompt, as researchers measure models: pass@k and best of k."""

from collections.abc import Hashable
from functools import partial
from math import comb
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import Round, best_of
from agents.llm.concurrency import AT_ONCE, all_of
from agents.prompting.builder import coder_messages
from agents.protocols import JSON
from agents.stop_rules import Stop
from agents.strategies.base import run_graph, seed_rounds
from agents.strategies.context import Branch, Draft, SearchContext, SearchResult

CHANGE = "an independent try"


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    rounds: tuple[Round, ...]
    seeds: int  # rounds that came from the compiler
    branches: tuple[Branch, ...]  # tries that are written and not yet evaluated
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """As many tries as the job has rounds, AT_ONCE of them written at a time, evaluated one after the other."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("write", partial(_write, context))
    graph.add_node("evaluate", partial(_evaluate, context))
    ways: dict[Hashable, str] = {"write": "write", "end": END}
    graph.add_edge(START, "seed")
    graph.add_conditional_edges("seed", _next_node, ways)
    graph.add_edge("write", "evaluate")
    graph.add_conditional_edges("evaluate", _next_node, ways)
    state: State = {"rounds": (), "seeds": 0, "branches": (), "stop": None}
    final = run_graph(graph, state, steps=2 * context.rules.rounds + 10)
    return SearchResult(final["rounds"], final["stop"], summary_of(final["rounds"][final["seeds"] :]))


def pass_at_k(tries: int, passed: int, k: int) -> float:
    """The chance that at least one of `k` tries passes, from `passed` of `tries`; no bias.

    Formula: Chen et al., Evaluating Large Language Models Trained on Code (2021), equation 1.

    Raises:
        ValueError: not 0 <= passed <= tries or not 1 <= k <= tries.
    """
    if not 0 <= passed <= tries or not 1 <= k <= tries:
        raise ValueError(f"tries={tries}, passed={passed}, k={k}: need 0 <= passed <= tries and 1 <= k <= tries")
    return 1.0 - comb(tries - passed, k) / comb(tries, k)


def summary_of(rounds: tuple[Round, ...]) -> dict[str, JSON]:
    """How many tries passed, pass@k for powers of two and all, and the best of them."""
    tries = len(rounds)
    passed = sum(entry.outcome is not None and entry.outcome.passed for entry in rounds)
    best = best_of(rounds)
    wanted = sorted({k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, tries) if 1 <= k <= tries})
    return {
        "tries": tries,
        "passed": passed,
        "pass_at_k": {str(k): round(pass_at_k(tries, passed, k), 4) for k in wanted},
        "best_of_k": best.outcome.speedup if best else None,
    }


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context, plateau=False)
    return {**state, "rounds": rounds, "seeds": len(rounds), "stop": stop}


def _write(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    first = len(rounds) + 1
    left = context.evaluations_left(rounds)
    count = min(AT_ONCE, context.rules.rounds - len(rounds), AT_ONCE if left is None else left)
    # Independent: a try sees the seed, if there is one, and no other try.
    seed = best_of(rounds[: state["seeds"]])
    request = "write" if seed is None else "improve"

    def write(number: int) -> Draft:
        messages = coder_messages(context.brief, request, seed, rounds[: state["seeds"]])
        context.start_round(number, request, seed)
        return context.write_in_parallel(number, messages, request=request, base=seed)

    numbers = range(first, first + count)
    drafts = all_of([partial(write, number) for number in numbers])
    parent = seed.round if seed else None
    branches = tuple(Branch(number, draft, CHANGE, parent) for number, draft in zip(numbers, drafts, strict=True))
    return {**state, "branches": branches}


def _evaluate(context: SearchContext, state: State) -> State:
    rounds, stop = context.finish_branches(state["branches"], state["rounds"], plateau=False)
    return {**state, "rounds": rounds, "branches": (), "stop": stop}


def _next_node(state: State) -> Literal["write", "end"]:
    return "end" if state["stop"] is not None else "write"
