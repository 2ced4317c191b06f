"""The default strategy `judge`: write → evaluate → judge → write …, one candidate after the other, each with advice."""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import Round, choose_candidate
from agents.prompting.builder import coder_messages
from agents.prompting.parse import Advice
from agents.protocols import LLMError
from agents.stop_rules import Stop, StopReason, stop_for_error
from agents.strategies.base import run_graph, seed_rounds
from agents.strategies.context import FIRST_CHANGE, Draft, SearchContext, SearchResult

NodeName = Literal["write", "evaluate", "judge", "end"]


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    rounds: tuple[Round, ...]
    draft: Draft | None  # written and not evaluated yet
    judged: bool  # whether the Judge was asked after the last round
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """Run one round after the other until a stop rule holds."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("write", partial(_write, context))
    graph.add_node("evaluate", partial(_evaluate, context))
    graph.add_node("judge", partial(_judge, context))
    targets: dict[Hashable, str] = {"write": "write", "evaluate": "evaluate", "judge": "judge", "end": END}
    graph.add_edge(START, "seed")
    for node in ("seed", "write", "evaluate", "judge"):
        graph.add_conditional_edges(node, _next_node, targets)
    state: State = {"rounds": (), "draft": None, "judged": False, "stop": None}
    final = run_graph(graph, state, steps=3 * context.rules.rounds + 10)
    return SearchResult(final["rounds"], final["stop"])


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context)
    return {**state, "rounds": rounds, "stop": stop}


def _write(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    number = len(rounds) + 1
    candidate = choose_candidate(rounds)
    request = "write" if candidate is None else "improve" if candidate.outcome.right else "repair"
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next candidate")}
    context.start_round(number, request, candidate)
    messages = coder_messages(context.brief, request, candidate, rounds, advice=_current_advice(rounds))
    try:
        draft = context.write(number, messages, request=request, base=candidate)
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}
    return {**state, "draft": draft}


def _evaluate(context: SearchContext, state: State) -> State:
    rounds, draft = state["rounds"], state["draft"]
    assert draft is not None, "routed here with a draft only"
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the evaluation")}
    number, candidate = len(rounds) + 1, choose_candidate(rounds)
    try:
        entry = context.finish_round(
            number, draft, rounds, change=_change(rounds), parent=candidate.round if candidate else None
        )
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}
    # If the Coder gave no candidate, the advice has not been followed yet and stays.
    kept_advice = _current_advice(rounds) if not draft.variants else None
    rounds = (
        *rounds,
        replace(entry, advice=kept_advice, advised_hash=rounds[-1].advised_hash if kept_advice else None),
    )
    return {"rounds": rounds, "draft": None, "judged": kept_advice is not None, "stop": context.stop_now(rounds)}


def _judge(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    candidate = choose_candidate(rounds)
    assert candidate is not None, "routed here with a candidate only"
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the Judge")}
    try:
        advice = context.advise(len(rounds), candidate, rounds)
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}
    if advice is None:
        return {**state, "judged": True}
    stop = Stop(StopReason.JUDGE, advice.bottleneck[:500]) if advice.stop else None
    rounds = (*rounds[:-1], replace(rounds[-1], advice=advice, advised_hash=candidate.outcome.candidate_hash))
    return {"rounds": rounds, "draft": None, "judged": True, "stop": stop}


def _next_node(state: State) -> NodeName:
    if state["stop"] is not None:
        return "end"
    if state["draft"] is not None:
        return "evaluate"
    if state["rounds"] and not state["judged"] and choose_candidate(state["rounds"]) is not None:
        return "judge"
    return "write"


def _current_advice(rounds: tuple[Round, ...]) -> Advice | None:
    """The last advice, if it is about the candidate that is changed next."""
    candidate = choose_candidate(rounds)
    if candidate is None or rounds[-1].advised_hash != candidate.outcome.candidate_hash:
        return None
    return rounds[-1].advice


def _change(rounds: tuple[Round, ...]) -> str:
    """What the next candidate is meant to change, for events."""
    if not rounds:
        return FIRST_CHANGE
    advice = _current_advice(rounds)
    return advice.change if advice else "no advice"
