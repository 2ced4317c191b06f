"""The strategy `tree`: a beam search. Each generation changes the best candidates, each of them in several ways.

Models are called in parallel. Candidates are evaluated one after the other, because a device measures one at a time.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import EvaluatedCandidate, Round, best_of
from agents.prompting.builder import coder_messages
from agents.protocols import LLMError
from agents.stop_rules import Stop, StopReason, stop_for_error
from agents.strategies.base import run_graph, run_parallel, seed_rounds
from agents.strategies.context import FIRST_CHANGE, Branch, SearchContext, SearchResult

BEAM_WIDTH = 2  # candidates that a generation changes
CHILDREN = 2  # changes of each of them
NOVELTY_WEIGHT = 0.25  # score of a candidate that shares no line with the beam, as a fraction of the best speedup

# One more remark in each prompt of the first generation, so that its candidates differ.
FIRST_NOTES = (
    "Several engineers write a first version side by side. Yours is the simplest one that fuses everything.",
    "Several engineers write a first version side by side. Yours moves the fewest bytes, whatever else it costs.",
    "Several engineers write a first version side by side. Yours keeps every unit of the device busy.",
)


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    rounds: tuple[Round, ...]
    branches: tuple[Branch, ...]  # written and not evaluated yet
    exhausted: frozenset[str]  # hashes of candidates that the Judge advises no change of
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """Run one generation after the other until a stop rule holds."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("expand", partial(_expand, context))
    graph.add_node("evaluate", partial(_evaluate, context))
    targets: dict[Hashable, str] = {"expand": "expand", "end": END}
    graph.add_edge(START, "seed")
    graph.add_conditional_edges("seed", _next_node, targets)
    graph.add_edge("expand", "evaluate")
    graph.add_conditional_edges("evaluate", _next_node, targets)
    state: State = {"rounds": (), "branches": (), "exhausted": frozenset(), "stop": None}
    final = run_graph(graph, state, steps=2 * context.rules.rounds + 10)
    return SearchResult(final["rounds"], final["stop"])


def choose_beam(rounds: Sequence[Round], exhausted: frozenset[str]) -> list[EvaluatedCandidate]:
    """The candidates that the next generation changes: the best correct one, then those with the highest score.

    `score = speedup / best speedup + NOVELTY_WEIGHT * novelty`. If no candidate is correct, the last ones are repaired.
    """
    found: dict[str, EvaluatedCandidate] = {}
    for entry in rounds:
        if entry.source is not None and entry.outcome is not None and entry.repeat_of is None:
            found[entry.outcome.candidate_hash] = EvaluatedCandidate(entry.source, entry.outcome, entry.number)
    left = [candidate for digest, candidate in found.items() if digest not in exhausted]
    passed = [candidate for candidate in left if candidate.outcome.passed and candidate.outcome.speedup]
    if not any(candidate.outcome.passed for candidate in found.values()):
        return left[-BEAM_WIDTH:]
    best = best_of(rounds)
    top = best.outcome.speedup if best and best.outcome.speedup else 1.0
    beam = [candidate for candidate in passed if best and candidate.source == best.source]

    def score(candidate: EvaluatedCandidate) -> float:
        return (candidate.outcome.speedup or 0.0) / top + NOVELTY_WEIGHT * _novelty(candidate, beam)

    while len(beam) < BEAM_WIDTH and len(beam) < len(passed):
        beam.append(max((candidate for candidate in passed if candidate not in beam), key=score))
    return beam


def _novelty(candidate: EvaluatedCandidate, others: Sequence[EvaluatedCandidate]) -> float:
    """1 minus the largest Jaccard similarity of a candidate's lines with those of another one; 1.0 without others."""
    own = _lines(candidate.source)
    return min((1 - len(own & _lines(other.source)) / len(own | _lines(other.source)) for other in others), default=1.0)


def _lines(source: str) -> frozenset[str]:
    return frozenset(line.strip() for line in source.splitlines() if line.strip())


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context)
    return {**state, "rounds": rounds, "stop": stop}


def _expand(context: SearchContext, state: State) -> State:
    rounds = state["rounds"]
    first = rounds[-1].number + 1 if rounds else 1
    evaluations = context.evaluations_left(rounds)
    left = max(context.rules.rounds - len(rounds), 1)
    left = left if evaluations is None else min(left, evaluations)
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next candidates")}
    if not any(entry.source for entry in rounds):
        return {**state, "branches": _first_generation(context, first, left)}
    beam = choose_beam(rounds, state["exhausted"])
    if not beam:
        return {**state, "stop": Stop(StopReason.JUDGE, "the Judge sees no change worth a try on any branch")}
    # By turns, so that a job which goes on with more rounds numbers, and so finds in its record, those that it has.
    wanted = range(first, first + min(left, BEAM_WIDTH * CHILDREN))
    shares = [wanted[index :: len(beam)] for index in range(len(beam))]
    calls = [
        partial(_change, context, candidate, rounds, numbers)
        for candidate, numbers in zip(beam, shares, strict=True)
        if numbers
    ]
    branches: list[Branch] = []
    exhausted, stop = set(state["exhausted"]), None
    for candidate, result in zip(beam, run_parallel(calls), strict=False):
        if isinstance(result, LLMError):
            stop = stop or stop_for_error(result)
            continue
        branches += result
        if not result:
            exhausted.add(candidate.outcome.candidate_hash)
    branches.sort(key=lambda branch: branch.number)
    return {**state, "branches": tuple(branches), "exhausted": frozenset(exhausted), "stop": stop}


def _first_generation(context: SearchContext, first: int, left: int) -> tuple[Branch, ...]:
    notes = FIRST_NOTES[:1] if context.coder_is_deterministic else FIRST_NOTES[:left]

    def write(number: int, note: str) -> Branch:
        context.start_round(number, "write", None)
        messages = coder_messages(context.brief, "write", None, (), note=note)
        try:
            draft = context.write_in_parallel(number, messages, request="write", base=None)
        except LLMError as error:
            return Branch(number, error, FIRST_CHANGE)
        return Branch(number, draft, FIRST_CHANGE)

    results = run_parallel([partial(write, first + index, note) for index, note in enumerate(notes)])
    return tuple(result for result in results if isinstance(result, Branch))


def _change(
    context: SearchContext, candidate: EvaluatedCandidate, rounds: tuple[Round, ...], numbers: Sequence[int]
) -> list[Branch]:
    """Changes of one candidate in rounds with these numbers, each told of those before; fewer if the Judge says so."""
    branches: list[Branch] = []
    request = "improve" if candidate.outcome.passed else "repair"
    for number in numbers:
        parallel = tuple(Round(branch.number, branch.change, parent=candidate.round) for branch in branches)
        note = f"Another branch tries: {branches[-1].change} Advise another change." if branches else ""
        try:
            advice = context.advise(number, candidate, (*rounds, *parallel), note=note)
            if advice is not None and advice.stop:
                break
            context.start_round(number, request, candidate)
            messages = coder_messages(context.brief, request, candidate, (*rounds, *parallel), advice=advice)
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


def _next_node(state: State) -> Literal["expand", "end"]:
    return "end" if state["stop"] is not None else "expand"
