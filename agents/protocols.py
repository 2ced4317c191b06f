"""Building candidates ahead, as the service hands it in; agents never import the evaluator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Protocol, TypeAlias

from tasks.outcomes import Verdict
from tasks.text import clean_text


class Builds(Protocol):
    """Builds candidates that are written side by side, before their evaluation is due."""

    def start(self, source: str) -> None:
        """Begin to build one, if that is worth it; returns at once. Threads may call it."""
        ...

    def finish(self, limit_s: float | None) -> None:
        """Wait for those that are under way, so long at most."""
        ...


class NoBuilds:
    """Leaves each build to its evaluation."""

    def start(self, source: str) -> None:
        """Nothing."""

    def finish(self, limit_s: float | None) -> None:
        """Nothing."""


NO_BUILDS = NoBuilds()


JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


@dataclass(frozen=True)
class Outcome:
    """What the agents need to know of one evaluation of one candidate.

    Speedups are ratios over eager (`speedup_compile`: over torch.compile), None unless `verdict` is `"passed"`.
    `latency_ms` holds the medians of `candidate`, `eager` and `compile` as far as measured. `metrics` are the figures
    that a Judge may cite, by name (`profile.achieved_gb_per_s`), units in the names. `took_s` is what the evaluation
    took, without the wait for the device.
    """

    candidate_hash: str
    verdict: str
    code: str | None = None
    message: str = ""
    detail: str = ""
    tags: tuple[str, ...] = ()
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_compile: float | None = None
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    roofline_fraction: float | None = None
    roofline_bound: str | None = None
    profile_text: str = ""
    metrics: Mapping[str, JSON] = field(default_factory=dict)
    took_s: float = 0.0
    evaluation_id: str = ""

    @property
    def passed(self) -> bool:
        """Whether the candidate is correct and its speedup measured."""
        return self.verdict == Verdict.PASSED

    def to_json(self) -> dict[str, JSON]:
        """All fields as plain JSON values; `from_json` reads them back."""
        return {
            **asdict(self),
            "tags": list(self.tags),
            "latency_ms": dict(self.latency_ms),
            "metrics": dict(self.metrics),
        }

    @staticmethod
    def from_json(data: Mapping[str, JSON]) -> "Outcome":
        """The Outcome that `to_json` wrote; keys it does not know are ignored.

        Raises:
            TypeError: `candidate_hash` or `verdict` is missing.
        """
        known = {f.name for f in fields(Outcome)}
        values = {key: value for key, value in data.items() if key in known}
        tags = values.get("tags")
        values["tags"] = tuple(tags) if isinstance(tags, Sequence) and not isinstance(tags, str) else ()
        return Outcome(**values)  # type: ignore[arg-type]  # our own JSON, read back


@dataclass(frozen=True)
class Event:
    """One thing that happened in a job, reported the moment it happened. Rounds count from 1; 0 is before the first.

    Kinds and their data:
        job_started     task_id, platform, model, judge_model, strategy, seed, rounds, best_hash (or None)
        round_started   request (write | improve | repair | contrast | tools), parent (the round it builds on, or None)
        llm_started     key, attempt, model, role, purpose, worst_usd, worst_tokens; a request is about to be sent
        llm_fault       model, role, message; an attempt failed that cost nothing, and is made again
        llm_call        key, attempt, model, role (coder | judge), purpose, prompt_tokens, completion_tokens, cost_usd
                        (or None), latency_s, attempts, truncated, messages, reply, reasoning, reasoning_tokens (or
                        None), tool_calls
        llm_failed      key, attempt, model, role, purpose, error (class), message, maybe_paid; it brought no reply
        reply_rejected  role, reason; the reply held no usable candidate or advice and is asked for again, or given up
        candidate       hash, source, change, repeat_of_round (or None)
        evaluation_started  hash
        evaluated       every field of the Outcome, and repeat_of_round (or None: it was evaluated now)
        advice          the Judge's JSON, mode (judge-repair | judge-improve), subject_hash (the candidate judged)
        best            hash, speedup
        round_done      verdict (`no_candidate` where the Coder gave none)
        job_stopped     reason, detail, rounds_done, best_hash (or None), cost_usd, prompt_tokens, completion_tokens,
                        unsettled_usd, summary (figures of the strategy's own)
    """

    kind: str
    round: int
    data: Mapping[str, JSON]


@dataclass(frozen=True)
class Spent:
    """What a job has taken so far.

    `cost_usd` and the tokens are what replies were billed at (calls of unknown price count 0). `unsettled_usd` and
    `unsettled_tokens` are the most that requests may have cost whose reply was lost or cut off: nobody but the
    provider knows the bill, so budgets count them in full. `wall_s` is the time in which the job ran.
    """

    cost_usd: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unsettled_usd: float = 0.0
    unsettled_tokens: int = 0
    evaluations: int = 0
    wall_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and replies that were billed."""
        return self.prompt_tokens + self.completion_tokens


NOTHING_SPENT = Spent()


@dataclass(frozen=True)
class ResumeState:
    """What an earlier run of the same job recorded: replies by their ledger key, how many attempts were made for each
    key, and which candidates (by hash) were evaluated."""

    spent: Spent = NOTHING_SPENT
    replies: Mapping[str, "Reply"] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    evaluated: frozenset[str] = frozenset()


FRESH_START = ResumeState()

Evaluate = Callable[[str], Outcome]
"""Evaluates a candidate's source. Exceptions (no sandbox, KeyboardInterrupt) pass through `run_job` to its caller."""

Record = Callable[[Event], None]
"""Stores an event before it returns, so that nothing that was recorded is lost by what happens next."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call; `parameters` is a JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, JSON]


@dataclass(frozen=True)
class ToolCall:
    """A model's wish to call a tool; `arguments` is the JSON text as the model wrote it, valid or not."""

    id: str
    name: str
    arguments: str

    def cleaned(self) -> "ToolCall":
        """This call as the store keeps it."""
        return ToolCall(clean_text(self.id), clean_text(self.name), clean_text(self.arguments))

    def to_json(self) -> dict[str, JSON]:
        """As the Chat Completions protocol writes it."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class Message:
    """One chat message; `role` is system, user, assistant or tool (the answer to the call `tool_call_id`)."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def to_json(self) -> dict[str, JSON]:
        """As the Chat Completions protocol writes it."""
        shown: dict[str, JSON] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            shown["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id is not None:
            shown["tool_call_id"] = self.tool_call_id
        return shown


@dataclass(frozen=True)
class Reply:
    """A model's answer and what it took. `cost_usd` is None where no price is known; latency covers every attempt.

    Its texts are clean (`tasks.text`): a job that is taken up again reads the same from the store.

    `reasoning` is what the model thought aloud, as far as its provider shows it; `reasoning_tokens` (part of
    `completion_tokens`) is None where the provider does not count it.
    """

    text: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    latency_s: float
    truncated: bool = False
    attempts: int = 1
    reasoning: str = ""
    reasoning_tokens: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Price:
    """Dollars for one token. `longer` are the prices of longer prompts: above how many tokens, prompt, reply."""

    prompt_usd: float
    reply_usd: float
    longer: tuple[tuple[int, float, float], ...] = ()

    def for_prompt(self, tokens: int) -> "Price":
        """The highest price that a prompt of at most so many tokens can have."""
        reached = [(prompt, reply) for above, prompt, reply in self.longer if tokens > above]
        return Price(
            max([self.prompt_usd, *(prompt for prompt, _ in reached)]),
            max([self.reply_usd, *(reply for _, reply in reached)]),
        )


FREE = Price(0.0, 0.0)
"""A person's, or a model's on this machine: nothing is owed for it."""


def ignore_fault(line: str) -> None:
    """What `LLM.complete` tells of faults goes nowhere."""


class LLM(Protocol):
    """Access to models by LiteLLM's names (`openai/…`, `anthropic/…`, `builtin/compiler`)."""

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
        """One chat completion; gives up waiting once `should_stop()` holds.

        Asks for at most `reply_tokens` tokens (None: `reply_limit(model)`, which bounds it anyway). Tries again by
        itself only after faults that cost nothing (rate limit, overloaded server, nobody listening), and tells
        `on_fault` of each in one line: what it was, and how long it waits.

        Raises:
            agents.errors.ReplyLost: the reply did not arrive whole and may have been paid for; not tried again here.
            agents.errors.LLMError: no reply to work with; each subclass says what to do.
        """
        ...

    def price(self, model: str) -> Price | None:
        """What the model's tokens cost; None where that is not known, zeros for models on this machine."""
        ...

    def reply_limit(self, model: str) -> int:
        """The most reply tokens that `complete` asks this model for."""
        ...
