"""Several branches at a time: the best candidate and one that differs from it are each taken further in several ways.

Models are asked side by side; candidates are evaluated one after the other, for a device measures one at a time.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.errors import LLMError
from agents.history import EvaluatedCandidate, Round, best_of
from agents.llm.concurrency import all_of
from agents.prompting.builder import coder_messages
from agents.stop_rules import Stop, StopReason, stop_for_error
from agents.strategies.base import run_graph, seed_rounds
from agents.strategies.context import FIRST_CHANGE, Branch, SearchContext, SearchResult

KEPT = 2  # candidates that are taken further
CHILDREN = 2  # ways in which each of them is
NOVELTY = 0.25  # of the best speedup: what a candidate that shares no line with those kept is worth on top

# What tells the first tries apart.
OPENINGS = (
    "Several engineers write a first version side by side. Yours is the simplest one that fuses everything.",
    "Several engineers write a first version side by side. Yours moves the fewest bytes, whatever else it costs.",
    "Several engineers write a first version side by side. Yours keeps every core and vector lane busy.",
)


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    rounds: tuple[Round, ...]
    branches: tuple[Branch, ...]  # written and not yet evaluated
    closed: frozenset[str]  # candidates that the Judge sees no change for
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """Generation after generation until a stop rule holds."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("grow", partial(_grow, context))
    graph.add_node("evaluate", partial(_evaluate, context))
    ways: dict[Hashable, str] = {"grow": "grow", "end": END}
    graph.add_edge(START, "seed")
    graph.add_conditional_edges("seed", _next_node, ways)
    graph.add_edge("grow", "evaluate")
    graph.add_conditional_edges("evaluate", _next_node, ways)
    state: State = {"rounds": (), "branches": (), "closed": frozenset(), "stop": None}
    final = run_graph(graph, state, steps=2 * context.rules.rounds + 10)
    return SearchResult(final["rounds"], final["stop"])


def choose_kept(rounds: Sequence[Round], closed: frozenset[str]) -> list[EvaluatedCandidate]:
    """The candidates to take further: the best correct one first, then by speed and by how much they differ from it.

    Where none is correct, the last ones, to be repaired.
    """
    found: dict[str, EvaluatedCandidate] = {}
    for entry in rounds:
        if entry.source is not None and entry.outcome is not None and entry.repeat_of is None:
            found[entry.outcome.candidate_hash] = EvaluatedCandidate(entry.source, entry.outcome, entry.number)
    left = [candidate for digest, candidate in found.items() if digest not in closed]
    passed = [candidate for candidate in left if candidate.outcome.passed and candidate.outcome.speedup]
    if not any(candidate.outcome.passed for candidate in found.values()):
        return left[-KEPT:]
    best = best_of(rounds)
    top = best.outcome.speedup if best and best.outcome.speedup else 1.0
    kept = [candidate for candidate in passed if best and candidate.source == best.source]
    while len(kept) < KEPT and len(kept) < len(passed):
        rest = [candidate for candidate in passed if candidate not in kept]
        kept.append(
            max(
                rest,
                key=lambda candidate: (candidate.outcome.speedup or 0.0) / top + NOVELTY * _novelty(candidate, kept),
            )
        )
    return kept


def _novelty(candidate: EvaluatedCandidate, others: Sequence[EvaluatedCandidate]) -> float:
    """1 for a file that shares no line with any of the others, 0 for one that shares all with one of them."""
    own = _lines(candidate.source)
    return min((1 - len(own & _lines(other.source)) / len(own | _lines(other.source)) for other in others), default=1.0)


def _lines(source: str) -> frozenset[str]:
    return frozenset(line.strip() for line in source.splitlines() if line.strip())


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context)
    return {**state, "rounds": rounds, "stop": stop}


def _grow(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    first = rounds[-1].number + 1 if rounds else 1
    evaluations = context.evaluations_left(rounds)
    left = max(context.rules.rounds - len(rounds), 1)
    left = left if evaluations is None else min(left, evaluations)
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next candidates")}
    if not any(entry.source for entry in rounds):
        return {**state, "branches": _openings(context, first, left)}
    kept = choose_kept(rounds, state["closed"])
    if not kept:
        return {**state, "stop": Stop(StopReason.JUDGE, "the Judge sees no change worth a try on any branch")}
    shares = [len(range(index, min(left, KEPT * CHILDREN), len(kept))) for index in range(len(kept))]
    calls, number = [], first
    for candidate, count in zip(kept, shares, strict=True):
        if count:
            calls.append(partial(_take_further, context, candidate, rounds, number, count))
            number += count
    branches: list[Branch] = []
    closed, stop = set(state["closed"]), None
    for candidate, result in zip(kept, all_of(calls), strict=False):
        if isinstance(result, LLMError):
            stop = stop or stop_for_error(result)
            continue
        branches += result
        if not result:
            closed.add(candidate.outcome.candidate_hash)
    return {**state, "branches": tuple(branches), "closed": frozenset(closed), "stop": stop}


def _openings(context: SearchContext, first: int, left: int) -> tuple[Branch, ...]:
    notes = OPENINGS[:1] if context.coder_is_deterministic else OPENINGS[:left]

    def write(number: int, note: str) -> Branch:
        context.start_round(number, "write", None)
        messages = coder_messages(context.brief, "write", None, (), note=note)
        try:
            draft = context.write_in_parallel(number, messages, request="write", base=None)
        except LLMError as error:
            return Branch(number, error, FIRST_CHANGE)
        return Branch(number, draft, FIRST_CHANGE)

    results = all_of([partial(write, first + index, note) for index, note in enumerate(notes)])
    return tuple(result for result in results if isinstance(result, Branch))


def _take_further(
    context: SearchContext, candidate: EvaluatedCandidate, rounds: tuple[Round, ...], first: int, count: int
) -> list[Branch]:
    """`count` ways on from one candidate, each told of the ones before it; fewer where the Judge sees no more."""
    branches: list[Branch] = []
    request = "improve" if candidate.outcome.passed else "repair"
    for number in range(first, first + count):
        beside = tuple(Round(branch.number, branch.change, parent=candidate.round) for branch in branches)
        note = f"Another branch tries: {branches[-1].change} Advise another change." if branches else ""
        try:
            advice = context.advise(number, candidate, (*rounds, *beside), note=note)
            if advice is not None and advice.stop:
                break
            context.start_round(number, request, candidate)
            messages = coder_messages(context.brief, request, candidate, (*rounds, *beside), advice=advice)
            draft = context.write_in_parallel(number, messages, request=request, base=candidate)
        except LLMError as error:
            branches.append(Branch(number, error, "no reply", candidate.round))
            break
        change = advice.change if advice else "no advice"
        branches.append(Branch(number, draft, change, candidate.round, advice))
    return branches


def _evaluate(context: SearchContext, state: State) -> State:
    rounds, stop = context.finish_branches(state["branches"], state["rounds"], plateau=True)
    return {**state, "rounds": rounds, "branches": (), "stop": state["stop"] or stop}


def _next_node(state: State) -> Literal["grow", "end"]:
    return "end" if state["stop"] is not None else "grow"
