"""The Coder works by itself: it calls tools to read, build, check, time and profile, and hands in the best."""

from functools import partial
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import Round, best_of, find_repeat
from agents.prompting.builder import tools_messages
from agents.prompting.parse import ReplyError, extract_candidate
from agents.protocols import LLMError, Message, Outcome, Reply, ToolCall
from agents.stop_rules import Stop, StopReason, stop_for_error
from agents.strategies.base import run_graph, seed_rounds
from agents.strategies.context import Draft, SearchContext, SearchResult
from agents.strategies.tool_calls import TOOLS, Request, ToolError, read_call, result_of
from tasks.outcomes import candidate_hash

TURNS_A_ROUND = 6  # a model that never evaluates anything new must end, too
CALLS_A_TURN = 16
NUDGES = 3  # replies in a row that call no tool

_NUDGE = "Call one of the tools, or `submit` your best candidate."


class State(TypedDict):
    """What the graph carries from node to node; values are immutable."""

    messages: tuple[Message, ...]
    rounds: tuple[Round, ...]
    reply: Reply | None  # whose calls are not carried out yet
    turns: int
    idle: int  # replies in a row without a call
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """Turn after turn until the model submits or a stop rule holds. A round is a file that was evaluated."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("ask", partial(_ask, context))
    graph.add_node("act", partial(_act, context))
    graph.add_edge(START, "seed")
    for node in ("seed", "ask", "act"):
        graph.add_conditional_edges(node, _next_node, {"ask": "ask", "act": "act", "end": END})
    state: State = {"messages": (), "rounds": (), "reply": None, "turns": 0, "idle": 0, "stop": None}
    final = run_graph(graph, state, steps=2 * TURNS_A_ROUND * (context.rules.rounds + 1) + 10)
    return SearchResult(final["rounds"], final["stop"], {"turns": final["turns"]})


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context)
    messages = tools_messages(context.brief, best_of(rounds), context.rules.rounds - len(rounds))
    return {**state, "rounds": rounds, "messages": tuple(messages), "stop": stop}


def _ask(context: SearchContext, state: State) -> State:
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next call")}
    if state["turns"] >= TURNS_A_ROUND * (context.rules.rounds + 1):
        return {**state, "stop": Stop(StopReason.ROUNDS, f"{state['turns']} turns without a submission")}
    number = len(state["rounds"]) + 1
    try:
        reply = context.ledger.ask(
            f"tools/{state['turns']}",
            context.coder_model,
            state["messages"],
            role="coder",
            purpose="tools",
            round_number=number,
            tools=TOOLS,
        )
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}
    said = Message("assistant", reply.text, tool_calls=reply.tool_calls[:CALLS_A_TURN])
    return {**state, "messages": (*state["messages"], said), "reply": reply, "turns": state["turns"] + 1}


def _act(context: SearchContext, state: State) -> State:
    reply = state["reply"]
    assert reply is not None, "routed here with a reply only"
    state = {**state, "reply": None}
    calls = reply.tool_calls[:CALLS_A_TURN]
    if not calls:
        return _without_call(context, state, reply)
    for call in calls:
        state = _carry_out(context, state, call)
        if state["stop"] is not None:
            break
    return {**state, "idle": 0}


def _carry_out(context: SearchContext, state: State, call: ToolCall) -> State:
    try:
        request = read_call(call)
    except ToolError as error:
        context.ledger.reject("coder", str(error), len(state["rounds"]) + 1)
        return _answered(state, call, f"error: {error}")
    if request.tool == "read_reference":
        return _answered(state, call, context.brief.reference)
    state, outcome = _evaluated(context, state, request)
    if outcome is None:
        return state
    if request.tool == "submit" and outcome.passed and state["stop"] is None:
        state = {**state, "stop": Stop(StopReason.SUBMITTED, "the Coder handed in its candidate")}
    return _answered(state, call, result_of(request.tool, outcome))


def _evaluated(context: SearchContext, state: State, request: Request) -> tuple[State, Outcome | None]:
    """The outcome for exactly this file, from the round that had it or from a new one."""
    rounds = state["rounds"]
    known = find_repeat(rounds, request.source)
    if known is not None:
        return state, known.outcome
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the evaluation")}, None
    number = len(rounds) + 1
    context.start_round(number, "tools", None)
    try:
        entry = context.finish_round(number, Draft(request.source), rounds, change=f"tool {request.tool}")
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}, None
    rounds = (*rounds, entry)
    return {**state, "rounds": rounds, "stop": context.stop_now(rounds)}, entry.outcome


def _without_call(context: SearchContext, state: State, reply: Reply) -> State:
    """A reply in plain words: a file in it is evaluated as if it was sent to `time`, else the model is reminded."""
    try:
        source = extract_candidate(reply.text, truncated=reply.truncated)
    except ReplyError as error:
        idle = state["idle"] + 1
        context.ledger.reject("coder", f"no tool was called; {error}", len(state["rounds"]) + 1)
        stop = Stop(StopReason.LLM_ERROR, f"{context.coder_model} calls no tools") if idle >= NUDGES else None
        reminded = (*state["messages"], Message("user", _NUDGE))
        return {**state, "messages": reminded, "idle": idle, "stop": stop}
    known = best_of(state["rounds"])
    if known is not None and known.outcome.candidate_hash == candidate_hash(source):
        return {**state, "stop": Stop(StopReason.SUBMITTED, "the Coder handed in its candidate")}
    state, outcome = _evaluated(context, state, Request("time", source))
    if outcome is None:
        return state
    told = Message("user", f"{result_of('time', outcome)}\n{_NUDGE}")
    return {**state, "messages": (*state["messages"], told), "idle": 0}


def _answered(state: State, call: ToolCall, text: str) -> State:
    return {**state, "messages": (*state["messages"], Message("tool", text, tool_call_id=call.id))}


def _next_node(state: State) -> Literal["ask", "act", "end"]:
    if state["stop"] is not None:
        return "end"
    return "ask" if state["reply"] is None else "act"
