"""The steps that every strategy is made of: asking Coder and Judge, evaluating, and recording each of it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from agents.history import (
    EvaluatedCandidate,
    EvaluatedVariant,
    Round,
    best_of,
    find_repeat,
    leading_place,
    replaces,
)
from agents.llm.ledger import Ledger
from agents.prompting.builder import Brief, judge_messages, judge_request
from agents.prompting.citations import evidence_checker
from agents.prompting.parse import Advice, ReplyError, Variant, Written, extract_advice, extract_candidates
from agents.protocols import (
    JSON,
    BudgetTooSmall,
    Evaluate,
    Event,
    LLMError,
    Message,
    Outcome,
    Prebuilds,
    Record,
    Reply,
    ResumeState,
)
from agents.stop_rules import Stop, StopReason, StopRules, stop_after, stop_for_error
from tasks.outcomes import NO_CANDIDATE, NOT_JUDGED, candidate_hash

MAX_REPLIES = 3  # to one request: a reply that cannot be used is sent back at most twice
FIRST_CHANGE = "first candidate"

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Draft:
    """What the Coder wrote, not evaluated yet: a candidate, or variants of one idea.

    `problem` says what was wrong with the Coder's last reply, or with variants that were left out.
    """

    variants: tuple[Variant, ...]
    problem: str = ""


@dataclass(frozen=True)
class Branch:
    """One of several rounds that are written in parallel: its draft, or the error that ended it."""

    number: int
    draft: Draft | LLMError
    change: str
    parent: int | None = None
    advice: Advice | None = None


@dataclass(frozen=True)
class SearchResult:
    """What a strategy gives back: its rounds in order, why it stopped, and figures of its own for the job's summary."""

    rounds: tuple[Round, ...]
    stop: Stop
    summary: Mapping[str, JSON] | None = None


class Strategy(Protocol):
    """Searches for candidates until a stop rule holds.

    A strategy must be deterministic: the same replies and outcomes lead to the same requests, in whatever order they
    arrive. A job that was killed is run again from its beginning, and its ledger answers the calls that it had made.
    """

    def __call__(self, context: "SearchContext") -> SearchResult:
        """Run to the end."""
        ...


class SearchContext:
    """What a strategy works with: the models, the evaluator and the record of one job.

    Args:
        brief: the part of prompts that stays the same.
        rules: when the job stops.
        coder_model: LiteLLM's name of the Coder's model.
        judge_model: LiteLLM's name of the Judge's model.
        seed_model: the model whose candidate is round 1; None: no seed.
        coder_is_deterministic: whether the Coder's model answers the same prompt always alike.
        ledger: calls the models.
        evaluate: evaluates a candidate's source.
        prebuilds: builds candidates before their evaluation.
        record: stores events.
        should_stop: whether the job was cancelled.
        resume_state: what earlier runs of the job recorded.
    """

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
        prebuilds: Prebuilds,
        record: Record,
        should_stop: Callable[[], bool],
        resume_state: ResumeState,
    ) -> None:
        self.brief = brief
        self.rules = rules
        self.coder_model = coder_model
        self.judge_model = judge_model
        self.seed_model = seed_model
        self.coder_is_deterministic = coder_is_deterministic
        self.ledger = ledger
        self.should_stop = should_stop
        self._evaluate = evaluate
        self._prebuilds = prebuilds
        self._record = record
        self._evaluated = set(resume_state.evaluated)
        self._prebuilt: set[str] = set()
        self._longest_evaluation_s = 0.0
        self._evaluation_lock = threading.Lock()  # a device measures one candidate at a time

    def start_round(self, number: int, request: str, parent: EvaluatedCandidate | None) -> None:
        """Record that a round begins; `parent` is the candidate that it changes, None if it starts from nothing."""
        self._record(Event("round_started", number, {"request": request, "parent": parent.round if parent else None}))

    def write(
        self,
        number: int,
        messages: Sequence[Message],
        *,
        request: str,
        base: EvaluatedCandidate | None,
        model: str | None = None,
        variants: bool = True,
    ) -> Draft:
        """Ask for a candidate, or variants. A reply without a usable one is sent back with the reason, MAX_REPLIES - 1
        times.

        Args:
            number: the round.
            messages: the prompt.
            request: what the prompt requests, for events.
            base: the candidate that the prompt shows, which edits in a reply apply to.
            model: asked in place of the Coder's model.
            variants: whether all variants in the reply are wanted, or the first.

        Raises:
            LLMError: as `Ledger.ask`.
        """

        def read(reply: Reply) -> Written:
            return extract_candidates(reply.text, base=base.source if base else None, truncated=reply.truncated)

        written, problem = self._ask(number, "coder", model or self.coder_model, messages, request, read)
        if written is None:
            return Draft((), problem)
        return Draft(written.variants, written.problem) if variants else Draft((Variant(written.variants[0].source),))

    def write_in_parallel(
        self,
        number: int,
        messages: Sequence[Message],
        *,
        request: str,
        base: EvaluatedCandidate | None,
        variants: bool = True,
    ) -> Draft:
        """As `write`, for one of several candidates that are written at the same time. Builds start at once.

        Raises:
            LLMError: as `Ledger.ask`.
        """
        draft = self.write(number, messages, request=request, base=base, variants=variants)
        for variant in draft.variants:
            digest = candidate_hash(variant.source)
            if digest not in self._evaluated | self._prebuilt:
                self._prebuilt.add(digest)
                self._prebuilds.start(variant.source)
        return draft

    def finish_round(
        self, number: int, draft: Draft, rounds: Sequence[Round], *, change: str, parent: int | None = None
    ) -> Round:
        """Evaluate a round's draft and record the end of the round.

        If one of `rounds` had the identical file, its outcome is used. Variants are evaluated one after the other, each
        beside the best candidate at that moment. If the budget or a cancellation ends the job between two of them, the
        round holds those that were evaluated (`Round.cut_short`).

        Args:
            number: the round.
            draft: what the Coder wrote.
            rounds: the rounds before it.
            change: what the draft was meant to change, in one line.
            parent: the round whose candidate it changes.

        Raises:
            BudgetTooSmall: no evaluation is left, not even for the first candidate.
            Exception: whatever the evaluator raises.
        """
        if not draft.variants:
            self._record(Event("round_done", number, {"verdict": NO_CANDIDATE}))
            return Round(number, change, problem=draft.problem, parent=parent)
        repeats = [find_repeat(rounds, variant.source) for variant in draft.variants]
        for place, repeated in enumerate(repeats, start=1):
            self._record(Event("candidate", number, _candidate_data(draft, place, change, repeated)))
        cut_short: Stop | None = None
        best, best_hash = best_of(rounds), None
        evaluated: list[EvaluatedVariant] = []
        for variant, repeated in zip(draft.variants, repeats, strict=True):
            if evaluated and self.should_stop():
                cut_short = Stop(StopReason.CANCELLED, "cancelled before the next variant")
                break
            try:
                outcome = repeated.outcome if repeated else self.evaluate(number, variant.source, best)
            except BudgetTooSmall as error:
                if not evaluated:
                    raise
                cut_short = stop_for_error(error)
                break
            repeat_of = repeated.round if repeated else None
            self._record(Event("evaluated", number, {**outcome.to_json(), "repeat_of_round": repeat_of}))
            evaluated.append(EvaluatedVariant(variant.source, outcome, variant.label, repeat_of))
            new = EvaluatedCandidate(variant.source, outcome, number)
            if repeated is None and replaces(new, best):
                best, best_hash = new, outcome.candidate_hash
                data: dict[str, JSON] = {"hash": best_hash, "speedup": outcome.speedup, "tags": list(outcome.tags)}
                self._record(Event("best", number, data))
            if outcome.verdict in NOT_JUDGED:
                break  # the fault is the task's or the sandbox's, so the other variants would meet it, too
        places = {place for place, each in enumerate(evaluated) if each.repeat_of is not None}
        leading = evaluated[leading_place([each.outcome for each in evaluated], places, best_hash)]
        self._record(Event("round_done", number, {"verdict": leading.outcome.verdict}))
        return Round(
            number,
            change,
            leading.source,
            leading.outcome,
            repeat_of=leading.repeat_of,
            problem=draft.problem,
            parent=parent,
            variants=tuple(evaluated) if len(evaluated) > 1 else (),
            cut_short=cut_short,
        )

    def finish_branches(
        self, branches: Sequence[Branch], rounds: tuple[Round, ...], *, plateau: bool
    ) -> tuple[tuple[Round, ...], Stop | None]:
        """Evaluate branches in order, once all of their prebuilds have ended.

        A branch that failed ends the job after the others were evaluated.

        Args:
            branches: what was written in parallel.
            rounds: the rounds before them.
            plateau: whether the plateau rule applies.

        Returns:
            All rounds, and why the job stops here; None: it goes on.

        Raises:
            Exception: whatever the evaluator raises.
        """
        failed: Stop | None = None
        if not self.should_stop():
            self._prebuilds.wait(self.ledger.account.time_left_s)
        for branch in branches:
            if self.should_stop():
                break
            if isinstance(branch.draft, LLMError):
                failed = failed or stop_for_error(branch.draft)
                continue
            try:
                entry = self.finish_round(
                    branch.number, branch.draft, rounds, change=branch.change, parent=branch.parent
                )
            except LLMError as error:
                failed = stop_for_error(error)
                break
            rounds = (*rounds, replace(entry, advice=branch.advice))
            if entry.cut_short is not None:
                break
            if entry.outcome is not None and entry.outcome.verdict in NOT_JUDGED:
                break  # the fault is the task's or the sandbox's, so the other branches would meet it, too
        return rounds, failed or self.stop_now(rounds, plateau=plateau)

    def evaluate(self, number: int, source: str, best: EvaluatedCandidate | None) -> Outcome:
        """Evaluate a candidate against the best one. It counts unless an earlier run of the job had evaluated it.

        Raises:
            BudgetTooSmall: no evaluation is left.
            Exception: whatever the evaluator raises.
        """
        digest = candidate_hash(source)
        with self._evaluation_lock:
            if digest not in self._evaluated:
                self.ledger.account.charge_evaluation(self._longest_evaluation_s)
                self._evaluated.add(digest)
            self._record(Event("evaluation_started", number, {"hash": digest}))
            outcome = self._evaluate(source, best.source if best else None)
            self._longest_evaluation_s = max(self._longest_evaluation_s, outcome.took_s)
            return outcome

    def evaluations_left(self, rounds: Sequence[Round]) -> int | None:
        """How many more candidates may be evaluated after these rounds; None: no limit."""
        limit = self.ledger.account.budget.evaluations
        if limit is None:
            return None
        used = {variant.outcome.candidate_hash for entry in rounds for variant in entry.evaluated}
        return max(limit - len(used), 0)

    def advise(
        self, number: int, candidate: EvaluatedCandidate, rounds: Sequence[Round], *, note: str = ""
    ) -> Advice | None:
        """Ask the Judge for advice on a candidate.

        A reply that breaks the schema, or cites what the prompt does not hold, is sent back with the reason,
        MAX_REPLIES - 1 times.

        Args:
            number: the round.
            candidate: the candidate to judge.
            rounds: the rounds so far.
            note: one more remark in the prompt.

        Returns:
            The advice; None if no reply was usable. The Coder then goes on without advice.

        Raises:
            LLMError: as `Ledger.ask`.
        """
        check_evidence = evidence_checker(candidate.outcome)

        def read(reply: Reply) -> Advice:
            return extract_advice(reply.text, check_evidence=check_evidence, truncated=reply.truncated)

        mode = judge_request(candidate)
        messages = judge_messages(self.brief, candidate, rounds, note=note)
        advice, _ = self._ask(number, "judge", self.judge_model, messages, mode, read)
        if advice is not None:
            about = {"mode": mode, "subject_hash": candidate.outcome.candidate_hash}
            self._record(Event("advice", number, {**advice.to_json(), **about}))
        return advice

    def stop_now(self, rounds: Sequence[Round], *, plateau: bool = True) -> Stop | None:
        """Why the job stops after these rounds; None: it goes on. `plateau`: whether the plateau rule applies."""
        if self.should_stop():
            return Stop(StopReason.CANCELLED, "cancelled")
        if rounds and rounds[-1].cut_short is not None:
            return rounds[-1].cut_short
        rules = self.rules if plateau else replace(self.rules, plateau_rounds=0)
        best = best_of(rounds)
        # A strategy may leave numbers of rounds out, so the best one's place is not its number.
        best_at = next((place for place, entry in enumerate(rounds) if best and entry.number == best.round), None)
        stop = stop_after(rules, [entry.outcome for entry in rounds], best_at)
        if stop is None and self.evaluations_left(rounds) == 0:
            return Stop(StopReason.BUDGET, "all evaluations of the budget are used")
        return stop

    def _ask(
        self,
        number: int,
        role: str,
        model: str,
        messages: Sequence[Message],
        purpose: str,
        read: Callable[[Reply], Parsed],
    ) -> tuple[Parsed | None, str]:
        """What `read` makes of the first usable reply, or None and what was wrong with the last one."""
        conversation, problem = list(messages), ""
        for attempt in range(MAX_REPLIES):
            slot = f"{number}/{role}/{attempt}"
            reply = self.ledger.ask(slot, model, conversation, role=role, purpose=purpose, round_number=number)
            try:
                return read(reply), ""
            except ReplyError as error:
                problem = str(error)
            self.ledger.reject(role, problem, number)
            conversation = [
                *messages,
                Message("assistant", reply.text or "(an empty reply)"),
                Message("user", f"{problem} Answer again, whole, in the form that was asked for."),
            ]
        return None, problem


def _candidate_data(draft: Draft, place: int, change: str, repeated: EvaluatedCandidate | None) -> dict[str, JSON]:
    """The data of the event `candidate` for one of a draft's variants, which count from 1."""
    variant = draft.variants[place - 1]
    data: dict[str, JSON] = {
        "hash": candidate_hash(variant.source),
        "source": variant.source,
        "change": change,
        "repeat_of_round": repeated.round if repeated else None,
    }
    if len(draft.variants) == 1:
        return data
    return {**data, "variant": place, "variants": len(draft.variants), "label": variant.label}
