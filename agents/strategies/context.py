"""What every strategy works with: the steps of a round, each recorded as it happens and checked against the budget."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agents.errors import LLMError
from agents.history import Round, Subject, best_of, find_repeat
from agents.llm.ledger import Ledger
from agents.prompting.builder import Brief, judge_messages, judge_request
from agents.prompting.coder import Draft, write_candidate
from agents.prompting.judge import advise
from agents.prompting.parse import Advice
from agents.protocols import JSON, Builds, Evaluate, Event, Message, Outcome, Past, Record
from agents.stop_rules import Stop, StopReason, StopRules, is_better, stop_after, stop_for
from tasks.outcomes import NO_CANDIDATE, NOT_JUDGED, candidate_hash

FIRST_CHANGE = "first candidate"


@dataclass(frozen=True)
class Branch:
    """A round written beside others: its draft, or why the models gave none."""

    number: int
    draft: Draft | LLMError
    change: str
    parent: int | None = None
    advice: Advice | None = None


@dataclass(frozen=True)
class SearchResult:
    """How a strategy went: its rounds in order, why it stopped, and figures of its own for the job's summary."""

    rounds: tuple[Round, ...]
    stop: Stop
    summary: Mapping[str, JSON] | None = None


class Strategy(Protocol):
    """Searches for candidates until a stop rule holds.

    It must do the same again from the same replies and outcomes, in whatever order those come in: a job that was
    killed is run again from its beginning, and its ledger answers what was done.
    """

    def __call__(self, context: "SearchContext") -> SearchResult:
        """Run to the end."""
        ...


class SearchContext:
    """The models, the evaluator and the record of one job."""

    def __init__(
        self,
        *,
        brief: Brief,
        rules: StopRules,
        coder_model: str,
        judge_model: str,
        seed_model: str | None,
        coder_is_deterministic: bool,
        ledger: Ledger,
        evaluate: Evaluate,
        builds: Builds,
        record: Record,
        should_stop: Callable[[], bool],
        past: Past,
    ) -> None:
        self.brief = brief
        self.rules = rules
        self.coder_model = coder_model
        self.judge_model = judge_model
        self.seed_model = seed_model
        self.coder_is_deterministic = coder_is_deterministic  # gives the same answer to the same question
        self.ledger = ledger
        self.should_stop = should_stop
        self._evaluate = evaluate
        self._builds = builds
        self._record = record
        self._evaluated = set(past.evaluated)
        self._prebuilt: set[str] = set()  # candidates that are built ahead
        self._longest_s = 0.0
        self._evaluation_lock = threading.Lock()  # a device measures one candidate at a time

    def start_round(self, number: int, request: str, subject: Subject | None) -> None:
        """Record that a round begins."""
        parent = subject.round if subject else None
        self._record(Event("round_started", number, {"request": request, "parent": parent}))

    def write(
        self,
        number: int,
        messages: Sequence[Message],
        *,
        request: str,
        subject: Subject | None,
        model: str | None = None,
    ) -> Draft:
        """The Coder's candidate for a round; `subject` is the one that the prompt shows.

        Raises:
            LLMError: no reply to work with, or no budget for one.
        """
        return write_candidate(
            self.ledger,
            model or self.coder_model,
            messages,
            base=subject.source if subject else None,
            purpose=request,
            round_number=number,
        )

    def write_in_parallel(
        self, number: int, messages: Sequence[Message], *, request: str, subject: Subject | None
    ) -> Draft:
        """As `write`, for a candidate that others are written beside: it is built while they are.

        Raises:
            LLMError: no reply to work with, or no budget for one.
        """
        draft = self.write(number, messages, request=request, subject=subject)
        if draft.source is not None:
            digest = candidate_hash(draft.source)
            if digest not in self._evaluated | self._prebuilt:
                self._prebuilt.add(digest)
                self._builds.start(draft.source)
        return draft

    def finish_round(
        self, number: int, draft: Draft, rounds: Sequence[Round], *, change: str, parent: int | None = None
    ) -> Round:
        """Evaluate a round's candidate, unless one of `rounds` had the identical file or there is none.

        Raises:
            BudgetTooSmall: no evaluation is left.
            Exception: whatever the evaluator raises.
        """
        if draft.source is None:
            self._record(Event("round_done", number, {"verdict": NO_CANDIDATE}))
            return Round(number, change, problem=draft.problem, parent=parent)
        digest = candidate_hash(draft.source)
        repeat = find_repeat(rounds, draft.source)
        repeat_of = repeat.number if repeat else None
        data: dict[str, JSON] = {"hash": digest, "source": draft.source, "change": change, "repeat_of_round": repeat_of}
        self._record(Event("candidate", number, data))
        remembered = repeat.outcome if repeat else None
        outcome = remembered or self.evaluate(number, draft.source)
        self._record(Event("evaluated", number, {**outcome.to_json(), "repeat_of_round": repeat_of}))
        best = best_of(rounds)
        if is_better(outcome, best.outcome if best else None):
            self._record(Event("best", number, {"hash": digest, "speedup": outcome.speedup}))
        self._record(Event("round_done", number, {"verdict": outcome.verdict}))
        return Round(number, change, draft.source, outcome, repeat_of=repeat_of, parent=parent)

    def finish_branches(
        self, branches: Sequence[Branch], rounds: tuple[Round, ...], *, plateau: bool
    ) -> tuple[tuple[Round, ...], Stop | None]:
        """Evaluate what was written side by side, in order; a branch without a reply ends the job once that is done."""
        failed: Stop | None = None
        if not self.should_stop():
            self._builds.finish(self.ledger.purse.time_left_s)
        for branch in branches:
            if self.should_stop():
                break
            if isinstance(branch.draft, LLMError):
                failed = failed or stop_for(branch.draft)
                continue
            try:
                entry = self.finish_round(
                    branch.number, branch.draft, rounds, change=branch.change, parent=branch.parent
                )
            except LLMError as error:
                failed = stop_for(error)
                break
            rounds = (*rounds, replace(entry, advice=branch.advice))
            if entry.outcome is not None and entry.outcome.verdict in NOT_JUDGED:
                break  # it says nothing about the candidate, and the next one would fare no better
        return rounds, failed or self.stop_now(rounds, plateau=plateau)

    def evaluate(self, number: int, source: str) -> Outcome:
        """The evaluator's word on a candidate, counted against the budget unless an earlier run had it.

        Raises:
            BudgetTooSmall: no evaluation is left.
            Exception: whatever the evaluator raises.
        """
        digest = candidate_hash(source)
        with self._evaluation_lock:
            if digest not in self._evaluated:
                self.ledger.purse.take_evaluation("evaluation", self._longest_s)
                self._evaluated.add(digest)
            self._record(Event("evaluation_started", number, {"hash": digest}))
            outcome = self._evaluate(source)
            self._longest_s = max(self._longest_s, outcome.took_s)
            return outcome

    def evaluations_left(self, rounds: Sequence[Round]) -> int | None:
        """How many more candidates may be evaluated after these rounds; None: no limit."""
        limit = self.ledger.purse.budget.evaluations
        if limit is None:
            return None
        return max(limit - len({entry.outcome.candidate_hash for entry in rounds if entry.outcome}), 0)

    def advise(self, number: int, subject: Subject, rounds: Sequence[Round], *, note: str = "") -> Advice | None:
        """The Judge's advice on a candidate, or None if nothing usable came; `note` is the platform's word to it.

        Raises:
            LLMError: no reply to work with, or no budget for one.
        """
        mode = judge_request(subject)
        messages = judge_messages(self.brief, subject, rounds, note=note)
        advice = advise(self.ledger, self.judge_model, messages, subject.outcome, purpose=mode, round_number=number)
        if advice is not None:
            about = {"mode": mode, "subject_hash": subject.outcome.candidate_hash}
            self._record(Event("advice", number, {**advice.to_json(), **about}))
        return advice

    def stop_now(self, rounds: Sequence[Round], *, plateau: bool = True) -> Stop | None:
        """The rule that ends the job here, if any."""
        if self.should_stop():
            return Stop(StopReason.CANCELLED, "cancelled")
        rules = self.rules if plateau else replace(self.rules, plateau_rounds=0)
        stop = stop_after(rules, [entry.outcome for entry in rounds])
        if stop is None and self.evaluations_left(rounds) == 0:
            return Stop(StopReason.BUDGET, "all evaluations of the budget are used")
        return stop
