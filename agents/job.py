"""One job: optimize one task on one platform with one strategy, until a stop rule holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.asking import Asker
from agents.ports import JSON, LLM, NOTHING_SPENT, Evaluate, Event, Outcome, PastRound, Record, Spent
from agents.prompting import load_brief
from agents.replay import rounds_of_history
from agents.rounds import best_of
from agents.stopping import StopReason, StopRules

STRATEGIES = ("judge",)
MAX_ROUNDS = 1000


@dataclass(frozen=True)
class JobSpec:
    """What to do and within which bounds. `device` is the text about the device that prompts show.

    `judge_model` None: the Coder's model. `budget_usd` None: no limit. `plateau_rounds` 0: that rule is off.
    `api_base` is for whoever opens the LLM.
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
    spent: Spent = NOTHING_SPENT,
) -> JobResult:
    """Run a job until a stop rule holds; a failing model ends it with the best so far.

    A job that starts again passes the rounds already done as `history` and what they took as `spent`
    (`agents.replay.past_of_events` reads both from the recorded events), and goes on with the rounds that remain.
    Every event is recorded when it happens. On KeyboardInterrupt or an exception of `evaluate` there is no
    `job_stopped` event: the job can be resumed.

    Raises:
        ValueError: the strategy or the platform is unknown, or a bound is out of range.
        Exception: whatever `evaluate` and `record` raise.
    """
    check_spec(spec)
    brief = load_brief(
        task_id=spec.task_id,
        source=spec.task_source,
        category=spec.category,
        dtype=spec.dtype,
        platform=spec.platform,
        device=spec.device,
    )
    rounds, draft = rounds_of_history(history)
    best = best_of(rounds)
    asker = Asker(llm, record, should_stop, spec.budget_usd, spent)
    started: dict[str, JSON] = {
        "task_id": spec.task_id,
        "platform": spec.platform,
        "model": spec.model,
        "judge_model": spec.judge_model or spec.model,
        "strategy": spec.strategy,
        "rounds": spec.rounds,
        "rounds_done": len(rounds),
        "best_hash": best.outcome.candidate_hash if best else None,
    }
    record(Event("job_started", 0, started))

    from agents.strategies.judge import JudgeStrategy  # LangGraph takes a second to import

    strategy = JudgeStrategy(
        brief=brief,
        rules=StopRules(spec.rounds, spec.plateau_rounds, spec.roofline_target),
        coder_model=spec.model,
        judge_model=spec.judge_model or spec.model,
        asker=asker,
        evaluate=evaluate,
        record=record,
        should_stop=should_stop,
    )
    rounds, stop = strategy.run(rounds, draft)
    best = best_of(rounds)
    result = JobResult(
        best_source=best.source if best else None,
        best=best.outcome if best else None,
        rounds_done=len(rounds),
        stop_reason=stop.reason,
        stop_detail=stop.detail,
        cost_usd=asker.spent.cost_usd,
        prompt_tokens=asker.spent.prompt_tokens,
        completion_tokens=asker.spent.completion_tokens,
    )
    stopped: dict[str, JSON] = {
        "reason": str(stop.reason),
        "detail": stop.detail,
        "rounds_done": result.rounds_done,
        "best_hash": result.best.candidate_hash if result.best else None,
        "cost_usd": result.cost_usd,
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
    }
    record(Event("job_stopped", result.rounds_done, stopped))
    return result


def check_spec(spec: JobSpec) -> None:
    """Refuse a spec that cannot be run.

    Raises:
        ValueError: names the field, its value and what is allowed.
    """
    if spec.strategy not in STRATEGIES:
        raise ValueError(f"strategy {spec.strategy!r} is unknown; known: {', '.join(STRATEGIES)}")
    if not 1 <= spec.rounds <= MAX_ROUNDS:
        raise ValueError(f"rounds is {spec.rounds}; must be 1 to {MAX_ROUNDS}")
    if spec.plateau_rounds < 0:
        raise ValueError(f"plateau_rounds is {spec.plateau_rounds}; must be 0 (off) or more")
    if spec.budget_usd is not None and not spec.budget_usd >= 0:
        raise ValueError(f"budget_usd is {spec.budget_usd}; must be 0 or more, or left out")
    if not spec.roofline_target > 0:
        raise ValueError(f"roofline_target is {spec.roofline_target}; must be above 0 (1.0 is the hardware's limit)")
