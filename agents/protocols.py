"""What the agents exchange with the service and with models: plain values, callables, and the errors of models.

The agents import neither the evaluator nor the store. The service hands both in as callables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Protocol, TypeAlias

from tasks.outcomes import RIGHT, Verdict
from tasks.text import clean_text

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


@dataclass(frozen=True)
class Outcome:
    """The result of an evaluation as the agents see it.

    Attributes:
        candidate_hash: the candidate that was evaluated.
        verdict: `passed`, or why the candidate is not correct.
        code, message, detail: more about a verdict other than `passed`.
        tags: remarks on a candidate that passed.
        speedup: over eager, with its interval; None unless the verdict is `passed`.
        speedup_compile: over torch.compile.
        latency_ms: medians of `candidate`, `eager` and `compile`, as far as measured.
        roofline_fraction: the reached fraction of the hardware's limit.
        roofline_bound: what sets that limit.
        accuracy: of each input family that was checked, the largest error that is allowed and the one that was found.
        profile_text: where the candidate's time goes.
        metrics: figures that a Judge may cite, by name with the unit (`profile.achieved_gb_per_s`).
        took_s: duration of the evaluation, without the wait for the device.
        evaluation_id: its identifier in the store.
        champion_hash: the candidate that it was timed beside, the best one at that time; None: there was none.
        over_champion: its speedup over that one, with the interval of the sequential test.
        decision: what the test says of it: `better`, `worse`, `alike` (within 2 %) or `open`.
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
    accuracy: Mapping[str, str] = field(default_factory=dict)
    profile_text: str = ""
    metrics: Mapping[str, JSON] = field(default_factory=dict)
    took_s: float = 0.0
    evaluation_id: str = ""
    champion_hash: str | None = None
    over_champion: float | None = None
    over_champion_low: float | None = None
    over_champion_high: float | None = None
    decision: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the candidate is correct and its speedup measured."""
        return self.verdict == Verdict.PASSED

    @property
    def right(self) -> bool:
        """Whether the candidate is correct: it passed, or it was screened where there is no device to time it on."""
        return self.verdict in RIGHT

    def to_json(self) -> dict[str, JSON]:
        """All fields as plain JSON values."""
        return {
            **asdict(self),
            "tags": list(self.tags),
            "latency_ms": dict(self.latency_ms),
            "accuracy": dict(self.accuracy),
            "metrics": dict(self.metrics),
        }

    @staticmethod
    def from_json(data: Mapping[str, JSON]) -> "Outcome":
        """The Outcome that `to_json` wrote. Unknown keys are ignored.

        Raises:
            TypeError: `candidate_hash` or `verdict` is missing.
        """
        known = {f.name for f in fields(Outcome)}
        values = {key: value for key, value in data.items() if key in known}
        tags = values.get("tags")
        values["tags"] = tuple(tags) if isinstance(tags, Sequence) and not isinstance(tags, str) else ()
        return Outcome(**values)  # type: ignore[arg-type]  # written by `to_json`


@dataclass(frozen=True)
class Event:
    """Something that happened in a job. Rounds count from 1; 0 is before the first.

    Kinds and their data:
        job_started     task_id, platform, model, judge_model, strategy, seed, rounds, best_hash (or None)
        memory          what earlier jobs have proven, as the job is told of it (`agents.memory.Memory.to_json`)
        round_started   request (write | improve | repair | contrast | tools), parent (the round it builds on, or None)
        llm_started     key, attempt, model, role, purpose, worst_usd, worst_tokens; a request is about to be sent
        llm_fault       model, role, message; a request failed at no cost and is sent again
        llm_call        key, attempt, model, role (coder | judge), purpose, prompt_tokens, completion_tokens, cost_usd
                        (or None), latency_s, attempts, truncated, messages, reply, reasoning, reasoning_tokens (or
                        None), tool_calls, usage (where the counts of tokens come from)
        llm_failed      key, attempt, model, role, purpose, error (class), message, maybe_paid; there is no reply
        reply_rejected  role, reason; the reply holds no usable candidate or advice
        candidate       hash, source, change, repeat_of_round (or None); each of a round's several variants has one,
                        with variant (from 1), variants (how many) and label
        evaluation_started  hash
        phase           phase (`evaluator.phases`), device (its name), places (digests of what is measured on alone);
                        what the evaluation does that was started last, or that something waits for the device
        evaluated       every field of the Outcome, and repeat_of_round (or None: it was evaluated now)
        proof_started   hash; the round is that of the candidate
        proved          every field of the Outcome: the job's best, measured once more at full precision
        advice          the Judge's JSON, mode (judge-repair | judge-improve), subject_hash (the candidate judged)
        best            hash, speedup, tags
        round_done      verdict (`no_candidate`: the Coder gave none)
        job_stopped     reason, detail, rounds_done, best_hash (or None), cost_usd, prompt_tokens, completion_tokens,
                        unsettled_usd, summary (figures of the strategy)
        remeasured      evaluation (its id), verdict, counts; after the job has stopped, because its best was `noisy`
    """

    kind: str
    round: int
    data: Mapping[str, JSON]


@dataclass(frozen=True)
class Spent:
    """What a job has spent so far.

    Attributes:
        cost_usd: billed for replies; calls of unknown price count 0.
        prompt_tokens, completion_tokens: of these replies.
        unsettled_usd, unsettled_tokens: the worst case of requests whose reply was lost or cut off. They may have been
            billed, so budgets count them in full.
        evaluations: candidates evaluated.
        wall_s: time in which the job ran.
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
        """Tokens of prompts and replies that were billed."""
        return self.prompt_tokens + self.completion_tokens


NOTHING_SPENT = Spent()


@dataclass(frozen=True)
class ResumeState:
    """What earlier runs of a job recorded.

    Attributes:
        spent: by these runs.
        replies: by ledger key.
        attempts: how many requests were sent for each ledger key.
        evaluated: hashes of the candidates that were evaluated.
    """

    spent: Spent = NOTHING_SPENT
    replies: Mapping[str, "Reply"] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    evaluated: frozenset[str] = frozenset()


FRESH_START = ResumeState()

Evaluate = Callable[[str, str | None], Outcome]
"""Evaluates a candidate's source in a trial against the source of the best one so far (None: there is none). Its
exceptions (no sandbox, KeyboardInterrupt) pass through `run_job`."""

Prove = Callable[[str], Outcome]
"""Evaluates the job's best candidate at full precision. What it measures counts, and no trial does."""

Record = Callable[[Event], None]
"""Stores an event. It is stored when the call returns."""


class Prebuilds(Protocol):
    """Prebuilds candidates that are written in parallel before their evaluations, which then find the builds done."""

    def start(self, source: str) -> None:
        """Start to build a candidate if that takes long enough to be worth it. Returns at once; threads may call it."""
        ...

    def wait(self, limit_s: float | None) -> None:
        """Wait for the builds that were started, at most `limit_s` seconds; None: no limit."""
        ...


class NoPrebuilds:
    """Leaves each build to the evaluation."""

    def start(self, source: str) -> None:
        """Do nothing."""

    def wait(self, limit_s: float | None) -> None:
        """Do nothing."""


NO_PREBUILDS = NoPrebuilds()


@dataclass(frozen=True)
class Tool:
    """A function that a model may call; `parameters` is a JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, JSON]

    def to_json(self) -> dict[str, JSON]:
        """In the form of the Chat Completions protocol."""
        function: dict[str, JSON] = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that a model asks for; `arguments` is its JSON text, which may be invalid."""

    id: str
    name: str
    arguments: str

    def cleaned(self) -> "ToolCall":
        """This call with texts that the store can hold."""
        return ToolCall(clean_text(self.id), clean_text(self.name), clean_text(self.arguments))

    def to_json(self) -> dict[str, JSON]:
        """In the form of the Chat Completions protocol."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class Message:
    """A chat message. `role` is system, user, assistant or tool (the result of the call `tool_call_id`)."""

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    def to_json(self) -> dict[str, JSON]:
        """In the form of the Chat Completions protocol."""
        shown: dict[str, JSON] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            shown["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id is not None:
            shown["tool_call_id"] = self.tool_call_id
        return shown


REPORTED, ESTIMATED, BOUND = "reported", "estimated", "bound"


@dataclass(frozen=True)
class Reply:
    """A model's reply. Its texts are clean (`tasks.text.clean_text`), so that the store holds them unchanged.

    Attributes:
        cost_usd: None: no price is known.
        latency_s: over all attempts.
        truncated: whether the reply was cut off at the size limit.
        attempts: how many requests were sent.
        reasoning: the model's reasoning as far as the provider shows it.
        reasoning_tokens: part of `completion_tokens`; None: the provider does not count them.
        usage: where the counts of tokens come from: `reported` by the provider, `estimated` from the texts, or `bound`,
            which is more than they can be as far as is known.
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
    usage: str = REPORTED


@dataclass(frozen=True)
class Price:
    """Dollars for one token of a prompt and of a reply.

    `long_prompts` are the prices for longer prompts: (above how many tokens, prompt, reply).
    """

    prompt_usd: float
    reply_usd: float
    long_prompts: tuple[tuple[int, float, float], ...] = ()

    def for_prompt(self, tokens: int) -> "Price":
        """The highest price that a prompt of at most `tokens` tokens can have."""
        reached = [(prompt, reply) for above, prompt, reply in self.long_prompts if tokens > above]
        return Price(
            max([self.prompt_usd, *(prompt for prompt, _ in reached)]),
            max([self.reply_usd, *(reply for _, reply in reached)]),
        )


FREE = Price(0.0, 0.0)
"""The price of models on this machine and of replies from files."""


def ignore_fault(line: str) -> None:
    """Drop what `LLM.complete` reports of faults."""


class LLMError(RuntimeError):
    """There is no usable reply from a model. The text names the model and holds no key."""

    def __init__(self, model: str, problem: str, remedy: str = "") -> None:
        super().__init__(f"{model}: {problem}" + (f" {remedy}" if remedy else ""))
        self.model = model
        self.problem = problem
        self.remedy = remedy


class ModelUnavailable(LLMError):
    """The model cannot be called: no key, a wrong key, an unknown name, no connection. `remedy` says what to set."""


class LLMRefused(LLMError):
    """The model or its provider declined to answer this prompt. A retry would not help."""


class ContextTooLong(LLMError):
    """The prompt does not fit the model's context window."""


class LLMFailed(LLMError):
    """The provider failed (rate limit, server error, time limit, unreadable response), and so did the retries."""


class ReplyLost(LLMFailed):
    """The request was sent and its reply did not arrive whole (time limit, dropped stream, unreadable response).

    It may have been billed, so it is sent again only after another check of the budget.
    """


class LLMCancelled(LLMError):
    """The job was cancelled while it waited for the model. `sent`: a request was under way, which may be billed."""

    def __init__(self, model: str, problem: str, remedy: str = "", *, sent: bool = True) -> None:
        super().__init__(model, problem, remedy)
        self.sent = sent


class BudgetTooSmall(LLMError):
    """The rest of the budget does not cover the worst case of the next step. Nothing was sent."""


class PriceUnknown(LLMError):
    """No price is known for this model, so a budget in dollars could not be kept. Nothing was sent."""


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
        """One chat completion. Faults that cost nothing (rate limit, overloaded server, no connection) are retried.

        Args:
            model: LiteLLM's name of the model.
            messages: the prompt.
            should_stop: cancels the call.
            reply_tokens: the most reply tokens to ask for; None, and at most: `reply_limit(model)`.
            tools: tools that the model may call.
            on_fault: is told of each fault in one line, with the wait before the next request.

        Raises:
            ReplyLost: the reply did not arrive whole and may have been billed; it is not retried here.
            LLMError: there is no reply; each subclass says what to do.
        """
        ...

    def price(self, model: str) -> Price | None:
        """The price of a model's tokens; None: not known; FREE for models on this machine."""
        ...

    def reply_limit(self, model: str) -> int:
        """The most reply tokens that `complete` asks this model for."""
        ...
