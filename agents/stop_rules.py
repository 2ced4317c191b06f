"""The rules by which a job stops, and when one candidate is better than another."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.protocols import BudgetTooSmall, LLMCancelled, LLMError, ModelUnavailable, Outcome, PriceUnknown
from tasks.outcomes import (
    NOT_JUDGED,
    SHOWN_UNTIMED,
    TRIAL,
    Decision,
    Verdict,
    is_reliable,
    is_reliable_but_for_noise,
)


class StopReason(StrEnum):
    """Why a job ended."""

    ROUNDS = "rounds"  # all rounds are done
    BUDGET = "budget"  # the next call could cost more than is left, or its price is not known
    PLATEAU = "plateau"  # too many rounds without a better candidate
    ROOFLINE = "roofline"  # the best candidate is close enough to the hardware's limit
    SHOWN = "shown"  # all is shown of the best candidate that can be where nothing is timed
    JUDGE = "judge"  # the Judge expects nothing of another change
    SUBMITTED = "submitted"  # the Coder submitted a candidate
    CANCELLED = "cancelled"  # by the caller
    MODEL_UNAVAILABLE = "model_unavailable"  # no key, unknown model, no connection
    LLM_ERROR = "llm_error"  # no usable reply from a model for another cause
    TASK_INVALID = "task_invalid"  # the evaluator refuses the task itself
    SANDBOX_ERROR = "sandbox_error"  # the evaluator could not do its work


@dataclass(frozen=True)
class Stop:
    """A reason and one line of detail for people."""

    reason: StopReason
    detail: str


@dataclass(frozen=True)
class StopRules:
    """The limits of a job's rules. `plateau_rounds` 0: the plateau rule is off."""

    rounds: int
    plateau_rounds: int
    roofline_target: float


def is_better(new: Outcome, best: Outcome | None) -> bool:
    """Whether `new` is better than `best`.

    Only correct candidates count. One that was timed is better than any that was screened, and of these the one of
    which more is shown. The first of these rules that tells two others apart decides:

    1. Figures that are unreliable for another reason than noise never replace others; the others replace them.
    2. If the two were timed beside each other, the sequential test decides. Noise met both, so its tag does not matter.
    3. A proof replaces a trial, never the other way round.
    4. Figures without noise replace noisy ones, never the other way round.
    5. The one with the higher speedup over eager is better, if `new.speedup > best.speedup_high` and
       `new.speedup_low > best.speedup`.
    """
    if new.verdict == Verdict.SCREENED:
        if best is None or best.passed:
            return best is None
        return len(SHOWN_UNTIMED & {*new.tags}) > len(SHOWN_UNTIMED & {*best.tags})
    if not new.passed or new.speedup is None:
        return False
    if best is None or best.speedup is None:
        return True
    if is_reliable_but_for_noise(new.tags) != is_reliable_but_for_noise(best.tags):
        return is_reliable_but_for_noise(new.tags)
    if new.champion_hash == best.candidate_hash and new.decision is not None:
        return new.decision == Decision.BETTER
    if (TRIAL in new.tags) != (TRIAL in best.tags):
        return TRIAL not in new.tags
    if is_reliable(new.tags) != is_reliable(best.tags):
        return is_reliable(new.tags)
    new_low = new.speedup if new.speedup_low is None else new.speedup_low
    best_high = best.speedup if best.speedup_high is None else best.speedup_high
    return new.speedup > best_high and new_low > best.speedup


def stop_after(rules: StopRules, outcomes: Sequence[Outcome | None], best_at: int | None) -> Stop | None:
    """Why a job stops after rounds with these outcomes; None: it goes on.

    Args:
        rules: the limits.
        outcomes: one for each round; None: the round has no candidate.
        best_at: the index of the best candidate's outcome among them; None: there is none.
    """
    last = outcomes[-1] if outcomes else None
    if last is not None and last.verdict in NOT_JUDGED:
        return Stop(StopReason(last.verdict), last.message or last.verdict)
    best = None if best_at is None else outcomes[best_at]
    stale_rounds = 0 if best_at is None else len(outcomes) - 1 - best_at
    fraction = best.roofline_fraction if best is not None and is_reliable(best.tags) else None
    if fraction is not None and fraction >= rules.roofline_target:
        return Stop(
            StopReason.ROOFLINE,
            f"the best candidate reaches {fraction:.0%} of the hardware's limit (target {rules.roofline_target:.0%})",
        )
    if best is not None and best.verdict == Verdict.SCREENED and {*best.tags} >= SHOWN_UNTIMED:
        return Stop(StopReason.SHOWN, "all is shown of the best candidate that can be without the device")
    if len(outcomes) >= rules.rounds:
        return Stop(StopReason.ROUNDS, f"all {rules.rounds} rounds are done")
    if rules.plateau_rounds and stale_rounds >= rules.plateau_rounds:
        return Stop(StopReason.PLATEAU, f"no better candidate in {stale_rounds} rounds")
    return None


def stop_for_error(error: LLMError) -> Stop:
    """The stop of a job whose call to a model failed with `error`."""
    if isinstance(error, LLMCancelled):
        return Stop(StopReason.CANCELLED, "cancelled while waiting for the model")
    if isinstance(error, BudgetTooSmall | PriceUnknown):
        return Stop(StopReason.BUDGET, str(error))
    if isinstance(error, ModelUnavailable):
        return Stop(StopReason.MODEL_UNAVAILABLE, str(error))
    return Stop(StopReason.LLM_ERROR, str(error))
