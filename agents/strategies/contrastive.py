"""The strategy `contrastive`: the Coder compares correct candidates of different speed and writes a faster one.

The prompt shows the candidates with their measured speed and asks why one is faster than another (after Li et al.,
CUDA-L1, 2025).
"""

import random
from collections.abc import Hashable, Sequence
from functools import partial
from math import floor, log
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import EvaluatedCandidate, Round, choose_candidate
from agents.prompting.builder import coder_messages, contrast_messages
from agents.protocols import LLMError
from agents.stop_rules import Stop, StopReason, stop_for_error
from agents.strategies.base import run_graph, seed_rounds
from agents.strategies.context import FIRST_CHANGE, Draft, SearchContext, SearchResult

MAX_SHOWN = 3  # candidates in a prompt
BUCKET_FACTOR = 1.15  # width of a speed bucket


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    rounds: tuple[Round, ...]
    draft: Draft | None  # written and not evaluated yet
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """Run one round after the other until a stop rule holds."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("write", partial(_write, context))
    graph.add_node("evaluate", partial(_evaluate, context))
    targets: dict[Hashable, str] = {"write": "write", "evaluate": "evaluate", "end": END}
    graph.add_edge(START, "seed")
    for node in ("seed", "write", "evaluate"):
        graph.add_conditional_edges(node, _next_node, targets)
    final = run_graph(graph, {"rounds": (), "draft": None, "stop": None}, steps=2 * context.rules.rounds + 10)
    return SearchResult(final["rounds"], final["stop"])


def sample_by_speed(rounds: Sequence[Round], rng: random.Random) -> list[EvaluatedCandidate]:
    """Up to MAX_SHOWN correct candidates from different speed buckets, the fastest last.

    A bucket holds speedups within a factor of BUCKET_FACTOR, and is represented by its fastest candidate. The fastest
    bucket is always chosen; of the others, faster ones are more likely.
    """
    buckets: dict[int, EvaluatedCandidate] = {}
    for entry in rounds:
        if entry.source is None or entry.outcome is None or not entry.outcome.passed or not entry.outcome.speedup:
            continue
        bucket = floor(log(entry.outcome.speedup) / log(BUCKET_FACTOR))
        known = buckets.get(bucket)
        if known is None or (known.outcome.speedup or 0.0) < entry.outcome.speedup:
            buckets[bucket] = EvaluatedCandidate(entry.source, entry.outcome, entry.number)
    order = sorted(buckets)
    chosen = order[-1:]
    others = order[:-1]
    while others and len(chosen) < MAX_SHOWN:
        weights = [BUCKET_FACTOR ** (bucket - others[-1]) for bucket in others]
        picked = rng.choices(others, weights)[0]
        others.remove(picked)
        chosen.append(picked)
    return [buckets[bucket] for bucket in sorted(chosen)]


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context)
    return {**state, "rounds": rounds, "stop": stop}


def _write(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    number, candidate = len(rounds) + 1, choose_candidate(rounds)
    request = _request(candidate)
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next candidate")}
    context.start_round(number, request, candidate)
    if request == "contrast":
        rng = random.Random(f"{context.brief.task}/{number}")  # noqa: S311  # the same choice in every run of the job
        messages = contrast_messages(context.brief, sample_by_speed(rounds, rng), rounds)
    else:
        messages = coder_messages(context.brief, request, candidate, rounds)
    base = candidate if request == "repair" else None
    try:
        draft = context.write(number, messages, request=request, base=base)
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}
    return {**state, "draft": draft}


def _evaluate(context: SearchContext, state: State) -> State:
    rounds, draft = state["rounds"], state["draft"]
    assert draft is not None, "routed here with a draft only"
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the evaluation")}
    candidate = choose_candidate(rounds)
    change = FIRST_CHANGE if candidate is None else _request(candidate)
    try:
        entry = context.finish_round(
            len(rounds) + 1, draft, rounds, change=change, parent=candidate.round if candidate else None
        )
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}
    rounds = (*rounds, entry)
    return {"rounds": rounds, "draft": None, "stop": context.stop_now(rounds)}


def _request(candidate: EvaluatedCandidate | None) -> str:
    if candidate is None:
        return "write"
    return "contrast" if candidate.outcome.passed else "repair"


def _next_node(state: State) -> Literal["write", "evaluate", "end"]:
    if state["stop"] is not None:
        return "end"
    return "write" if state["draft"] is None else "evaluate"
