"""What a job has tried: its rounds, the best of them, and which candidate to work on next."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.prompting.parse import Advice, Lesson
from agents.protocols import JSON, Outcome
from agents.stop_rules import is_better
from tasks.outcomes import NO_CANDIDATE, UNDER_WAY, candidate_hash

MAX_LESSONS = 12
REPAIRS_IN_A_ROW = 2  # after so many in vain, go back to the best candidate


@dataclass(frozen=True)
class Round:
    """One round, finished or (with neither candidate nor problem) under way beside another.

    `source` and `outcome` are None where the Coder gave no usable candidate. `change` is what this candidate was meant
    to change, `parent` the round of the candidate that it changes; `advice` is the Judge's after it, about
    `choose_subject`'s candidate, whose hash is `advised`; `repeat_of` is the round that had evaluated the identical
    file.
    """

    number: int
    change: str
    source: str | None = None
    outcome: Outcome | None = None
    advice: Advice | None = None
    repeat_of: int | None = None
    problem: str = ""
    parent: int | None = None
    advised: str | None = None


@dataclass(frozen=True)
class Subject:
    """A candidate with the outcome of evaluating exactly it, and the round that brought it."""

    source: str
    outcome: Outcome
    round: int | None = None

    def __post_init__(self) -> None:
        """Refuse an outcome of another candidate: advice from a wrong profile is worse than none.

        Raises:
            ValueError: the hashes differ.
        """
        own = candidate_hash(self.source)
        if self.outcome.candidate_hash != own:
            raise ValueError(f"the outcome is of candidate {self.outcome.candidate_hash[:12]}, not of {own[:12]}")


def best_of(rounds: Sequence[Round]) -> Subject | None:
    """The best correct candidate (`stopping.is_better`), or None."""
    best: Subject | None = None
    for entry in rounds:
        if entry.source is None or entry.outcome is None:
            continue
        if is_better(entry.outcome, best.outcome if best else None):
            best = Subject(entry.source, entry.outcome, entry.number)
    return best


def choose_subject(rounds: Sequence[Round]) -> Subject | None:
    """The candidate that the Judge judges and the Coder changes next, or None: nothing to build on yet.

    A failed one is repaired; once there is a best one, it is improved again after REPAIRS_IN_A_ROW repairs in vain.
    """
    best = best_of(rounds)
    failed = 0
    for entry in reversed(rounds):
        if entry.outcome is None:
            continue  # a round without a candidate says nothing about the one before
        if entry.outcome.passed:
            break
        failed += 1
    if failed == 0 or (best is not None and failed % (REPAIRS_IN_A_ROW + 1) == 0):
        return best
    for entry in reversed(rounds):
        if entry.source is not None and entry.outcome is not None:
            return Subject(entry.source, entry.outcome, entry.number)
    return None


def find_repeat(rounds: Sequence[Round], source: str) -> Round | None:
    """The round that evaluated this identical file, or None."""
    wanted = candidate_hash(source)
    for entry in rounds:
        if entry.outcome is not None and entry.repeat_of is None and entry.outcome.candidate_hash == wanted:
            return entry
    return None


def lessons_of(rounds: Sequence[Round]) -> list[Lesson]:
    """What the Judge learnt in this job, each lesson once, the latest MAX_LESSONS of them."""
    found: dict[Lesson, None] = {}
    for entry in rounds:
        for lesson in entry.advice.lessons if entry.advice else ():
            found.pop(lesson, None)
            found[lesson] = None
    return list(found)[-MAX_LESSONS:]


def history_json(rounds: Sequence[Round]) -> list[JSON]:
    """One object a round, as prompts show it."""
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
    if entry.repeat_of is not None:
        shown["repeat_of_round"] = entry.repeat_of
    if outcome is not None and not outcome.passed:
        shown["message"] = outcome.message[:300]
    elif entry.problem:
        shown["message"] = entry.problem[:300]
    return shown
