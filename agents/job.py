"""One job: optimize one task on one platform with one strategy, until a stop rule holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.ports import LLM, Evaluate, Outcome, PastRound, Record, Spent
from agents.stopping import StopReason


@dataclass(frozen=True)
class JobSpec:
    """What to do and within which bounds. `device` is the text about the device that prompts show.

    `judge_model` None: the Coder's model. `budget_usd` None: no limit. `plateau_rounds` 0: that rule is off.
    """

    task_id: str
    task_source: str
    category: str
    dtype: str
    platform: str
    device: str
    model: str
    judge_model: str | None = None
    strategy: str = "judge"
    rounds: int = 10
    budget_usd: float | None = None
    plateau_rounds: int = 4
    roofline_target: float = 0.95
    api_base: str | None = None


@dataclass(frozen=True)
class JobResult:
    """What a job delivers: the best correct candidate, if any, and why it stopped.

    `rounds_done`, `cost_usd` and the token counts include what an earlier run of the job had done.
    """

    best_source: str | None
    best: Outcome | None
    rounds_done: int
    stop_reason: StopReason
    stop_detail: str
    cost_usd: float
    prompt_tokens: int
    completion_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and replies."""
        return self.prompt_tokens + self.completion_tokens


def run_job(
    spec: JobSpec,
    *,
    evaluate: Evaluate,
    record: Record,
    llm: LLM,
    should_stop: Callable[[], bool],
    history: Sequence[PastRound] = (),
    spent: Spent = Spent(),  # noqa: B008  # frozen
) -> JobResult:
    """Run a job until a stop rule holds; a failing model ends it with the best so far.

    A job that starts again passes the rounds already done as `history` and what they took as `spent`, and goes on with
    the rounds that remain. Every event is recorded when it happens. On KeyboardInterrupt or an exception of `evaluate`
    there is no `job_stopped` event: the job can be resumed.

    Raises:
        ValueError: the strategy or the platform is unknown, or a bound is out of range.
        Exception: whatever `evaluate` and `record` raise.
    """
    from agents.strategies import judge  # LangGraph takes a second to import

    return judge.run(spec, evaluate, record, llm, should_stop, history, spent)
