"""Taking a job up again: from recorded events to past rounds, and from past rounds to where the graph goes on."""

from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from agents.coder import Draft
from agents.parse import Advice
from agents.ports import NOTHING_SPENT, Event, Outcome, PastRound, Spent
from agents.rounds import Round, find_repeat


def past_of_events(events: Iterable[Event]) -> tuple[list[PastRound], Spent]:
    """The rounds that a job's events tell of, in order, and what its LLM calls took.

    A round counts once it has a candidate or is known to have none; one that was cut off earlier is done anew.
    """
    sources: dict[int, str | None] = {}
    outcomes: dict[int, Outcome] = {}
    advice: dict[int, dict[str, object]] = {}
    spent = NOTHING_SPENT
    for event in events:
        data = event.data
        if event.kind == "candidate":
            sources[event.round] = str(data["source"])
            outcomes.pop(event.round, None)
        elif event.kind == "evaluated":
            outcomes[event.round] = Outcome.from_json(data)
        elif event.kind == "round_done" and data["verdict"] == "no_candidate":
            sources.setdefault(event.round, None)
        elif event.kind == "advice":
            advice[event.round] = dict(data)
        elif event.kind == "llm_call":
            spent = Spent(
                spent.cost_usd + float(data["cost_usd"] or 0.0),  # type: ignore[arg-type]  # our own JSON
                spent.prompt_tokens + int(data["prompt_tokens"]),  # type: ignore[arg-type]
                spent.completion_tokens + int(data["completion_tokens"]),  # type: ignore[arg-type]
            )
    past = [PastRound(sources[number], outcomes.get(number), advice.get(number)) for number in sorted(sources)]  # type: ignore[arg-type]
    return past, spent


def rounds_of_history(history: Sequence[PastRound]) -> tuple[tuple[Round, ...], Draft | None]:
    """The rounds already done, and the draft that still waits for a verdict.

    The last candidate waits if it has no outcome, or one that says nothing about it (`sandbox_error`).

    Raises:
        ValueError: a round before the last has a candidate without an outcome.
    """
    rounds: tuple[Round, ...] = ()
    for number, past in enumerate(history, start=1):
        previous = rounds[-1].advice if rounds else None
        change = (previous.change if previous else "no advice") if rounds else "first candidate"
        advice = _advice(past)
        if past.source is None:
            rounds = (*rounds, Round(number, change, advice=advice or previous, problem="no usable candidate"))
            continue
        if past.outcome is None or past.outcome.verdict == "sandbox_error":
            if number < len(history):
                raise ValueError(f"round {number} of the history has a candidate without a verdict")
            return rounds, Draft(past.source)
        repeat = find_repeat(rounds, past.source)
        entry = Round(number, change, past.source, past.outcome, advice, repeat.number if repeat else None)
        rounds = (*rounds, entry)
    return rounds, None


def _advice(past: PastRound) -> Advice | None:
    """The stored advice, if it still fits the schema."""
    if past.advice is None:
        return None
    try:
        return Advice.model_validate(dict(past.advice))
    except ValidationError:
        return None
