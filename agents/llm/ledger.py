"""Asking a model within a job: every call is paid for once, recorded before and after, and made only if the budget
allows for its worst case."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from agents.errors import BudgetTooSmall, LLMCancelled, LLMError, PriceUnknown, ReplyLost
from agents.llm.budget import Purse, Reservation
from agents.protocols import FREE, JSON, LLM, NO_PAST, Event, Message, Past, Price, Record, Reply, Tool

MAX_ASKS = 3  # a reply that cannot be used is asked for again at most twice
MAX_LOST = 3  # attempts at a reply that does not arrive whole


class Ledger:
    """The models of one job and their ledger. A call that `past` has an answer to is answered from there.

    `price` stands in where nobody knows a model's price; None: such calls count no dollars.
    """

    def __init__(
        self,
        llm: LLM,
        record: Record,
        should_stop: Callable[[], bool],
        purse: Purse,
        *,
        past: Past = NO_PAST,
        price: Price | None = None,
    ) -> None:
        self._llm = llm
        self._record = record
        self._should_stop = should_stop
        self._past = past
        self._price = price
        self._attempts = Counter(past.attempts)
        self.purse = purse

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
        """The answer to one call. `slot` names its place in the job (`3/coder/0`), the same whenever the job is run.

        Raises:
            LLMError: as `LLM.complete`; BudgetTooSmall if the worst case goes beyond the budget.
        """
        key = ledger_key(slot, model, messages, tools)
        if key in self._past.replies:
            return self._past.replies[key]
        about: dict[str, JSON] = {"key": key, "model": model, "role": role, "purpose": purpose}
        lost = 0
        while True:
            try:
                return self._attempt(about, model, messages, tools, round_number)
            except ReplyLost:
                lost += 1
                if lost >= MAX_LOST or self._should_stop():
                    raise

    def reject(self, role: str, reason: str, round_number: int) -> None:
        """Record that a reply could not be used."""
        self._record(Event("reply_rejected", round_number, {"role": role, "reason": reason}))

    def price(self, model: str) -> Price | None:
        """What a token of this model costs in this job."""
        known = self._llm.price(model)
        return self._price if known is None else known

    def _attempt(
        self, about: dict[str, JSON], model: str, messages: Sequence[Message], tools: Sequence[Tool], number: int
    ) -> Reply:
        price = self.price(model)
        made = self._reserve(about, model, messages, tools, price, number)
        about = {**about, "attempt": self._count(str(about["key"]))}
        free = price == FREE
        worst: dict[str, JSON] = {"worst_usd": made.usd, "worst_tokens": 0 if free else made.tokens}
        self._record(Event("llm_started", number, {**about, **worst}))

        def tell(message: str) -> None:
            data = {"model": model, "role": about["role"], "message": message}
            self._record(Event("llm_fault", number, data))

        try:
            reply = self._llm.complete(
                model,
                messages,
                should_stop=lambda: self._should_stop() or self.purse.time_is_up(),
                reply_tokens=made.reply_tokens,
                tools=tools,
                on_fault=tell,
            )
        except LLMError as error:
            sent = isinstance(error, ReplyLost) or (isinstance(error, LLMCancelled) and error.sent)
            self._failed(about, made, error, number, maybe_paid=sent and not free)
            if isinstance(error, LLMCancelled) and self.purse.time_is_up() and not self._should_stop():
                raise BudgetTooSmall(model, "the wall time of the budget is used up.") from None
            raise
        reply = with_cost(reply, price)
        self.purse.settle(made, reply)
        data: dict[str, JSON] = {
            **about,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
            "cost_usd": reply.cost_usd,
            "latency_s": reply.latency_s,
            "attempts": reply.attempts,
            "truncated": reply.truncated,
            "messages": [message.to_json() for message in messages],
            "reply": reply.text,
            "reasoning": reply.reasoning,
            "reasoning_tokens": reply.reasoning_tokens,
            "tool_calls": [call.to_json() for call in reply.tool_calls],
        }
        self._record(Event("llm_call", number, data))
        return reply

    def _reserve(
        self,
        about: dict[str, JSON],
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        price: Price | None,
        number: int,
    ) -> Reservation:
        try:
            if self.purse.time_is_up():
                raise BudgetTooSmall(model, "the wall time of the budget is used up.")
            limit = self._llm.reply_limit(model)
            return self.purse.reserve(model, messages, tools, price, limit, self._should_stop)
        except BudgetTooSmall as error:
            data = {**about, "attempt": 0, "error": "BudgetTooSmall", "message": str(error), "maybe_paid": False}
            self._record(Event("llm_failed", number, data))
            raise

    def _failed(
        self, about: dict[str, JSON], made: Reservation, error: LLMError, number: int, *, maybe_paid: bool
    ) -> None:
        """A call without a reply: free, unless it had been sent and may still be billed."""
        if maybe_paid:
            self.purse.lose(made)
        else:
            self.purse.release(made)
        data = {**about, "error": type(error).__name__, "message": str(error), "maybe_paid": maybe_paid}
        self._record(Event("llm_failed", number, data))

    def _count(self, key: str) -> int:
        self._attempts[key] += 1  # one thread a key
        return self._attempts[key]


def check_prices(ledger: Ledger, models: Sequence[str], *, tokens_capped: bool) -> None:
    """Refuse to keep a budget in dollars with a model that nobody knows the price of.

    Raises:
        PriceUnknown: such a model, and no cap on tokens either.
    """
    for model in models:
        if ledger.price(model) is None and not tokens_capped:
            raise PriceUnknown(
                model,
                "no price is known for it, so a budget in dollars cannot be kept.",
                "Give --price or a cap in tokens (--budget-tokens).",
            )


def ledger_key(slot: str, model: str, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
    """What identifies a call in its job: its place and all that was asked."""
    asked = [
        model,
        [message.to_json() for message in messages],
        [[tool.name, tool.description, tool.parameters] for tool in tools],
    ]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return f"{slot}:{digest[:32]}"


def with_cost(reply: Reply, price: Price | None) -> Reply:
    """The reply with its cost from the price that was given, where its provider's is not known."""
    if reply.cost_usd is not None or price is None:
        return reply
    return replace(reply, cost_usd=reply.prompt_tokens * price.prompt_usd + reply.completion_tokens * price.reply_usd)


def again(messages: Sequence[Message], reply: Reply, problem: str) -> list[Message]:
    """The conversation that asks once more, with what was wrong."""
    return [
        *messages,
        Message("assistant", reply.text or "(an empty reply)"),
        Message("user", f"{problem} Answer again, whole, in the form that was asked for."),
    ]
