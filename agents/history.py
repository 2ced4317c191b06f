"""The rounds of a job: the best candidate among them, the one to change next, and how prompts show them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agents.prompting.parse import Advice, Lesson
from agents.protocols import JSON, Outcome
from agents.stop_rules import Stop, is_better
from tasks.outcomes import (
    NO_CANDIDATE,
    NOT_JUDGED,
    UNDER_WAY,
    Decision,
    candidate_hash,
    is_reliable_but_for_noise,
)

MAX_LESSONS = 12
MAX_REPAIRS = 2  # in a row that fail; then the best candidate is changed instead
_OVER_BEST = re.compile(r"(\d{1,9}\.\d{3}) \((\w{1,20})\)")
SIMPLER = 0.9  # share of the best one's words below which a candidate that is as good is preferred


@dataclass(frozen=True)
class EvaluatedVariant:
    """A candidate of a round with its outcome.

    Attributes:
        source: the candidate.
        outcome: its evaluation.
        label: what sets it apart from the round's other variants; empty: it is alone.
        repeat_of: the round that had evaluated the identical file.
    """

    source: str
    outcome: Outcome
    label: str = ""
    repeat_of: int | None = None


@dataclass(frozen=True)
class Round:
    """One round. A round with neither a candidate nor a problem is under way in parallel with others.

    Attributes:
        number: counts from 1.
        change: what the candidate was meant to change.
        source: the candidate, of several variants the leading one (`leading_place`); None if the Coder gave no usable
            one.
        outcome: its evaluation; None if there is no candidate.
        advice: the Judge's advice after the round.
        repeat_of: the round that had evaluated the identical file.
        problem: why there is no candidate, or why variants were left out.
        parent: the round of the candidate that this one changes.
        advised_hash: the hash of the candidate that `advice` is about.
        variants: all candidates that were evaluated, in order, if there are several.
        cut_short: why the job stops before the round's other variants are evaluated; None: all are.
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
    variants: tuple[EvaluatedVariant, ...] = ()
    cut_short: Stop | None = None

    @property
    def evaluated(self) -> tuple[EvaluatedVariant, ...]:
        """The round's candidates with their outcomes, in the order in which they were evaluated."""
        if self.variants or self.source is None or self.outcome is None:
            return self.variants
        return (EvaluatedVariant(self.source, self.outcome, repeat_of=self.repeat_of),)


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
        for variant in entry.evaluated:
            new = EvaluatedCandidate(variant.source, variant.outcome, entry.number)
            if variant.repeat_of is None and replaces(new, bests[-1] if bests else None):
                bests.append(new)
    return bests


def leading_place(outcomes: Sequence[Outcome], repeats: Collection[int], best_hash: str | None) -> int:
    """The place of the candidate that stands for a round with several.

    It is one that could not be judged, for that ends the job; else the one that became the best; else one that passed,
    is new, and was the fastest beside the best; of equals the first.

    Args:
        outcomes: of the round's candidates, in order.
        repeats: the places of those that an earlier round had evaluated.
        best_hash: the candidate of the round that became the best last; None: there is none.
    """

    def rank(place: int) -> tuple[bool, bool, bool, bool, float, float]:
        own = outcomes[place]
        return (
            own.verdict in NOT_JUDGED,
            own.candidate_hash == best_hash,
            own.right,
            place not in repeats,
            own.over_champion or 0.0,
            own.speedup or 0.0,
        )

    return max(range(len(outcomes)), key=rank)


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
    if is_reliable_but_for_noise(best.outcome.tags) and not is_reliable_but_for_noise(new.outcome.tags):
        return False
    return new.outcome.right and len(new.source.split()) < SIMPLER * len(best.source.split())


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
        if entry.outcome.right:
            break
        failed += 1
    if failed == 0 or (best is not None and failed % (MAX_REPAIRS + 1) == 0):
        return best
    for entry in reversed(rounds):
        if entry.source is not None and entry.outcome is not None:
            return EvaluatedCandidate(entry.source, entry.outcome, entry.number)
    return None


def find_repeat(rounds: Sequence[Round], source: str) -> EvaluatedCandidate | None:
    """The identical file with its outcome and the round that evaluated it; None: there is none."""
    wanted = candidate_hash(source)
    for entry in rounds:
        for variant in entry.evaluated:
            if variant.repeat_of is None and variant.outcome.candidate_hash == wanted:
                return EvaluatedCandidate(variant.source, variant.outcome, entry.number)
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
    """The rounds as prompts show them, one object each. What a round has no value of is left out."""
    return [_history_entry(entry) for entry in rounds]


def read_over_best(entry: Mapping[str, JSON]) -> tuple[float, str] | None:
    """The speedup of a round over the best one of its time, and the decision; None: the entry has no such figure.

    Args:
        entry: the round as prompts show it. It may come from a prompt, so any content is read.
    """
    found = _OVER_BEST.fullmatch(str(entry.get("over_best_so_far", "")))
    return None if found is None else (float(found[1]), found[2])


def _history_entry(entry: Round) -> dict[str, JSON]:
    outcome = entry.outcome
    shown: dict[str, JSON] = {
        "round": entry.number,
        "verdict": outcome.verdict if outcome else NO_CANDIDATE if entry.problem else UNDER_WAY,
        "code": outcome.code if outcome else None,
        "speedup": outcome.speedup if outcome else None,
        "speedup_compile": outcome.speedup_compile if outcome else None,
        "change": entry.change,
    }
    if outcome is not None and outcome.over_champion is not None:
        shown["over_best_so_far"] = _over_best_text(outcome)
    if entry.variants:
        own, *_ = [each for each in entry.variants if each.source == entry.source]
        shown["variant"] = own.label
        shown["other_variants"] = [_variant_text(each) for each in entry.variants if each is not own]
    if entry.repeat_of is not None:
        shown["repeat_of_round"] = entry.repeat_of
    if outcome is not None and not outcome.passed:  # of one that was screened it says what is not shown
        shown["message"] = outcome.message[:300]
    elif entry.problem and not entry.source:
        shown["message"] = entry.problem[:300]
    return {name: value for name, value in shown.items() if value is not None}


def _variant_text(variant: EvaluatedVariant) -> str:
    """One line on a variant that does not stand for its round."""
    outcome = variant.outcome
    found = outcome.verdict if outcome.code is None else f"{outcome.verdict} ({outcome.code})"
    if outcome.over_champion is not None:
        found += f", {_over_best_text(outcome)} over the best so far"
    elif outcome.speedup is not None:
        found += f", {outcome.speedup:.3f} over eager"
    if variant.repeat_of is not None:
        found += f", the same file as in round {variant.repeat_of}"
    said = "" if outcome.passed else f": {outcome.message[:150]}"
    return f"{variant.label}: {found}{said}"


def _over_best_text(outcome: Outcome) -> str:
    return f"{outcome.over_champion:.3f} ({outcome.decision})"
