"""The journal of a job: stores its events, and the rows that follow from them."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sqlalchemy.orm import Session

from agents.protocols import Event, Outcome
from agents.replay import event_identity
from agents.stop_rules import is_better
from db.evaluations import results, retractions
from db.jobs import jobs
from db.records import EvaluationRecord, LlmCall, Owner
from db.store import Store
from evaluator.evaluation import Comparison
from service.jobs.liveness import require_owned
from service.jobs.persistence import comparison_fields
from service.jobs.phase_notes import PHASE, PhaseNotes
from tasks.outcomes import NOT_JUDGED, RIGHT


def is_better_record(new: EvaluationRecord, best: EvaluationRecord | None) -> bool:
    """Whether `new` replaces `best`, or is good enough to be the first."""
    return is_better(_ranked(new), None if best is None else _ranked(best))


def _ranked(kept: EvaluationRecord) -> Outcome:
    """The part of an evaluation that decides which of two is better."""
    measurements = kept.measurements
    return Outcome(
        kept.candidate_hash,
        kept.verdict,
        tags=kept.tags,
        speedup=measurements.speedup,
        speedup_low=measurements.speedup_low,
        speedup_high=measurements.speedup_high,
        **comparison_fields(Comparison.from_json(kept.result.get("champion"))),
    )


Observer = Callable[[Event], None]
"""Is told of every event after it was stored, and of `step` events (data: text) that are not stored."""

_KEPT_ELSEWHERE = {"candidate": ("source",), "llm_call": ("messages", "reply", "reasoning", "tool_calls")}


class Journal:
    """The `record` callable of one job; several threads may call it.

    Args:
        store: the store.
        job_id: the job.
        observer: called with each event after it was stored.
        past: events that are stored already; a resumed job passes them again.
        owner: if given, nothing is written once another process has the job.
        write: performs a write, which may fail with a StoreError; it may try more than once.
        where: what is noted of the place of the job's evaluations (`service.jobs.phase_notes.place_of`).
    """

    def __init__(
        self,
        store: Store,
        job_id: int,
        observer: Observer,
        past: Iterable[Event] = (),
        *,
        owner: Owner | None = None,
        write: Callable[[Callable[[], None]], None] = lambda action: action(),
        where: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._observer = observer
        self._past = Counter(event_identity(event) for event in past)
        self._owner = owner
        self._write = write
        self._lock = threading.RLock()
        self._phases = PhaseNotes(self._store_phase, where)
        self.round = 0

    def __call__(self, event: Event) -> None:
        """Store an event unless it is stored. It is durable when this returns.

        Raises:
            JobLost: another process has the job now.
        """
        with self._lock:
            self.round = event.round
            if event.kind in ("evaluation_started", "proof_started"):
                self._phases.begin()
            own = event_identity(event)
            if own is not None and self._past[own] > 0:
                self._past[own] -= 1
            else:
                self._write(lambda: self._store_new(event))
            self._observer(event)

    def _store_new(self, event: Event) -> None:
        with self._store.write() as session:
            if self._owner is not None:
                require_owned(session, self._job_id, self._owner)
            bulky = _KEPT_ELSEWHERE.get(event.kind, ())
            kept = {key: value for key, value in event.data.items() if key not in bulky}
            results.add_event(session, self._job_id, event.kind, event.round, kept)
            self._keep_rows(session, event)

    def progress(self, text: str) -> None:
        """Tell the observer what is going on, in a few words, and store the phase that they tell of."""
        with self._lock:
            self._phases.read_line(text)
            self._observer(Event("step", self.round, {"text": text}))

    def _store_phase(self, data: Mapping[str, Any]) -> None:
        with self._store.write() as session:
            if self._owner is not None:
                require_owned(session, self._job_id, self._owner)
            results.add_event(session, self._job_id, PHASE, self.round, data)

    def _keep_rows(self, session: Session, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        job_id, number = self._job_id, event.round
        match event.kind:
            case "round_started":
                results.add_round(session, job_id, number)
            case "candidate":
                results.add_candidate(
                    session, job_id, round_number=number, candidate_hash=data["hash"], source=data["source"]
                )
            case "llm_call":
                results.add_llm_call(session, job_id, _llm_call(number, data))
                self._count(session)
            case "advice":
                results.set_advice(session, job_id, number, data)
            case "best":
                self._keep_best(session, data["hash"])
            case "proved" if data["verdict"] in RIGHT:
                jobs.set_best(session, job_id, data["evaluation_id"])
            case "proved" if data["verdict"] not in NOT_JUDGED:
                retractions.choose_best(session, job_id, is_better_record)
            case "round_done":
                jobs.add_finished_round(session, job_id)
            case "job_stopped":
                jobs.set_unsettled(session, job_id, float(data.get("unsettled_usd") or 0.0))

    def _keep_best(self, session: Session, digest: str) -> None:
        """Store that a candidate is the best one now, unless an earlier run of the job had an even better one."""
        new = results.find_evaluation(session, self._job_id, digest, trial=True)
        if new is None:
            return
        best = jobs.get_job(session, self._job_id).best_evaluation_id
        kept = None if best is None else results.get_evaluation(session, best)
        # A candidate that was timed beside the kept one replaces it: the agents say that it is better, or as good and
        # simpler.
        beside = kept is not None and _ranked(new).champion_hash == kept.candidate_hash
        if beside or is_better_record(new, kept):
            jobs.set_best(session, self._job_id, new.id)

    def _count(self, session: Session) -> None:
        session.flush()
        cost_usd, prompt_tokens, completion_tokens = results.llm_usage(session, self._job_id)
        jobs.set_spent(session, self._job_id, cost_usd=cost_usd, tokens=prompt_tokens + completion_tokens)


def _llm_call(number: int, data: Mapping[str, Any]) -> LlmCall:
    return LlmCall(
        round=number,
        model=data["model"],
        role=data["role"],
        purpose=data["purpose"],
        messages=data["messages"],
        reply=data["reply"],
        prompt_tokens=data["prompt_tokens"],
        completion_tokens=data["completion_tokens"],
        cost_usd=data["cost_usd"],
        latency_s=data["latency_s"],
        key=data["key"],
        reasoning=data["reasoning"],
        reasoning_tokens=data["reasoning_tokens"],
        tool_calls=data["tool_calls"],
    )
