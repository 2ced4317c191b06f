"""The ledger: each call of a job's models is recorded, made once over all runs of the job, and within its budget."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.llm.budget import BudgetAccount, Reservation
from agents.protocols import (
    FREE,
    FRESH_START,
    JSON,
    LLM,
    BudgetTooSmall,
    Event,
    LLMCancelled,
    LLMError,
    Message,
    Price,
    PriceUnknown,
    Record,
    Reply,
    ReplyLost,
    ResumeState,
    Tool,
)

MAX_LOST_REPLIES = 3  # of one call, before the job gives up on it


@dataclass(frozen=True)
class _Call:
    """One call of a model as events name it."""

    key: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    role: str
    purpose: str
    round: int

    def event_data(self, attempt: int) -> dict[str, JSON]:
        return {
            "key": self.key,
            "model": self.model,
            "role": self.role,
            "purpose": self.purpose,
            "attempt": attempt,
        }


class Ledger:
    """The models of one job, called through the job's record and budget. Threads may call it, each with its own slots.

    Args:
        llm: gives the replies that are not recorded yet.
        record: stores events.
        should_stop: whether the job was cancelled.
        account: what calls are charged to.
        resume_state: what earlier runs of the job recorded. A call that has a reply there is answered with it.
        price: used for models whose price is not known; None: such calls count as no dollars.
    """

    def __init__(
        self,
        llm: LLM,
        record: Record,
        should_stop: Callable[[], bool],
        account: BudgetAccount,
        *,
        resume_state: ResumeState = FRESH_START,
        price: Price | None = None,
    ) -> None:
        self._llm = llm
        self._record = record
        self._should_stop = should_stop
        self._recorded_replies = resume_state.replies
        self._price = price
        self._attempts = Counter(resume_state.attempts)
        self.account = account

    def ask(
        self,
        slot: str,
        model: str,
        messages: Sequence[Message],
        *,
        role: str,
        purpose: str,
        round_number: int,
        tools: Sequence[Tool] = (),
    ) -> Reply:
        """The reply to one call: the recorded one, or else a new one. A lost reply is asked for again.

        Args:
            slot: names the call's place in the job (`3/coder/0`). It must be the same in every run of the job.
            model: LiteLLM's name of the model.
            messages: the prompt.
            role: coder or judge, for events.
            purpose: what the prompt requests, for events.
            round_number: for events.
            tools: tools that the model may call.

        Raises:
            BudgetTooSmall: the worst case of the call exceeds the budget.
            LLMError: as `LLM.complete`.
        """
        key = ledger_key(slot, model, messages, tools)
        if key in self._recorded_replies:
            return self._recorded_replies[key]
        call = _Call(key, model, tuple(messages), tuple(tools), role, purpose, round_number)
        lost = 0
        while True:
            try:
                return self._attempt(call)
            except ReplyLost:
                lost += 1
                if lost >= MAX_LOST_REPLIES or self._should_stop():
                    raise

    def reject(self, role: str, reason: str, round_number: int) -> None:
        """Record that a reply could not be used."""
        self._record(Event("reply_rejected", round_number, {"role": role, "reason": reason}))

    def price(self, model: str) -> Price | None:
        """What a model's tokens cost in this job; None: not known."""
        known = self._llm.price(model)
        return self._price if known is None else known

    def _attempt(self, call: _Call) -> Reply:
        """Reserve, record, send, and settle one request."""
        price = self.price(call.model)
        reservation = self._reserve(call, price)
        self._attempts[call.key] += 1  # only one thread works on a key
        data = call.event_data(self._attempts[call.key])
        free = price == FREE
        worst_case: dict[str, JSON] = {
            "worst_usd": reservation.usd,
            "worst_tokens": 0 if free else reservation.tokens,
        }
        self._record(Event("llm_started", call.round, {**data, **worst_case}))

        def record_fault(message: str) -> None:
            self._record(Event("llm_fault", call.round, {"model": call.model, "role": call.role, "message": message}))

        try:
            reply = self._llm.complete(
                call.model,
                call.messages,
                should_stop=lambda: self._should_stop() or self.account.time_is_up(),
                reply_tokens=reservation.reply_tokens,
                tools=call.tools,
                on_fault=record_fault,
            )
        except LLMError as error:
            sent = isinstance(error, ReplyLost) or (isinstance(error, LLMCancelled) and error.sent)
            maybe_paid = sent and not free
            if maybe_paid:
                self.account.settle_at_worst_case(reservation)
            else:
                self.account.release(reservation)
            self._record_failure(call, data, error, maybe_paid=maybe_paid)
            if isinstance(error, LLMCancelled) and self.account.time_is_up() and not self._should_stop():
                raise BudgetTooSmall(call.model, "the wall time of the budget is used up.") from None
            raise
        reply = with_cost(reply, price)
        self.account.settle(reservation, reply)
        answer: dict[str, JSON] = {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "cost_usd": reply.cost_usd,
            "latency_s": reply.latency_s,
            "attempts": reply.attempts,
            "truncated": reply.truncated,
            "messages": [message.to_json() for message in call.messages],
            "reply": reply.text,
            "reasoning": reply.reasoning,
            "reasoning_tokens": reply.reasoning_tokens,
            "usage": reply.usage,
            "tool_calls": [tool_call.to_json() for tool_call in reply.tool_calls],
        }
        self._record(Event("llm_call", call.round, {**data, **answer}))
        return reply

    def _reserve(self, call: _Call, price: Price | None) -> Reservation:
        try:
            if self.account.time_is_up():
                raise BudgetTooSmall(call.model, "the wall time of the budget is used up.")
            reply_limit = self._llm.reply_limit(call.model)
            return self.account.reserve(call.model, call.messages, call.tools, price, reply_limit, self._should_stop)
        except BudgetTooSmall as error:
            self._record_failure(call, call.event_data(0), error, maybe_paid=False)
            raise

    def _record_failure(self, call: _Call, data: dict[str, JSON], error: LLMError, *, maybe_paid: bool) -> None:
        failure: dict[str, JSON] = {"error": type(error).__name__, "message": str(error), "maybe_paid": maybe_paid}
        self._record(Event("llm_failed", call.round, {**data, **failure}))


def check_prices(ledger: Ledger, models: Sequence[str], *, tokens_capped: bool) -> None:
    """Refuse a budget in dollars for models whose price is not known.

    Raises:
        PriceUnknown: a model has no known price, and the job has no limit on tokens (`tokens_capped`) either.
    """
    for model in models:
        if ledger.price(model) is None and not tokens_capped:
            raise PriceUnknown(
                model,
                "no price is known for it, so a budget in dollars cannot be kept.",
                "Give --price or a cap in tokens (--budget-tokens).",
            )


def ledger_key(slot: str, model: str, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
    """The key of a call in its job: its slot and a digest of the whole request.

    A release that changes a prompt or a tool changes the key. A job that was begun before it and is resumed after it
    then makes the calls from there on anew; what it had spent stays counted, and files that it had evaluated are not
    evaluated again.
    """
    return f"{slot}:{request_digest(model, [message.to_json() for message in messages], tools)}"


def request_digest(model: str, messages: Sequence[Mapping[str, JSON]], tools: Sequence[Tool] = ()) -> str:
    """A digest of all that is asked of a model; `messages` as `Message.to_json` gives them."""
    request = [model, [dict(message) for message in messages], [[t.name, t.description, t.parameters] for t in tools]]
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]


def with_cost(reply: Reply, price: Price | None) -> Reply:
    """The reply with a cost computed from `price`, if its provider gave none."""
    if reply.cost_usd is not None or price is None:
        return reply
    return replace(reply, cost_usd=reply.prompt_tokens * price.prompt_usd + reply.completion_tokens * price.reply_usd)
