"""The rounds of a job: the best candidate among them, the one to change next, and how prompts show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.prompting.parse import Advice, Lesson
from agents.protocols import JSON, Outcome
from agents.stop_rules import is_better
from tasks.outcomes import NO_CANDIDATE, UNDER_WAY, Decision, candidate_hash, is_reliable

MAX_LESSONS = 12
MAX_REPAIRS = 2  # in a row that fail; then the best candidate is changed instead
SIMPLER = 0.9  # share of the best one's words below which a candidate that is as good is preferred


@dataclass(frozen=True)
class Round:
    """One round. A round with neither a candidate nor a problem is under way in parallel with others.

    Attributes:
        number: counts from 1.
        change: what the candidate was meant to change.
        source: the candidate; None if the Coder gave no usable one.
        outcome: its evaluation; None if there is no candidate.
        advice: the Judge's advice after the round.
        repeat_of: the round that had evaluated the identical file.
        problem: why there is no candidate.
        parent: the round of the candidate that this one changes.
        advised_hash: the hash of the candidate that `advice` is about.
    """

    number: int
    change: str
    source: str | None = None
    outcome: Outcome | None = None
    advice: Advice | None = None
    repeat_of: int | None = None
    problem: str = ""
    parent: int | None = None
    advised_hash: str | None = None


@dataclass(frozen=True)
class EvaluatedCandidate:
    """A candidate with its own outcome, and the round that it is from."""

    source: str
    outcome: Outcome
    round: int | None = None

    def __post_init__(self) -> None:
        """Check that the outcome is this candidate's own: advice from another one's profile is worse than none.

        Raises:
            ValueError: the hashes differ.
        """
        own = candidate_hash(self.source)
        if self.outcome.candidate_hash != own:
            raise ValueError(f"the outcome is of candidate {self.outcome.candidate_hash[:12]}, not of {own[:12]}")


def best_of(rounds: Sequence[Round]) -> EvaluatedCandidate | None:
    """The best correct candidate by `replaces`; None: there is none."""
    bests = bests_of(rounds)
    return bests[-1] if bests else None


def bests_of(rounds: Sequence[Round]) -> list[EvaluatedCandidate]:
    """The candidates that were the best one at some time, in order."""
    bests: list[EvaluatedCandidate] = []
    for entry in rounds:
        if entry.source is None or entry.outcome is None or entry.repeat_of is not None:
            continue
        new = EvaluatedCandidate(entry.source, entry.outcome, entry.number)
        if replaces(new, bests[-1] if bests else None):
            bests.append(new)
    return bests


def replaces(new: EvaluatedCandidate, best: EvaluatedCandidate | None) -> bool:
    """Whether a candidate becomes the best one: it is better (`stop_rules.is_better`), or as good and simpler.

    It is simpler if its source has less than `SIMPLER` of the words of the best one's. So ties cannot follow each other
    without end, each of them a little slower.
    """
    if is_better(new.outcome, best.outcome if best else None):
        return True
    if (
        best is None
        or new.outcome.champion_hash != best.outcome.candidate_hash
        or new.outcome.decision != Decision.ALIKE
    ):
        return False
    if is_reliable(best.outcome.tags) and not is_reliable(new.outcome.tags):
        return False
    return new.outcome.passed and len(new.source.split()) < SIMPLER * len(best.source.split())


def choose_candidate(rounds: Sequence[Round]) -> EvaluatedCandidate | None:
    """The candidate that the Judge judges and the Coder changes next; None: there is none yet.

    A candidate that failed is repaired. Once there is a correct one, at most MAX_REPAIRS repairs in a row may fail;
    then the best one is changed instead.
    """
    best = best_of(rounds)
    failed = 0
    for entry in reversed(rounds):
        if entry.outcome is None:
            continue
        if entry.outcome.passed:
            break
        failed += 1
    if failed == 0 or (best is not None and failed % (MAX_REPAIRS + 1) == 0):
        return best
    for entry in reversed(rounds):
        if entry.source is not None and entry.outcome is not None:
            return EvaluatedCandidate(entry.source, entry.outcome, entry.number)
    return None


def find_repeat(rounds: Sequence[Round], source: str) -> Round | None:
    """The round that evaluated the identical file; None: there is none."""
    wanted = candidate_hash(source)
    for entry in rounds:
        if entry.outcome is not None and entry.repeat_of is None and entry.outcome.candidate_hash == wanted:
            return entry
    return None


def lessons_of(rounds: Sequence[Round]) -> list[Lesson]:
    """The latest MAX_LESSONS lessons of the Judge, each once."""
    found: dict[Lesson, None] = {}
    for entry in rounds:
        for lesson in entry.advice.lessons if entry.advice else ():
            found.pop(lesson, None)
            found[lesson] = None
    return list(found)[-MAX_LESSONS:]


def history_json(rounds: Sequence[Round]) -> list[JSON]:
    """The rounds as prompts show them, one object each."""
    return [_history_entry(entry) for entry in rounds]


def _history_entry(entry: Round) -> dict[str, JSON]:
    outcome = entry.outcome
    shown: dict[str, JSON] = {
        "round": entry.number,
        "candidate_hash": outcome.candidate_hash if outcome else None,
        "verdict": outcome.verdict if outcome else NO_CANDIDATE if entry.problem else UNDER_WAY,
        "code": outcome.code if outcome else None,
        "speedup": outcome.speedup if outcome else None,
        "speedup_compile": outcome.speedup_compile if outcome else None,
        "change": entry.change,
    }
    if outcome is not None and outcome.over_champion is not None:
        shown["over_best_so_far"] = f"{outcome.over_champion:.3f} ({outcome.decision})"
    if entry.repeat_of is not None:
        shown["repeat_of_round"] = entry.repeat_of
    if outcome is not None and not outcome.passed:
        shown["message"] = outcome.message[:300]
    elif entry.problem:
        shown["message"] = entry.problem[:300]
    return shown
