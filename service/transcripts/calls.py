"""The model calls of a job, each linked to the candidate that it led to and to that candidate's result."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from db.evaluations import results
from db.records import EventRecord, LlmCall
from db.store import Store
from tasks.outcomes import Verdict, candidate_hash


@dataclass(frozen=True)
class CandidateResult:
    """The candidate that a call led to.

    `verdict` is None until it has been evaluated. `label` is what sets it apart from other variants of its round.
    """

    round: int
    candidate_hash: str
    verdict: str | None = None
    code: str | None = None
    message: str = ""
    tags: tuple[str, ...] = ()
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    repeat_of_round: int | None = None
    label: str = ""


@dataclass(frozen=True)
class LinkedCall:
    """One call of a model.

    `number` counts the job's calls from 1. `rejected` says why the reply could not be used. `key` is the call's key in
    the ledger, and `at` is when the reply was there.

    `candidate` is None if the call led to no candidate. A Coder's reply leads to the best candidate of its round; a
    Judge's reply, to the best candidate that follows its advice; a reply with tool calls, to the best of the candidates
    in these. `candidates` are all variants of that round, in order, if it has several.
    """

    number: int
    round: int
    role: str
    purpose: str
    model: str
    messages: tuple[Mapping[str, Any], ...]
    reply: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    latency_s: float
    reasoning: str = ""
    reasoning_tokens: int | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    attempts: int = 1
    truncated: bool = False
    rejected: str | None = None
    candidate: CandidateResult | None = None
    candidates: tuple[CandidateResult, ...] = ()
    key: str | None = None
    at: datetime | None = None


Entry = LinkedCall | EventRecord
"""An entry of a job's transcript: a call, or an event between calls."""


def read_transcript(store: Store, job_id: int) -> tuple[Entry, ...]:
    """A job's calls and events in the order in which they happened; empty if it has none."""
    with store.read() as session:
        calls = results.list_llm_calls(session, job_id)
        events = results.list_events(session, job_id)
    return transcript_entries(calls, events)


def read_entries(
    session: Session, job_id: int, events: Sequence[EventRecord], numbers: range, *, before: bool = True
) -> tuple[Entry, ...]:
    """The transcript of a job of which only the calls with these numbers have texts: messages, reply and reasoning.

    A prompt of a conversation holds all before it, so all texts of a job are many times as much as what is new in them.

    Args:
        session: a transaction.
        job_id: the job.
        events: all of its events.
        numbers: the numbers of the calls that are wanted with texts.
        before: whether the last call of each role before these has texts, too: what is new in a prompt is new against
            that.
    """
    heads = results.list_llm_call_heads(session, job_id)
    calls = list(heads.values())
    placed = _numbers(calls, events)
    wanted = {index for index, number in placed.items() if number in numbers}
    if before:
        earlier = sorted((number, index) for index, number in placed.items() if number < numbers.start)
        wanted |= set({calls[index].role: index for _, index in earlier}.values())
    ids = list(heads)
    whole = results.get_llm_calls(session, [ids[index] for index in wanted])
    return transcript_entries([whole.get(each, head) for each, head in heads.items()], events)


def calls_in(entries: Iterable[Entry]) -> list[LinkedCall]:
    """The calls among the entries."""
    return [entry for entry in entries if isinstance(entry, LinkedCall)]


def transcript_entries(calls: Sequence[LlmCall], events: Sequence[EventRecord]) -> tuple[Entry, ...]:
    """The transcript of a job: its calls, linked to their candidates, in the places of their events.

    A call and its event have the same ledger key. A call without an event, or without a key (in an older store), comes
    at the end. An `llm_call` event without its call is left out.
    """
    numbers = _numbers(calls, events)
    waiting = _by_key(calls)
    links = _CandidateLinks()
    order: list[int | EventRecord] = []
    for event in events:
        if event.kind == "llm_call":
            index = waiting.pop(str(event.data.get("key")), None)
            if index is not None:
                links.add_call(index, event)
                order.append(index)
            continue
        links.add(event)
        order.append(event)
    placed = {each for each in order if isinstance(each, int)}
    order += [index for index in numbers if index not in placed]
    return tuple(
        links.complete(index, link_call(calls[index], numbers[index])) if isinstance(index, int) else index
        for index in order
    )


def _numbers(calls: Sequence[LlmCall], events: Sequence[EventRecord]) -> dict[int, int]:
    """By the index of each call its number, in the order of the numbers."""
    waiting = _by_key(calls)
    keys = (str(event.data.get("key")) for event in events if event.kind == "llm_call")
    placed = [index for key in keys if (index := waiting.pop(key, None)) is not None]
    left = sorted(set(range(len(calls))) - set(placed))
    return {index: number for number, index in enumerate([*placed, *left], start=1)}


def _by_key(calls: Sequence[LlmCall]) -> dict[str, int]:
    """The indexes of the calls by their keys in the ledger."""
    return {call.key: index for index, call in enumerate(calls) if call.key is not None}


def link_call(stored: LlmCall, number: int) -> LinkedCall:
    """A stored call, not linked to a candidate yet."""
    return LinkedCall(
        number=number,
        round=stored.round,
        role=stored.role,
        purpose=stored.purpose,
        model=stored.model,
        messages=tuple(message for message in stored.messages if isinstance(message, Mapping)),
        reply=stored.reply,
        prompt_tokens=stored.prompt_tokens,
        completion_tokens=stored.completion_tokens,
        cost_usd=stored.cost_usd,
        latency_s=stored.latency_s,
        reasoning=stored.reasoning,
        reasoning_tokens=stored.reasoning_tokens,
        tool_calls=tuple(each for each in stored.tool_calls if isinstance(each, Mapping)),
        key=stored.key,
    )


class _CandidateLinks:
    """Finds from a job's events, in order, which call led to which candidate. Rounds may be interleaved."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], int] = {}  # by role and round: the last call
        self._coder: int | None = None  # the Coder's last call, of any round
        self._with_tools: set[int] = set()  # rounds whose candidate is from the Coder's last call, of any round
        self._advice: dict[int, int] = {}  # by round: the Judge's call whose advice no candidate has followed yet
        self._rounds: dict[int, list[int]] = {}  # by call: the rounds that it led to
        self._candidates: dict[int, dict[str, CandidateResult]] = {}  # by round and hash
        self._rejected: dict[int, str] = {}
        self._facts: dict[int, Mapping[str, Any]] = {}
        self._at: dict[int, datetime | None] = {}

    def add_call(self, index: int, event: EventRecord) -> None:
        role = str(event.data.get("role"))
        self._last[role, event.round] = index
        self._facts[index], self._at[index] = event.data, event.created_at
        if role == "coder":
            self._coder = index

    def add(self, event: EventRecord) -> None:
        data, number = event.data, event.round
        match event.kind:
            case "round_started" if data.get("request") == "tools":
                self._with_tools.add(number)
            case "reply_rejected":
                index = self._last.get((str(data.get("role")), number))
                if index is not None:
                    self._rejected[index] = str(data.get("reason") or "not usable")
            case "advice" if data.get("stop") is not True:
                index = self._accepted("judge", number)
                if index is not None:
                    self._advice[number] = index
            case "candidate":
                of_round, digest = self._candidates.setdefault(number, {}), str(data.get("hash"))
                first = not of_round
                of_round[digest] = CandidateResult(number, digest, label=str(data.get("label") or ""))
                writer = self._coder if number in self._with_tools else self._accepted("coder", number)
                for index in (writer, self._follow(number)) if first else ():  # variants are of one reply
                    if index is not None:
                        self._rounds.setdefault(index, []).append(number)
            case "evaluated" | "proved":
                of_round, digest = self._candidates.setdefault(number, {}), str(data.get("candidate_hash"))
                label = of_round[digest].label if digest in of_round else ""
                of_round[digest] = replace(candidate_result(event), label=label)

    def complete(self, index: int, call: LinkedCall) -> LinkedCall:
        facts = self._facts.get(index, {})
        known = {digest: each for of_round in self._candidates.values() for digest, each in of_round.items()}
        rounds = [tuple(self._candidates[number].values()) for number in self._rounds.get(index, ())]
        candidate = [each for of_round in rounds for each in of_round]
        candidate += [known[digest] for digest in map(_hash_in, call.tool_calls) if digest in known]
        return replace(
            call,
            attempts=_whole(facts.get("attempts")) or 1,
            truncated=facts.get("truncated") is True,
            rejected=self._rejected.get(index),
            at=self._at.get(index),
            candidates=next((of_round for of_round in rounds if len(of_round) > 1), ()),
            candidate=max(
                candidate,
                key=lambda each: (each.verdict == Verdict.PASSED, each.speedup or 0.0, each.round),
                default=None,
            ),
        )

    def _accepted(self, role: str, number: int) -> int | None:
        """The last call of this role in this round, unless its reply was rejected."""
        index = self._last.get((role, number))
        return None if index is None or index in self._rejected else index

    def _follow(self, number: int) -> int | None:
        """The call whose advice this round's candidate follows: advice of the round, or else the last before it."""
        own = number if number in self._advice else max((old for old in self._advice if old < number), default=None)
        return None if own is None else self._advice.pop(own)


def _hash_in(call: Mapping[str, Any]) -> str | None:
    """The hash of the candidate in a tool call's arguments; None without one."""
    inner = call.get("function")
    arguments = inner.get("arguments") if isinstance(inner, Mapping) else None
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else None
        source = value.get("source") if isinstance(value, dict) else None
        return candidate_hash(source.rstrip() + "\n") if isinstance(source, str) else None
    except (ValueError, RecursionError):  # no JSON
        return None


def candidate_result(event: EventRecord) -> CandidateResult:
    """The candidate and its verdict from an `evaluated` event."""
    data = event.data
    tags = data.get("tags")
    return CandidateResult(
        round=event.round,
        candidate_hash=str(data.get("candidate_hash")),
        verdict=str(data.get("verdict")),
        code=None if data.get("code") is None else str(data["code"]),
        message=str(data.get("message") or ""),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list | tuple) else (),
        speedup=_number(data.get("speedup")),
        speedup_low=_number(data.get("speedup_low")),
        speedup_high=_number(data.get("speedup_high")),
        repeat_of_round=_whole(data.get("repeat_of_round")),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
