"""A job: one task is optimized on one platform with one strategy until a stop rule holds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agents.history import EvaluatedCandidate, bests_of
from agents.llm.budget import Budget, BudgetAccount
from agents.llm.ledger import Ledger, check_prices
from agents.llm.models import check_builtin, is_builtin
from agents.memory import NO_MEMORY, Memory
from agents.prompting.builder import write_brief
from agents.prompting.prompt_pack import PromptPack
from agents.protocols import (
    FRESH_START,
    JSON,
    LLM,
    NO_PREBUILDS,
    Evaluate,
    Event,
    Outcome,
    Prebuilds,
    Price,
    PriceUnknown,
    Prove,
    Record,
    ResumeState,
    Spent,
)
from agents.stop_rules import Stop, StopReason, StopRules, stop_for_error
from agents.strategies.context import SearchContext, SearchResult
from agents.strategies.registry import NEEDS_AN_LLM, STRATEGIES, open_strategy
from tasks.outcomes import NOT_JUDGED, Verdict

MAX_ROUNDS = 1000
MAX_PROOFS = 3  # candidates that are measured in the end, until one is not refused
_NOTHING_IS_PROVED = (StopReason.CANCELLED, StopReason.TASK_INVALID, StopReason.SANDBOX_ERROR)
SEEDS = {"compiler": "builtin/compiler"}


@dataclass(frozen=True)
class JobSpec:
    """What to optimize, how, and within which limits.

    Attributes:
        device: the text about the device that prompts show.
        prompts: what prompts say about the platform.
        model: LiteLLM's name of the Coder's model.
        judge_model: that of the Judge's; None: the Coder's.
        seed: one of the platform's seeds: round 1 is its candidate; None: the job starts from nothing.
        rounds: the most rounds.
        price: used for models whose price is not known.
        plateau_rounds: the job stops after so many rounds without a better candidate; 0: never.
        roofline_target: the job stops once the best candidate reaches this fraction of the hardware's limit.
        source_language: what the kernel is written in that the op brings to be translated; empty: it brings none.
        memory: what earlier jobs have proven. It must be the same in all runs of the job, for it is part of prompts.
    """

    task_id: str
    task_source: str
    category: str
    dtype: str
    platform: str
    device: str
    prompts: PromptPack
    model: str
    judge_model: str | None = None
    strategy: str = "judge"
    seed: str | None = None
    rounds: int = 10
    budget: Budget = field(default_factory=Budget)
    price: Price | None = None
    plateau_rounds: int = 4
    roofline_target: float = 0.95
    source_language: str = ""
    memory: Memory = NO_MEMORY


@dataclass(frozen=True)
class JobResult:
    """The best correct candidate of a job, if there is one, and why the job stopped.

    `rounds_done` and `spent` include earlier runs of the job. `summary` holds figures of the strategy.
    """

    best_source: str | None
    best: Outcome | None
    rounds_done: int
    stop_reason: StopReason
    stop_detail: str
    spent: Spent
    summary: dict[str, JSON]


def run_job(
    spec: JobSpec,
    *,
    evaluate: Evaluate,
    prove: Prove,
    record: Record,
    llm: LLM,
    should_stop: Callable[[], bool],
    resume_state: ResumeState = FRESH_START,
    prebuilds: Prebuilds = NO_PREBUILDS,
) -> JobResult:
    """Run a job until a stop rule holds. A model that fails or a budget that is used up ends it with the best so far.

    A job is resumed by running it again from its beginning: recorded calls and evaluations are answered from
    `resume_state`. `record` then gets events again that it has stored; `agents.replay.event_identity` recognises them.
    Every event is recorded the moment it happens. On KeyboardInterrupt, or if `evaluate` or `record` raises, there is
    no `job_stopped` event, and the job can be resumed.

    Args:
        spec: the job.
        evaluate: evaluates a candidate in a trial. It must remember the candidates that it evaluated.
        prove: measures the best candidate in the end. It must remember the candidates that it measured.
        record: stores an event before it returns.
        llm: access to models.
        should_stop: whether the job was cancelled.
        resume_state: what earlier runs recorded (`agents.replay.resume_state_from_events`).
        prebuilds: builds candidates that are written in parallel, before the first of them is evaluated.

    Raises:
        ValueError: the strategy is unknown, a model cannot write for the platform, or a limit is out of range.
        Exception: whatever `evaluate` and `record` raise.
    """
    check_spec(spec)
    brief = write_brief(
        task_id=spec.task_id,
        source=spec.task_source,
        category=spec.category,
        dtype=spec.dtype,
        device=spec.device,
        prompts=spec.prompts,
        source_language=spec.source_language,
        memory=spec.memory,
    )
    judge_model = spec.judge_model or spec.model
    account = BudgetAccount(spec.budget, resume_state.spent)
    ledger = Ledger(llm, record, should_stop, account, resume_state=resume_state, price=spec.price)
    context = SearchContext(
        brief=brief,
        rules=StopRules(spec.rounds, spec.plateau_rounds, spec.roofline_target),
        coder_model=spec.model,
        judge_model=judge_model,
        seed_model=None if spec.seed is None else SEEDS[spec.seed],
        coder_is_deterministic=is_builtin(spec.model),
        ledger=ledger,
        evaluate=evaluate,
        prebuilds=prebuilds,
        record=record,
        should_stop=should_stop,
        resume_state=resume_state,
    )
    started: dict[str, JSON] = {
        "task_id": spec.task_id,
        "platform": spec.platform,
        "model": spec.model,
        "judge_model": judge_model,
        "strategy": spec.strategy,
        "seed": spec.seed,
        "rounds": spec.rounds,
    }
    record(Event("job_started", 0, started))
    search, best = _prove(_search(spec, context), prove, record)
    return _finish(search, best, account.spent, record)


def _search(spec: JobSpec, context: SearchContext) -> SearchResult:
    if spec.budget.usd is not None:
        models = (spec.model, *((spec.judge_model,) if spec.judge_model else ()))
        try:
            check_prices(context.ledger, models, tokens_capped=spec.budget.tokens is not None)
        except PriceUnknown as error:
            return SearchResult((), stop_for_error(error))
    if context.should_stop():
        return SearchResult((), Stop(StopReason.CANCELLED, "cancelled before the first candidate"))
    return open_strategy(spec.strategy)(context)


def _prove(search: SearchResult, prove: Prove, record: Record) -> tuple[SearchResult, EvaluatedCandidate | None]:
    """The best candidate with what it was measured to be in the end, apart from the trials that chose it.

    If it is refused, the one that was the best before it is measured. Where a job was cancelled, or its task or sandbox
    failed, the best candidate that was not refused has the figures of its trial. One that was screened is not measured
    again, since no figures chose it.
    """
    bests = bests_of(search.rounds)
    if not bests or search.stop.reason in _NOTHING_IS_PROVED or bests[-1].outcome.verdict == Verdict.SCREENED:
        return search, bests[-1] if bests else None
    for best in bests[: -MAX_PROOFS - 1 : -1]:
        number = best.round or 0
        record(Event("proof_started", number, {"hash": best.outcome.candidate_hash}))
        outcome = prove(best.source)
        record(Event("proved", number, outcome.to_json()))
        if outcome.right:
            return search, EvaluatedCandidate(best.source, outcome, best.round)
        if outcome.verdict in NOT_JUDGED:
            stop = Stop(StopReason(outcome.verdict), outcome.message or outcome.verdict)
            return replace(search, stop=stop), best
    return search, None


def _finish(search: SearchResult, best: EvaluatedCandidate | None, spent: Spent, record: Record) -> JobResult:
    result = JobResult(
        best_source=best.source if best else None,
        best=best.outcome if best else None,
        rounds_done=len(search.rounds),
        stop_reason=search.stop.reason,
        stop_detail=search.stop.detail,
        spent=spent,
        summary=dict(search.summary or {}),
    )
    stopped: dict[str, JSON] = {
        "reason": str(search.stop.reason),
        "detail": search.stop.detail,
        "rounds_done": result.rounds_done,
        "best_hash": result.best.candidate_hash if result.best else None,
        "cost_usd": spent.cost_usd,
        "prompt_tokens": spent.prompt_tokens,
        "completion_tokens": spent.completion_tokens,
        "unsettled_usd": spent.unsettled_usd,
        "summary": result.summary,
    }
    record(Event("job_stopped", result.rounds_done, stopped))
    return result


def check_spec(spec: JobSpec) -> None:
    """Check that a spec can be run.

    Raises:
        ValueError: names the field, its value and what is allowed.
    """
    for model in (spec.model, spec.judge_model or spec.model):
        check_builtin(model)
    if spec.strategy not in STRATEGIES:
        raise ValueError(f"strategy {spec.strategy!r} is unknown; known: {', '.join(STRATEGIES)}")
    if spec.strategy in NEEDS_AN_LLM and is_builtin(spec.model):
        raise ValueError(f"strategy {spec.strategy!r} needs a language model; {spec.model} is a compiler search")
    _check_seeds(spec)
    if not 1 <= spec.rounds <= MAX_ROUNDS:
        raise ValueError(f"rounds is {spec.rounds}; must be 1 to {MAX_ROUNDS}")
    if spec.plateau_rounds < 0:
        raise ValueError(f"plateau_rounds is {spec.plateau_rounds}; must be 0 (off) or more")
    for name in ("usd", "tokens", "wall_s", "evaluations"):
        value = getattr(spec.budget, name)
        if value is not None and not value >= 0:
            raise ValueError(f"budget.{name} is {value}; must be 0 or more, or left out")
    if not spec.roofline_target > 0:
        raise ValueError(f"roofline_target is {spec.roofline_target}; must be above 0 (1.0 is the hardware's limit)")


def _check_seeds(spec: JobSpec) -> None:
    seeds = spec.prompts.seeds
    if spec.seed is not None and spec.seed not in seeds:
        known = ", ".join(seeds) or "none, so leave it out"
        raise ValueError(f"seed {spec.seed!r} is unknown; platform {spec.platform!r} has: {known}")
    for model in (spec.model, spec.judge_model or spec.model):
        if is_builtin(model) and not seeds:
            raise ValueError(
                f"model {model!r} cannot write for platform {spec.platform!r}; name a language model (PROVIDER/MODEL)"
            )
