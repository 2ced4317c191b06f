"""Reads the state that a job is resumed with from its recorded events.

A resumed job runs its strategy from the beginning. The calls and evaluations that it had made are answered from this
state, so the strategy reaches the point where it was without paying for anything twice.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from agents.protocols import REPORTED, Event, Reply, ResumeState, Spent, ToolCall

# The data that identify an event of each kind. A resumed job gives the events that it had recorded once more.
_IDENTITY = {
    "round_started": (),
    "candidate": ("hash",),
    "evaluation_started": ("hash",),
    "evaluated": ("candidate_hash", "verdict"),
    "proof_started": ("hash",),
    "proved": ("candidate_hash", "verdict"),
    "advice": ("subject_hash", "change"),
    "best": ("hash",),
    "round_done": (),
    "reply_rejected": ("role", "reason"),
}


def event_identity(event: Event) -> tuple[object, ...] | None:
    """Equal for the same event of two runs of a job; None for kinds that each run gives anew."""
    keys = _IDENTITY.get(event.kind)
    return None if keys is None else (event.kind, event.round, *(event.data.get(key) for key in keys))


def resume_state_from_events(events: Iterable[Event], *, wall_s: float = 0.0) -> ResumeState:
    """The state that a job is resumed with.

    A call that was started and never ended, because the process died, counts at its worst case: it may have been
    billed.

    Args:
        events: all events of the job's earlier runs, with the replies of calls.
        wall_s: how long these runs took, in seconds.
    """
    replies: dict[str, Reply] = {}
    attempts: dict[str, int] = {}
    evaluated: set[str] = set()
    open_calls: dict[tuple[str, int], tuple[float, int]] = {}
    cost_usd, prompt_tokens, completion_tokens = 0.0, 0, 0
    for event in events:
        data: Mapping[str, Any] = event.data
        match event.kind:
            case "llm_started":
                key, attempt = str(data["key"]), int(data["attempt"])
                attempts[key] = max(attempts.get(key, 0), attempt)
                open_calls[key, attempt] = float(data["worst_usd"]), int(data["worst_tokens"])
            case "llm_call":
                open_calls.pop((str(data["key"]), int(data["attempt"])), None)
                replies[str(data["key"])] = reply_from_event(data)
                cost_usd += float(data["cost_usd"] or 0.0)
                prompt_tokens += int(data["prompt_tokens"])
                completion_tokens += int(data["completion_tokens"])
            case "llm_failed" if not data["maybe_paid"]:
                open_calls.pop((str(data["key"]), int(data["attempt"])), None)
            case "evaluated":
                evaluated.add(str(data["candidate_hash"]))
    spent = Spent(
        cost_usd,
        prompt_tokens,
        completion_tokens,
        unsettled_usd=sum(usd for usd, _ in open_calls.values()),
        unsettled_tokens=sum(tokens for _, tokens in open_calls.values()),
        evaluations=len(evaluated),
        wall_s=wall_s,
    )
    return ResumeState(spent, replies, attempts, frozenset(evaluated))


def reply_from_event(data: Mapping[str, Any]) -> Reply:
    """The reply in the data of an `llm_call` event."""
    calls = tuple(
        ToolCall(str(call["id"]), str(call["function"]["name"]), str(call["function"]["arguments"]))
        for call in data.get("tool_calls") or ()
    )
    tokens = data.get("reasoning_tokens")
    return Reply(
        text=str(data["reply"]),
        model=str(data["model"]),
        prompt_tokens=int(data["prompt_tokens"]),
        completion_tokens=int(data["completion_tokens"]),
        cost_usd=None if data["cost_usd"] is None else float(data["cost_usd"]),
        latency_s=float(data["latency_s"]),
        truncated=bool(data.get("truncated")),
        attempts=int(data.get("attempts") or 1),
        reasoning=str(data.get("reasoning") or ""),
        reasoning_tokens=None if tokens is None else int(tokens),
        tool_calls=calls,
        usage=str(data.get("usage") or REPORTED),
    )
