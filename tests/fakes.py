"""The one kind of fake in the test suite: models that answer from a script."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.prompting.sections import parse
from agents.protocols import LLMError, Message, Price, Reply, Tool, ignore_fault


@dataclass
class ScriptedLLM:
    """Answers with `replies` in order (an LLMError among them is raised) and keeps every prompt it was given.

    Each reply costs `cost_usd` and takes 100 prompt and 10 completion tokens.
    """

    replies: list[str | Reply | LLMError]
    cost_usd: float | None = 0.01
    prompts: list[list[Message]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    prices: dict[str, Price | None] = field(default_factory=dict)

    def complete(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        should_stop: Callable[[], bool],
        reply_tokens: int | None = None,
        tools: Sequence[Tool] = (),
        on_fault: Callable[[str], None] = ignore_fault,
    ) -> Reply:
        self.prompts.append(list(messages))
        self.models.append(model)
        self.limits.append(reply_tokens)
        assert self.replies, f"the script is at its end; asked for {self.sections(-1).get('request')}"
        reply = self.replies.pop(0)
        if isinstance(reply, LLMError):
            raise reply
        if isinstance(reply, Reply):
            return reply
        return Reply(reply, model, 100, 10, self.cost_usd, latency_s=0.0)

    def price(self, model: str) -> Price | None:
        return self.prices.get(model, Price(1e-6, 1e-6))

    def reply_limit(self, model: str) -> int:
        return 2000

    def sections(self, index: int) -> dict[str, str]:
        """The sections of the first user message of a prompt."""
        return parse(next(message.content for message in self.prompts[index] if message.role == "user"))

    def requests(self) -> list[str]:
        """The request of every prompt, in order."""
        return [self.sections(index)["request"] for index in range(len(self.prompts))]


def fenced(source: str, before: str = "Here it is.", language: str = "python") -> str:
    """A reply that holds `source` in one fence."""
    return f"{before}\n\n```{language}\n{source}\n```\n"


@dataclass
class AnsweringLLM:
    """Answers each prompt by what it says, so that it does not matter which of several branches asks first."""

    answer: Callable[[dict[str, str], Sequence[Message]], str | Reply | LLMError]
    cost_usd: float | None = 0.01
    prompts: list[list[Message]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(
        self,
        model: str,
        messages: Sequence[Message],
        *,
        should_stop: Callable[[], bool],
        reply_tokens: int | None = None,
        tools: Sequence[Tool] = (),
        on_fault: Callable[[str], None] = ignore_fault,
    ) -> Reply:
        with self.lock:
            self.prompts.append(list(messages))
            sections = parse(next(message.content for message in messages if message.role == "user"))
            reply = self.answer(sections, messages)
        if isinstance(reply, LLMError):
            raise reply
        return reply if isinstance(reply, Reply) else Reply(reply, model, 100, 10, self.cost_usd, latency_s=0.0)

    def price(self, model: str) -> Price | None:
        return Price(1e-6, 1e-6)

    def reply_limit(self, model: str) -> int:
        return 2000
