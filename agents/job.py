"""One job: optimize one task on one platform with one strategy, until a stop rule holds."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.errors import PriceUnknown
from agents.history import best_of
from agents.llm.budget import Budget, Purse
from agents.llm.ledger import Ledger, check_prices
from agents.llm.names import is_builtin
from agents.prompting.builder import load_brief
from agents.protocols import JSON, LLM, NO_BUILDS, NO_PAST, Builds, Evaluate, Event, Outcome, Past, Price, Record, Spent
from agents.stop_rules import Stop, StopReason, StopRules, stop_for
from agents.strategies.context import SearchContext, SearchResult
from agents.strategies.registry import NEEDS_AN_LLM, STRATEGIES, open_strategy

MAX_ROUNDS = 1000
SEEDS = {"compiler": "builtin/compiler"}


@dataclass(frozen=True)
class JobSpec:
    """What to do and within which bounds. `device` is the text about the device that prompts show.

    `judge_model` None: the Coder's model. `seed` None: start from nothing; a key of SEEDS: from that model's candidate.
    `plateau_rounds` 0: that rule is off. `price` stands in where nobody knows a model's price.
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
    seed: str | None = None
    rounds: int = 10
    budget: Budget = field(default_factory=Budget)
    price: Price | None = None
    plateau_rounds: int = 4
    roofline_target: float = 0.95


@dataclass(frozen=True)
class JobResult:
    """What a job delivers: the best correct candidate, if any, and why it stopped.

    `rounds_done` and `spent` include what earlier runs of the job had done. `summary` holds figures of the strategy's.
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
    record: Record,
    llm: LLM,
    should_stop: Callable[[], bool],
    past: Past = NO_PAST,
    builds: Builds = NO_BUILDS,
) -> JobResult:
    """Run a job until a stop rule holds; a failing model or a spent budget ends it with the best so far.

    A job that starts again passes what its events tell as `past` (`agents.replay.past_of_events`): it is run from its
    beginning, and the calls and evaluations that are in there are answered from there. `record` then sees events again
    that it has stored (`agents.replay.identity` tells which). `evaluate` must know the candidates that it evaluated.
    `builds` is told of candidates that are written side by side, before the first of them is evaluated.
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
    judge_model = spec.judge_model or spec.model
    ledger = Ledger(llm, record, should_stop, Purse(spec.budget, past.spent), past=past, price=spec.price)
    context = SearchContext(
        brief=brief,
        rules=StopRules(spec.rounds, spec.plateau_rounds, spec.roofline_target),
        coder_model=spec.model,
        judge_model=judge_model,
        seed_model=None if spec.seed is None else SEEDS[spec.seed],
        coder_is_deterministic=is_builtin(spec.model),
        ledger=ledger,
        evaluate=evaluate,
        builds=builds,
        record=record,
        should_stop=should_stop,
        past=past,
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
    return _finish(_search(spec, context), ledger.purse.spent, record)


def _search(spec: JobSpec, context: SearchContext) -> SearchResult:
    if spec.budget.usd is not None:
        models = (spec.model, *((spec.judge_model,) if spec.judge_model else ()))
        try:
            check_prices(context.ledger, models, tokens_capped=spec.budget.tokens is not None)
        except PriceUnknown as error:
            return SearchResult((), stop_for(error))
    if context.should_stop():
        return SearchResult((), Stop(StopReason.CANCELLED, "cancelled before the first candidate"))
    return open_strategy(spec.strategy)(context)


def _finish(search: SearchResult, spent: Spent, record: Record) -> JobResult:
    best = best_of(search.rounds)
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
    """Refuse a spec that cannot be run.

    Raises:
        ValueError: names the field, its value and what is allowed.
    """
    if spec.strategy not in STRATEGIES:
        raise ValueError(f"strategy {spec.strategy!r} is unknown; known: {', '.join(STRATEGIES)}")
    if spec.strategy in NEEDS_AN_LLM and is_builtin(spec.model):
        raise ValueError(f"strategy {spec.strategy!r} needs a language model; {spec.model} is a compiler search")
    if spec.seed is not None and spec.seed not in SEEDS:
        raise ValueError(f"seed {spec.seed!r} is unknown; known: {', '.join(SEEDS)}")
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
