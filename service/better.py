"""Which of two stored evaluations is the better one, by the agents' rule."""

from agents.ports import Outcome
from agents.stopping import is_better
from db.records import EvaluationRecord


def is_better_record(new: EvaluationRecord, best: EvaluationRecord | None) -> bool:
    """Whether `new` takes the place of `best`, or is good enough to be the first."""
    return is_better(_ranked(new), None if best is None else _ranked(best))


def _ranked(kept: EvaluationRecord) -> Outcome:
    """As much of an evaluation as tells which of two is better."""
    measured = kept.measured
    return Outcome(
        kept.candidate_hash,
        kept.verdict,
        tags=kept.tags,
        speedup=measured.speedup,
        speedup_low=measured.speedup_low,
        speedup_high=measured.speedup_high,
    )
