"""What a job may spend, and the one purse that all of its branches spend it from.

Every step is checked against its worst case before it is made: the worst case is reserved, and what it really took is
settled afterwards. So a budget holds whatever happens at the same time, and whatever fails half-way, as long as no call
is billed beyond its worst case. A provider that charges more than its list, or ignores the limit on the reply, can
exceed it by the calls under way then; what it billed is counted, so that no further one is made.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agents.errors import BudgetTooSmall, LLMCancelled
from agents.protocols import FREE, Message, Price, Reply, Spent, Tool

MIN_REPLY_TOKENS = 1024  # fewer cannot hold a candidate
_PER_MESSAGE_TOKENS = 16  # role and separators, of every chat format seen
_WAIT_S = 0.05
# A space before a word, a word, a run of spaces: what tokenizers know in larger pieces than characters.
_PIECES = re.compile(r" ?([a-z]{2,})|( {2,})")


@dataclass(frozen=True)
class Budget:
    """The most that a job may take; None: no limit. Kept across resumes."""

    usd: float | None = None
    tokens: int | None = None
    wall_s: float | None = None
    evaluations: int | None = None


@dataclass(frozen=True)
class Reservation:
    """The worst case of one call: its prompt, and `reply_tokens` of reply. `usd` is 0 where no price is known."""

    prompt_tokens: int
    reply_tokens: int
    usd: float

    @property
    def tokens(self) -> int:
        """Prompt and reply together."""
        return self.prompt_tokens + self.reply_tokens


class Purse:
    """What is left of a budget; safe to use from several threads. `clock` counts seconds."""

    def __init__(self, budget: Budget, spent: Spent, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._spent = spent
        self._clock = clock
        self._began = clock()
        self._lock = threading.Condition()
        self._open = 0  # calls under way
        self._reserved_usd = 0.0
        self._reserved_tokens = 0

    @property
    def spent(self) -> Spent:
        """What was taken up to now."""
        with self._lock:
            return replace(self._spent, wall_s=self._spent.wall_s + self._clock() - self._began)

    @property
    def time_left_s(self) -> float | None:
        """How much wall time is left; None: no limit."""
        wall_s = self._budget.wall_s
        return None if wall_s is None else max(wall_s - self.spent.wall_s, 0.0)

    def time_is_up(self) -> bool:
        """Whether the wall time is used up."""
        return self._budget.wall_s is not None and self.spent.wall_s >= self._budget.wall_s

    @property
    def budget(self) -> Budget:
        """The bounds."""
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
        """Set the worst case of a call aside; its reply may have as many tokens as that pays for.

        While calls of other branches are under way, what they will leave of their worst case is waited for.

        Raises:
            BudgetTooSmall: nothing useful can be paid for.
            LLMCancelled: `should_stop()` held while waiting.
        """
        prompt = prompt_bound(messages, tools)
        known = (price or FREE).for_prompt(prompt)
        with self._lock:
            while True:
                try:
                    return self._reserve(model, prompt, known, reply_limit)
                except BudgetTooSmall:
                    if not self._open:
                        raise
                if should_stop():
                    raise LLMCancelled(model, "cancelled while waiting for its share of the budget.", sent=False)
                self._lock.wait(_WAIT_S)

    def _reserve(self, model: str, prompt: int, known: Price, reply_limit: int) -> Reservation:
        reply = reply_limit
        if self._budget.usd is not None:
            left_usd = self._budget.usd - self._spent.cost_usd - self._spent.unsettled_usd - self._reserved_usd
            after_usd = left_usd - prompt * known.prompt_usd
            if known.reply_usd:
                reply = min(reply, int(after_usd / known.reply_usd))
            elif after_usd < 0:
                reply = 0
            if reply < min(MIN_REPLY_TOKENS, reply_limit):
                raise BudgetTooSmall(model, f"${max(left_usd, 0.0):.4f} left does not pay for the next call.")
        if self._budget.tokens is not None:
            left = self._budget.tokens - self._spent.tokens - self._spent.unsettled_tokens - self._reserved_tokens
            reply = min(reply, left - prompt)
            if reply < min(MIN_REPLY_TOKENS, reply_limit):
                raise BudgetTooSmall(model, f"{max(left, 0)} tokens left are too few for the next call.")
        made = Reservation(prompt, reply, prompt * known.prompt_usd + reply * known.reply_usd)
        self._open += 1
        self._reserved_usd += made.usd
        self._reserved_tokens += made.tokens
        return made

    def settle(self, made: Reservation, reply: Reply) -> None:
        """Count what a call was billed at in place of its reservation."""
        with self._lock:
            self._free(made)
            self._spent = replace(
                self._spent,
                cost_usd=self._spent.cost_usd + (reply.cost_usd or 0.0),
                prompt_tokens=self._spent.prompt_tokens + reply.prompt_tokens,
                completion_tokens=self._spent.completion_tokens + reply.completion_tokens,
            )

    def release(self, made: Reservation) -> None:
        """The call cost nothing."""
        with self._lock:
            self._free(made)

    def lose(self, made: Reservation) -> None:
        """Nobody knows what the call cost: count the worst."""
        with self._lock:
            self._free(made)
            self._spent = replace(
                self._spent,
                unsettled_usd=self._spent.unsettled_usd + made.usd,
                unsettled_tokens=self._spent.unsettled_tokens + made.tokens,
            )

    def take_evaluation(self, what: str, longest_s: float) -> None:
        """Count an evaluation that is about to begin; `longest_s` is what the longest one of this job took.

        Raises:
            BudgetTooSmall: there is none left, or too little time for one.
        """
        used_s = self.spent.wall_s
        with self._lock:
            if self._budget.evaluations is not None and self._spent.evaluations >= self._budget.evaluations:
                raise BudgetTooSmall(what, f"all {self._budget.evaluations} evaluations of the budget are used.")
            if self._budget.wall_s is not None and used_s + longest_s >= self._budget.wall_s:
                left = max(self._budget.wall_s - used_s, 0.0)
                raise BudgetTooSmall(what, f"{left:.0f} s left are too few for another evaluation.")
            self._spent = replace(self._spent, evaluations=self._spent.evaluations + 1)

    def _free(self, made: Reservation) -> None:
        self._open -= 1
        self._reserved_usd = self._reserved_usd - made.usd if self._open else 0.0
        self._reserved_tokens -= made.tokens
        self._lock.notify_all()


def prompt_bound(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """An upper bound of this prompt's tokens: tested with the tokenizers cl100k and o200k, a guess for others.

    Three small letters of a word, with the space before it, count two tokens, and two spaces of a run one; all else
    (capitals, digits, signs, the bytes of other scripts) counts a token a byte.
    """
    texts = [message.content for message in messages]
    texts += [call.name + call.arguments for message in messages for call in message.tool_calls]
    texts += [f"{tool.name} {tool.description} {json.dumps(tool.parameters)}" for tool in tools]
    overhead = _PER_MESSAGE_TOKENS * (len(messages) + len(tools) + sum(len(message.tool_calls) for message in messages))
    return sum(map(_tokens_bound, texts)) + overhead


def _tokens_bound(text: str) -> int:
    total = len(text.encode("utf-8", "replace"))
    for piece in _PIECES.finditer(text):
        word, spaces = piece[1], piece[2]
        tokens = -(-2 * len(word) // 3) if word else -(-len(spaces) // 2)
        total -= len(piece[0]) - tokens
    return total
