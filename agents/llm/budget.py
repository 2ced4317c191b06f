"""Budgets: what a job may spend, and the account that all of its calls and evaluations are charged to.

Before a step its worst case is reserved; afterwards the reservation is replaced by what the step really cost. A budget
therefore holds with several calls at once and with calls that fail, as long as no call is billed beyond its worst case.
A provider that bills more than its price list, or ignores the limit on the reply, can exceed the budget by the calls
that are then under way. What it billed is counted, so that no further call is made.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agents.protocols import FREE, BudgetTooSmall, LLMCancelled, Message, Price, Reply, Spent, Tool

MIN_REPLY_TOKENS = 1024  # a shorter reply cannot hold a candidate
_PER_MESSAGE_TOKENS = 16  # role and separators; an upper bound over the chat formats that were checked
_WAIT_S = 0.05
# Text that tokenizers encode in pieces longer than a character: lower-case words, runs of spaces.
_PIECES = re.compile(r" ?([a-z]{2,})|( {2,})")


@dataclass(frozen=True)
class Budget:
    """Limits on what a job may spend, over all of its runs. None: no limit."""

    usd: float | None = None
    tokens: int | None = None
    wall_s: float | None = None
    evaluations: int | None = None


@dataclass(frozen=True)
class Reservation:
    """The worst case of one call: its prompt and a reply of `reply_tokens`. `usd` is 0 if no price is known."""

    prompt_tokens: int
    reply_tokens: int
    usd: float

    @property
    def tokens(self) -> int:
        """Tokens of prompt and reply."""
        return self.prompt_tokens + self.reply_tokens


class BudgetAccount:
    """What was spent and reserved of one job's budget. Several threads may use it.

    Args:
        budget: the limits.
        spent: what earlier runs of the job spent.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, budget: Budget, spent: Spent, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._spent = spent
        self._clock = clock
        self._started_s = clock()
        self._lock = threading.Condition()
        self._open_reservations = 0
        self._reserved_usd = 0.0
        self._reserved_tokens = 0

    @property
    def spent(self) -> Spent:
        """What the job has spent up to now, over all of its runs."""
        with self._lock:
            return replace(self._spent, wall_s=self._spent.wall_s + self._clock() - self._started_s)

    @property
    def time_left_s(self) -> float | None:
        """Wall time left, in seconds; None: no limit."""
        wall_s = self._budget.wall_s
        return None if wall_s is None else max(wall_s - self.spent.wall_s, 0.0)

    def time_is_up(self) -> bool:
        """Whether the limit on wall time is reached."""
        return self._budget.wall_s is not None and self.spent.wall_s >= self._budget.wall_s

    @property
    def budget(self) -> Budget:
        """The limits."""
        return self._budget

    def reserve(
        self,
        model: str,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        price: Price | None,
        reply_limit: int,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Reservation:
        """Reserve the worst case of a call.

        The reply is limited to what the rest of the budget pays for. If that is too little while other calls are under
        way, this waits until they have ended, because they usually cost less than they reserved.

        Args:
            model: for error texts.
            messages: the prompt.
            tools: the tools that are offered with it.
            price: None counts as free.
            reply_limit: the most reply tokens that the model is asked for.
            should_stop: ends the wait.

        Raises:
            BudgetTooSmall: the budget does not pay for a useful reply.
            LLMCancelled: `should_stop()` held while waiting.
        """
        prompt_tokens = max_prompt_tokens(messages, tools)
        rates = (price or FREE).for_prompt(prompt_tokens)
        with self._lock:
            while True:
                try:
                    return self._reserve(model, prompt_tokens, rates, reply_limit)
                except BudgetTooSmall:
                    if not self._open_reservations:
                        raise
                if should_stop():
                    raise LLMCancelled(model, "cancelled while waiting for its share of the budget.", sent=False)
                self._lock.wait(_WAIT_S)

    def _reserve(self, model: str, prompt_tokens: int, rates: Price, reply_limit: int) -> Reservation:
        reply_tokens = reply_limit
        smallest = min(MIN_REPLY_TOKENS, reply_limit)
        prompt_usd = prompt_tokens * rates.prompt_usd
        if self._budget.usd is not None:
            left_usd = self._budget.usd - self._spent.cost_usd - self._spent.unsettled_usd - self._reserved_usd
            if rates.reply_usd:
                reply_tokens = min(reply_tokens, int((left_usd - prompt_usd) / rates.reply_usd))
            elif left_usd < prompt_usd:
                reply_tokens = 0
            if reply_tokens < smallest:
                raise BudgetTooSmall(model, f"${max(left_usd, 0.0):.4f} left does not pay for the next call.")
        if self._budget.tokens is not None:
            left = self._budget.tokens - self._spent.tokens - self._spent.unsettled_tokens - self._reserved_tokens
            reply_tokens = min(reply_tokens, left - prompt_tokens)
            if reply_tokens < smallest:
                raise BudgetTooSmall(model, f"{max(left, 0)} tokens left are too few for the next call.")
        reservation = Reservation(prompt_tokens, reply_tokens, prompt_usd + reply_tokens * rates.reply_usd)
        self._open_reservations += 1
        self._reserved_usd += reservation.usd
        self._reserved_tokens += reservation.tokens
        return reservation

    def settle(self, reservation: Reservation, reply: Reply) -> None:
        """Replace the reservation of a call by what its reply was billed at."""
        with self._lock:
            self._close(reservation)
            self._spent = replace(
                self._spent,
                cost_usd=self._spent.cost_usd + (reply.cost_usd or 0.0),
                prompt_tokens=self._spent.prompt_tokens + reply.prompt_tokens,
                completion_tokens=self._spent.completion_tokens + reply.completion_tokens,
            )

    def release(self, reservation: Reservation) -> None:
        """Drop the reservation of a call that cost nothing."""
        with self._lock:
            self._close(reservation)

    def settle_at_worst_case(self, reservation: Reservation) -> None:
        """Count the whole reservation as unsettled: the call may have been billed, and its cost is not known."""
        with self._lock:
            self._close(reservation)
            self._spent = replace(
                self._spent,
                unsettled_usd=self._spent.unsettled_usd + reservation.usd,
                unsettled_tokens=self._spent.unsettled_tokens + reservation.tokens,
            )

    def charge_evaluation(self, longest_s: float) -> None:
        """Count an evaluation that is about to begin.

        Args:
            longest_s: duration of the longest evaluation of this job so far, in seconds.

        Raises:
            BudgetTooSmall: no evaluation is left, or less time than `longest_s`.
        """
        used_s = self.spent.wall_s
        limit, limit_s = self._budget.evaluations, self._budget.wall_s
        with self._lock:
            if limit is not None and self._spent.evaluations >= limit:
                raise BudgetTooSmall("evaluation", f"all {limit} evaluations of the budget are used.")
            if limit_s is not None and used_s + longest_s >= limit_s:
                left_s = max(limit_s - used_s, 0.0)
                raise BudgetTooSmall("evaluation", f"{left_s:.0f} s left are too few for another evaluation.")
            self._spent = replace(self._spent, evaluations=self._spent.evaluations + 1)

    def _close(self, reservation: Reservation) -> None:
        self._open_reservations -= 1
        self._reserved_usd = self._reserved_usd - reservation.usd if self._open_reservations else 0.0
        self._reserved_tokens -= reservation.tokens
        self._lock.notify_all()


def max_prompt_tokens(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """An upper bound on the tokens of a prompt, tested with the tokenizers cl100k and o200k; a guess for others.

    A lower-case word of n letters with the space before it counts `ceil(2n / 3)` tokens, a run of n spaces
    `ceil(n / 2)`, and every other byte of the UTF-8 text one token.
    """
    texts = [message.content for message in messages]
    texts += [call.name + call.arguments for message in messages for call in message.tool_calls]
    texts += [f"{tool.name} {tool.description} {json.dumps(tool.parameters)}" for tool in tools]
    overhead = _PER_MESSAGE_TOKENS * (len(messages) + len(tools) + sum(len(message.tool_calls) for message in messages))
    return sum(map(max_tokens, texts)) + overhead


def max_tokens(text: str) -> int:
    """An upper bound on the tokens of a text, counted as `max_prompt_tokens` does."""
    total = len(text.encode("utf-8", "replace"))
    for piece in _PIECES.finditer(text):
        word, spaces = piece[1], piece[2]
        tokens = -(-2 * len(word) // 3) if word else -(-len(spaces) // 2)
        total -= len(piece[0]) - tokens
    return total
