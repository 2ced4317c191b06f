"""The default strategy: write → evaluate → judge → write …, as a LangGraph graph."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langsmith import tracing_context

from agents.asking import Asker
from agents.coder import Draft, write_candidate
from agents.errors import LLMError
from agents.judge import advise
from agents.ports import Evaluate, Event, Record, candidate_hash
from agents.prompting import Brief, coder_messages, judge_messages, judge_request
from agents.rounds import Round, best_of, choose_subject, find_repeat
from agents.stopping import Stop, StopReason, StopRules, is_better, stop_after, stop_for

Where = Literal["write", "evaluate", "judge", "end"]


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    rounds: tuple[Round, ...]
    draft: Draft | None  # written and not yet evaluated
    stop: Stop | None


class JudgeStrategy:
    """The nodes of the graph for one job. Each records what it does when it does it."""

    def __init__(
        self,
        *,
        brief: Brief,
        rules: StopRules,
        coder_model: str,
        judge_model: str,
        asker: Asker,
        evaluate: Evaluate,
        record: Record,
        should_stop: Callable[[], bool],
    ) -> None:
        self._brief = brief
        self._rules = rules
        self._coder_model = coder_model
        self._judge_model = judge_model
        self._asker = asker
        self._evaluate = evaluate
        self._record = record
        self._should_stop = should_stop

    def run(self, rounds: tuple[Round, ...], draft: Draft | None) -> tuple[tuple[Round, ...], Stop]:
        """Go on from these rounds (and a draft that still waits for its evaluation) until a stop rule holds."""
        graph = StateGraph(State)
        graph.add_node("write", self._write)
        graph.add_node("evaluate", self._evaluate_draft)
        graph.add_node("judge", self._judge)
        ways: dict[Hashable, str] = {"write": "write", "evaluate": "evaluate", "judge": "judge", "end": END}
        for node in (START, "write", "evaluate"):
            graph.add_conditional_edges(node, _next_node, ways)
        graph.add_conditional_edges("judge", _after_judge, ways)
        state: State = {"rounds": rounds, "draft": draft, "stop": None if draft else self._stop_now(rounds)}
        steps = 3 * max(self._rules.rounds - len(rounds), 0) + 10
        with tracing_context(enabled=False):  # prompts go to the chosen model and nowhere else
            final = graph.compile().invoke(state, {"recursion_limit": steps})
        stop = final["stop"]
        assert isinstance(stop, Stop), "the graph ends on a stop only"
        return final["rounds"], stop

    def _write(self, state: State) -> State:
        rounds = state["rounds"]
        if self._should_stop():
            return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next candidate")}
        number = len(rounds) + 1
        subject = choose_subject(rounds)
        request = "write" if subject is None else "improve" if subject.outcome.passed else "repair"
        self._record(Event("round_started", number, {"request": request}))
        messages = coder_messages(self._brief, request, subject, rounds)
        try:
            draft = write_candidate(self._asker, self._coder_model, messages, purpose=request, round_number=number)
        except LLMError as error:
            return {**state, "stop": stop_for(error)}
        if draft.source is not None:
            repeat = find_repeat(rounds, draft.source)
            data = {"hash": candidate_hash(draft.source), "source": draft.source}
            self._record(Event("candidate", number, {**data, "repeat_of_round": repeat.number if repeat else None}))
            return {**state, "draft": draft}
        self._record(Event("round_done", number, {"verdict": "no_candidate"}))
        advice = rounds[-1].advice if rounds else None  # it has not been followed yet
        rounds = (*rounds, Round(number, _change(rounds), advice=advice, problem=draft.problem))
        return {"rounds": rounds, "draft": None, "stop": self._stop_now(rounds)}

    def _evaluate_draft(self, state: State) -> State:
        rounds, draft = state["rounds"], state["draft"]
        assert draft is not None and draft.source is not None, "routed here with a draft only"
        if self._should_stop():
            return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the evaluation")}
        number = len(rounds) + 1
        repeat = find_repeat(rounds, draft.source)
        repeat_of = repeat.number if repeat else None
        remembered = repeat.outcome if repeat else None
        outcome = remembered or self._evaluate(draft.source)
        self._record(Event("evaluated", number, {**outcome.to_json(), "repeat_of_round": repeat_of}))
        best = best_of(rounds)
        entry = Round(number, _change(rounds), draft.source, outcome, repeat_of=repeat_of)
        if is_better(outcome, best.outcome if best else None):
            self._record(Event("best", number, {"hash": outcome.candidate_hash, "speedup": outcome.speedup}))
        self._record(Event("round_done", number, {"verdict": outcome.verdict}))
        rounds = (*rounds, entry)
        if self._should_stop():
            return {"rounds": rounds, "draft": None, "stop": Stop(StopReason.CANCELLED, "cancelled")}
        return {"rounds": rounds, "draft": None, "stop": self._stop_now(rounds)}

    def _judge(self, state: State) -> State:
        rounds = state["rounds"]
        subject = choose_subject(rounds)
        assert subject is not None, "routed here with a candidate only"
        if self._should_stop():
            return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the Judge")}
        number, mode = len(rounds), judge_request(subject)
        messages = judge_messages(self._brief, subject, rounds)
        try:
            advice = advise(self._asker, self._judge_model, messages, purpose=mode, round_number=number)
        except LLMError as error:
            return {**state, "stop": stop_for(error)}
        if advice is None:
            return state
        about = {"mode": mode, "subject_hash": subject.outcome.candidate_hash}
        self._record(Event("advice", number, {**advice.to_json(), **about}))
        stop = Stop(StopReason.JUDGE, advice.bottleneck[:500]) if advice.stop else None
        return {"rounds": (*rounds[:-1], replace(rounds[-1], advice=advice)), "draft": None, "stop": stop}

    def _stop_now(self, rounds: tuple[Round, ...]) -> Stop | None:
        return stop_after(self._rules, [entry.outcome for entry in rounds])


def _next_node(state: State) -> Where:
    if state["stop"] is not None:
        return "end"
    if state["draft"] is not None:
        return "evaluate"
    rounds = state["rounds"]
    return "judge" if rounds and rounds[-1].advice is None and choose_subject(rounds) is not None else "write"


def _after_judge(state: State) -> Where:
    return "end" if state["stop"] is not None else "write"


def _change(rounds: tuple[Round, ...]) -> str:
    """What the next candidate is meant to change: the Judge's last words."""
    if not rounds:
        return "first candidate"
    advice = rounds[-1].advice
    return advice.change if advice else "no advice"
