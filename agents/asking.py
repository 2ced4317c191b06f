"""Asking a model within a job: every call is recorded, counted, and made only if the budget allows it."""

from collections.abc import Callable, Sequence

from agents.errors import BudgetTooSmall, LLMError, PriceUnknown
from agents.ports import JSON, LLM, Event, Message, Record, Reply, Spent

MAX_ASKS = 3  # a reply that cannot be used is asked for again at most twice
MIN_REPLY_TOKENS = 1024  # fewer cannot hold a candidate


class Asker:
    """The models of one job. `spent` grows with each reply; failed calls count nothing."""

    def __init__(
        self, llm: LLM, record: Record, should_stop: Callable[[], bool], budget_usd: float | None, spent: Spent
    ) -> None:
        self._llm = llm
        self._record = record
        self._should_stop = should_stop
        self._budget_usd = budget_usd
        self.spent = spent

    def ask(self, model: str, messages: Sequence[Message], *, role: str, purpose: str, round_number: int) -> Reply:
        """One call, recorded as `llm_call` or `llm_failed`.

        Raises:
            LLMError: as `LLM.complete`.
        """
        about: dict[str, JSON] = {"model": model, "role": role, "purpose": purpose}
        try:
            reply_tokens = self._affordable(model, messages)
            reply = self._llm.complete(model, messages, should_stop=self._should_stop, reply_tokens=reply_tokens)
        except LLMError as error:
            self._record(
                Event("llm_failed", round_number, {**about, "error": type(error).__name__, "message": str(error)})
            )
            raise
        self.spent = Spent(
            self.spent.cost_usd + (reply.cost_usd or 0.0),
            self.spent.prompt_tokens + reply.prompt_tokens,
            self.spent.completion_tokens + reply.completion_tokens,
        )
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
        }
        self._record(Event("llm_call", round_number, data))
        return reply

    def _affordable(self, model: str, messages: Sequence[Message]) -> int | None:
        """How many reply tokens the rest of the budget pays for; a prompt token is taken at two bytes."""
        if self._budget_usd is None:
            return None
        price, limit = self._llm.price(model), self._llm.reply_limit(model)
        if price is None:
            raise PriceUnknown(
                model, "LiteLLM knows no price for it, so a budget in dollars cannot be kept.", "Run without."
            )
        if price.prompt_usd == price.reply_usd == 0.0:
            return None
        left = self._budget_usd - self.spent.cost_usd
        prompt_usd = sum(len(message.content.encode()) / 2 + 16 for message in messages) * price.prompt_usd
        affordable = int((left - prompt_usd) / price.reply_usd)
        if affordable < MIN_REPLY_TOKENS:
            raise BudgetTooSmall(model, f"${max(left, 0.0):.4f} left does not pay for the next call.")
        return min(affordable, limit)

    def reject(self, role: str, reason: str, round_number: int) -> None:
        """Record that a reply could not be used."""
        self._record(Event("reply_rejected", round_number, {"role": role, "reason": reason}))


def again(messages: Sequence[Message], reply: Reply, problem: str) -> list[Message]:
    """The conversation that asks once more, with what was wrong."""
    return [
        *messages,
        Message("assistant", reply.text or "(an empty reply)"),
        Message("user", f"{problem} Answer again, whole, in the form that was asked for."),
    ]
