"""When a job stops, and which of its candidates is the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.errors import BudgetTooSmall, LLMCancelled, LLMError, ModelUnavailable, PriceUnknown
from agents.protocols import Outcome
from tasks.outcomes import NOT_JUDGED, is_ranked


class StopReason(StrEnum):
    """Why a job ended."""

    ROUNDS = "rounds"  # all of its rounds are done
    BUDGET = "budget"  # the next call could cost more than is left, or its price is unknown
    PLATEAU = "plateau"  # too many rounds without a better candidate
    ROOFLINE = "roofline"  # the best candidate is within reach of what the hardware can do
    JUDGE = "judge"  # the Judge sees nothing left worth trying
    SUBMITTED = "submitted"  # the Coder handed in what it found best
    CANCELLED = "cancelled"  # the caller asked
    MODEL_UNAVAILABLE = "model_unavailable"  # no key, unknown model, nobody listening
    LLM_ERROR = "llm_error"  # no reply from a model for another cause
    TASK_INVALID = "task_invalid"  # the evaluator refuses the task itself
    SANDBOX_ERROR = "sandbox_error"  # the evaluator could not do its work


@dataclass(frozen=True)
class Stop:
    """A reason and one line of detail for people."""

    reason: StopReason
    detail: str


@dataclass(frozen=True)
class StopRules:
    """The bounds that a job was given; `plateau_rounds` 0 switches that rule off."""

    rounds: int
    plateau_rounds: int
    roofline_target: float


def is_better(new: Outcome, best: Outcome | None) -> bool:
    """Whether `new` takes the place of `best`.

    Only passed candidates count. The higher speedup over eager wins, unless the difference lies inside the noise: when
    either value falls into the other's interval it is a tie, and the earlier candidate stays. Figures that the
    evaluator itself does not rely on never win over those that it does.
    """
    if not new.passed or new.speedup is None:
        return False
    if best is None or best.speedup is None:
        return True
    if is_ranked(new.tags) != is_ranked(best.tags):
        return is_ranked(new.tags)
    new_low = new.speedup if new.speedup_low is None else new.speedup_low
    best_high = best.speedup if best.speedup_high is None else best.speedup_high
    return new.speedup > best_high and new_low > best.speedup


def stop_after(rules: StopRules, outcomes: Sequence[Outcome | None]) -> Stop | None:
    """The rule that ends a job after these rounds (one entry a round; None: no usable candidate), or None to go on."""
    last = outcomes[-1] if outcomes else None
    if last is not None and last.verdict in NOT_JUDGED:
        return Stop(StopReason(last.verdict), last.message or last.verdict)
    best: Outcome | None = None
    stale = 0  # rounds since the best changed; counted once there is one
    for outcome in outcomes:
        if outcome is not None and is_better(outcome, best):
            best, stale = outcome, 0
        elif best is not None:
            stale += 1
    fraction = best.roofline_fraction if best is not None and is_ranked(best.tags) else None
    if fraction is not None and fraction >= rules.roofline_target:
        return Stop(
            StopReason.ROOFLINE,
            f"the best candidate reaches {fraction:.0%} of the hardware's limit (target {rules.roofline_target:.0%})",
        )
    if len(outcomes) >= rules.rounds:
        return Stop(StopReason.ROUNDS, f"all {rules.rounds} rounds are done")
    if rules.plateau_rounds and stale >= rules.plateau_rounds:
        return Stop(StopReason.PLATEAU, f"no better candidate in {stale} rounds")
    return None


def stop_for_error(error: LLMError) -> Stop:
    """The stop that a failed call to a model means for a job."""
    if isinstance(error, LLMCancelled):
        return Stop(StopReason.CANCELLED, "cancelled while waiting for the model")
    if isinstance(error, BudgetTooSmall | PriceUnknown):
        return Stop(StopReason.BUDGET, str(error))
    if isinstance(error, ModelUnavailable):
        return Stop(StopReason.MODEL_UNAVAILABLE, str(error))
    return Stop(StopReason.LLM_ERROR, str(error))
