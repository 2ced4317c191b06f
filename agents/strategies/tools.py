"""The strategy `tools`: the Coder calls tools to read the op, evaluate candidates, and submit the best one."""

from functools import partial
from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph

from agents.history import Round, best_of, find_repeat
from agents.prompting.builder import tools_messages
from agents.prompting.parse import ReplyError, Variant, extract_candidate
from agents.protocols import LLMError, Message, Outcome, Reply, ToolCall
from agents.stop_rules import Stop, StopReason, stop_for_error
from agents.strategies.base import run_graph, seed_rounds
from agents.strategies.context import Draft, SearchContext, SearchResult
from agents.strategies.tool_calls import TOOLS, ToolError, ToolRequest, evaluation_result, parse_call
from tasks.outcomes import candidate_hash

TURNS_PER_ROUND = 6  # bounds a job whose model evaluates nothing new
MAX_CALLS_PER_TURN = 16
MAX_REPLIES_WITHOUT_CALL = 3  # in a row

_REMINDER = "Call one of the tools, or `submit` your best candidate."


class State(TypedDict):
    """What the graph carries from node to node; values are immutable.

    Attributes:
        messages: the conversation so far.
        rounds: the rounds so far; a round is a file that was evaluated.
        reply: the last reply, until its calls are carried out.
        turns: replies so far.
        without_call: replies in a row without a call.
        stop: why the job stops here; None: it goes on.
    """

    messages: tuple[Message, ...]
    rounds: tuple[Round, ...]
    reply: Reply | None
    turns: int
    without_call: int
    stop: Stop | None


def run(context: SearchContext) -> SearchResult:
    """Run one turn after the other until the model submits a correct candidate or a stop rule holds."""
    graph = StateGraph(State)
    graph.add_node("seed", partial(_seed, context))
    graph.add_node("ask", partial(_ask, context))
    graph.add_node("call_tools", partial(_call_tools, context))
    graph.add_edge(START, "seed")
    for node in ("seed", "ask", "call_tools"):
        graph.add_conditional_edges(node, _next_node, {"ask": "ask", "call_tools": "call_tools", "end": END})
    state: State = {"messages": (), "rounds": (), "reply": None, "turns": 0, "without_call": 0, "stop": None}
    final = run_graph(graph, state, steps=2 * TURNS_PER_ROUND * (context.rules.rounds + 1) + 10)
    return SearchResult(final["rounds"], final["stop"], {"turns": final["turns"]})


def _seed(context: SearchContext, state: State) -> State:
    rounds, stop = seed_rounds(context)
    messages = tools_messages(context.brief, best_of(rounds), context.rules.rounds - len(rounds))
    return {**state, "rounds": rounds, "messages": tuple(messages), "stop": stop}


def _ask(context: SearchContext, state: State) -> State:
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the next call")}
    if state["turns"] >= TURNS_PER_ROUND * (context.rules.rounds + 1):
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
    message = Message("assistant", reply.text, tool_calls=reply.tool_calls[:MAX_CALLS_PER_TURN])
    return {**state, "messages": (*state["messages"], message), "reply": reply, "turns": state["turns"] + 1}


def _call_tools(context: SearchContext, state: State) -> State:
    reply = state["reply"]
    assert reply is not None, "routed here with a reply only"
    state = {**state, "reply": None}
    calls = reply.tool_calls[:MAX_CALLS_PER_TURN]
    if not calls:
        return _read_text(context, state, reply)
    for call in calls:
        state = _call_tool(context, state, call)
        if state["stop"] is not None:
            break
    return {**state, "without_call": 0}


def _call_tool(context: SearchContext, state: State, call: ToolCall) -> State:
    try:
        request = parse_call(call)
    except ToolError as error:
        context.ledger.reject("coder", str(error), len(state["rounds"]) + 1)
        return _with_result(state, call, f"error: {error}")
    if request.tool == "read_reference":
        return _with_result(state, call, context.brief.reference)
    state, outcome = _evaluate(context, state, request)
    if outcome is None:
        return state
    if request.tool == "submit" and outcome.right and state["stop"] is None:
        state = {**state, "stop": _submitted()}
    return _with_result(state, call, evaluation_result(outcome))


def _evaluate(context: SearchContext, state: State, request: ToolRequest) -> tuple[State, Outcome | None]:
    """The outcome of a file, from the round that evaluated the identical file or from a new round.

    The outcome is None if the job stops before the evaluation.
    """
    rounds = state["rounds"]
    repeated = find_repeat(rounds, request.source)
    if repeated is not None:
        return state, repeated.outcome
    if context.should_stop():
        return {**state, "stop": Stop(StopReason.CANCELLED, "cancelled before the evaluation")}, None
    number = len(rounds) + 1
    context.start_round(number, "tools", None)
    try:
        entry = context.finish_round(number, Draft((Variant(request.source),)), rounds, change=f"tool {request.tool}")
    except LLMError as error:
        return {**state, "stop": stop_for_error(error)}, None
    rounds = (*rounds, entry)
    return {**state, "rounds": rounds, "stop": context.stop_now(rounds)}, entry.outcome


def _read_text(context: SearchContext, state: State, reply: Reply) -> State:
    """Answer a reply without a call.

    A file in its text is evaluated, or submitted if it is the best one already. Without a file the model is reminded of
    the tools, and the job ends after MAX_REPLIES_WITHOUT_CALL such replies in a row.
    """
    try:
        source = extract_candidate(reply.text, truncated=reply.truncated)
    except ReplyError as error:
        context.ledger.reject("coder", f"no tool was called; {error}", len(state["rounds"]) + 1)
        count = state["without_call"] + 1
        problem = Stop(StopReason.LLM_ERROR, f"{context.coder_model} calls no tools")
        stop = problem if count >= MAX_REPLIES_WITHOUT_CALL else None
        messages = (*state["messages"], Message("user", _REMINDER))
        return {**state, "messages": messages, "without_call": count, "stop": stop}
    best = best_of(state["rounds"])
    if best is not None and best.outcome.candidate_hash == candidate_hash(source):
        return {**state, "stop": _submitted()}
    state, outcome = _evaluate(context, state, ToolRequest("evaluate", source))
    if outcome is None:
        return state
    answer = Message("user", f"{evaluation_result(outcome)}\n{_REMINDER}")
    return {**state, "messages": (*state["messages"], answer), "without_call": 0}


def _submitted() -> Stop:
    return Stop(StopReason.SUBMITTED, "the Coder handed in its candidate")


def _with_result(state: State, call: ToolCall, text: str) -> State:
    return {**state, "messages": (*state["messages"], Message("tool", text, tool_call_id=call.id))}


def _next_node(state: State) -> Literal["ask", "call_tools", "end"]:
    if state["stop"] is not None:
        return "end"
    return "ask" if state["reply"] is None else "call_tools"
