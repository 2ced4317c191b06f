"""One job in one process: from the moment that it is ours to its end."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agents.job import JobResult, JobSpec, run_job
from agents.llm.models import is_builtin
from agents.protocols import LLM, NO_PREBUILDS, Outcome, ResumeState
from agents.stop_rules import StopReason
from agents.strategies.registry import SHOWS_PROFILES
from db.errors import StoreError
from db.evaluations import results, retractions
from db.jobs import job_queue, jobs
from db.records import EvaluationRecord, JobRecord, JobStatus, Owner
from db.store import Store
from evaluator.evaluation import Evaluation
from evaluator.platforms import Platform
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken, cancel_when
from service.errors import JobLost
from service.evaluation_context import EvaluationContext
from service.jobs.export import Exported
from service.jobs.journal import Journal, is_better_record
from service.jobs.liveness import job_lost, require_run_by
from service.jobs.persistence import keep_evaluation, outcome_of
from service.jobs.prebuild import Prebuilder
from service.jobs.query import cancel_requested, end_job, get_job, last_stop, read_events
from tasks.outcomes import Verdict, candidate_hash

SANDBOX_UNAVAILABLE = "sandbox_unavailable"
INTERRUPTED = "interrupted"

_NOT_THE_JOBS_FAULT = (INTERRUPTED, SANDBOX_UNAVAILABLE)

_STATUS_OF_REASON = {
    StopReason.MODEL_UNAVAILABLE: JobStatus.FAILED,
    StopReason.LLM_ERROR: JobStatus.FAILED,
    StopReason.TASK_INVALID: JobStatus.FAILED,
    StopReason.SANDBOX_ERROR: JobStatus.FAILED,
    StopReason.CANCELLED: JobStatus.CANCELLED,
    SANDBOX_UNAVAILABLE: JobStatus.FAILED,
    INTERRUPTED: JobStatus.INTERRUPTED,
}


@dataclass(frozen=True)
class JobReport:
    """How a job ended: `best` and `exported` are None where no candidate passed, the latter also before it is written.

    `unsettled_usd` is the most that calls may have cost whose reply was lost, `unpriced_calls` counts those whose
    price nobody knew; `summary` holds figures of the strategy's own (pass@k).
    """

    job: JobRecord
    best: EvaluationRecord | None
    exported: Exported | None
    stop_reason: str
    stop_detail: str
    unsettled_usd: float
    unpriced_calls: int
    summary: Mapping[str, Any]


class JobEvaluator(Protocol):
    """Evaluates a candidate of the job and keeps what came out, here or on another machine."""

    def __call__(self, source: str, *, round_number: int, profile: bool) -> EvaluationRecord:
        """The evaluation as it is in the store.

        Raises:
            Cancelled: cancellation was requested before there was a result.
            SandboxUnavailable: nothing can be evaluated.
        """
        ...

    def prepare(self) -> None:
        """Have what the next evaluation needs made ready, while its candidate is being written."""
        ...


class LocalEvaluator:
    """Evaluates on this host's own device."""

    def __init__(
        self,
        store: Store,
        job_id: int,
        owner: Owner,
        context: EvaluationContext,
        step: Callable[[str], None],
        cancel: CancelToken,
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._owner = owner
        self._context = context
        self._step = step
        self._cancel = cancel

    def __call__(self, source: str, *, round_number: int, profile: bool) -> EvaluationRecord:
        """As `JobEvaluator`."""
        evaluation = self._context.evaluate(source, step=self._step, cancel=self._cancel, profile=profile)
        with self._store.write() as session:
            require_run_by(session, self._job_id, self._owner)
            evaluation_id = keep_evaluation(
                session, self._job_id, self._context, source, evaluation, round_number=round_number
            )
            return results.get_evaluation(session, evaluation_id)

    def prepare(self) -> None:
        """As `JobEvaluator`."""
        self._context.prepare()


class JobRun:
    """A job that `owner` has claimed. `llm` answers its models, `evaluator` evaluates its candidates.

    With a `worker_id` it is one of the queue: what ends for reasons of this machine goes back in line. `builds` are
    made ahead on this host, where it is the one that will evaluate.
    """

    def __init__(
        self,
        store: Store,
        job_id: int,
        owner: Owner,
        *,
        spec: JobSpec,
        journal: Journal,
        evaluator: JobEvaluator,
        platform: Platform,
        llm: LLM,
        cancel: CancelToken,
        worker_id: str | None = None,
        builds: Prebuilder | None = None,
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._owner = owner
        self._spec = spec
        self._journal = journal
        self._evaluator = evaluator
        self._platform = platform
        self._llm = llm
        self._cancel = cancel
        self._worker_id = worker_id
        self._builds = builds

    def run(self, resume_state: ResumeState) -> JobReport:
        """Work until the job ends or is stopped; its row says how, whatever happens here but a kill.

        Raises:
            StoreError: the store is gone; the job can be resumed.
            JobLost: someone else has the job now.
        """
        try:
            with (
                contextlib.nullcontext() if self._builds is None else contextlib.closing(self._builds),
                cancel_when(lambda: cancel_requested(self._store, self._job_id), self._cancel, "cancelled"),
            ):
                reason, detail = self._work(resume_state)
        except KeyboardInterrupt:
            self._finish(JobStatus.INTERRUPTED, INTERRUPTED, "")
            raise
        except (StoreError, JobLost):
            raise
        except BaseException as error:
            self._finish(JobStatus.FAILED, "error", f"{type(error).__name__}: {error}")
            raise
        if self._cancel.requested() and self._cancel.reason is not None:
            reason, detail = self._cancel.reason, f"in round {self._journal.round}"
        status = _STATUS_OF_REASON.get(reason, JobStatus.DONE)
        if not self._finish(status, reason, detail):
            raise job_lost(self._job_id)
        job = get_job(self._store, self._job_id)
        best = self._best(job)
        end = last_stop(read_events(self._store, job.id))
        return JobReport(job, best, None, reason, detail, end.unsettled_usd, end.unpriced_calls, end.summary)

    def _work(self, resume_state: ResumeState) -> tuple[str, str]:
        """Why the agents stopped, and one line of detail."""
        self._evaluator.prepare()
        try:
            result = run_job(
                self._spec,
                evaluate=self._evaluate,
                prebuilds=self._builds or NO_PREBUILDS,
                record=self._journal,
                llm=self._llm,
                should_stop=self._cancel.requested,
                resume_state=resume_state,
            )
        except Cancelled:
            return self._cancel.reason or "cancelled", ""
        except SandboxUnavailable as error:
            return SANDBOX_UNAVAILABLE, str(error)
        self._keep_end(result)
        return str(result.stop_reason), result.stop_detail

    def _keep_end(self, result: JobResult) -> None:
        """What the whole course says counts, also where events of an earlier run stood in another order."""
        with self._store.write() as session:
            require_run_by(session, self._job_id, self._owner)
            jobs.set_rounds_done(session, self._job_id, result.rounds_done)
            best = result.best
            if best is not None and not jobs.set_best(session, self._job_id, best.evaluation_id):
                retractions.choose_best(session, self._job_id, is_better_record)

    def _evaluate(self, source: str) -> Outcome:
        """The agents' `evaluate`: a verdict that is in the store counts, a new one is kept before they hear of it."""
        digest = candidate_hash(source)
        with self._store.read() as session:
            kept = results.find_evaluation(session, self._job_id, digest)
        if kept is None or kept.verdict == Verdict.SANDBOX_ERROR:
            kept = self._evaluator(source, round_number=self._journal.round, profile=self._shows_profiles())
            if self._journal.round < self._spec.rounds:
                self._evaluator.prepare()
        # As it is in the store: when the job is taken up again, prompts must be the same to the letter.
        evaluation, evaluation_id = Evaluation.from_json(kept.result), kept.id
        return outcome_of(evaluation, self._platform, candidate_hash=digest, evaluation_id=evaluation_id)

    def _shows_profiles(self) -> bool:
        """Whether a language model will look at the profile of the candidate of this round."""
        spec = self._spec
        looks = spec.strategy in SHOWS_PROFILES and not is_builtin(spec.judge_model or spec.model)
        return looks and self._journal.round < spec.rounds

    def _best(self, job: JobRecord) -> EvaluationRecord | None:
        if job.best_evaluation_id is None:
            return None
        with self._store.read() as session:
            return results.get_evaluation(session, job.best_evaluation_id)

    def _finish(self, status: JobStatus, reason: str, detail: str) -> bool:
        """End the job, or put it back in line; False if it is others' by now."""
        job_id, worker_id, number = self._job_id, self._worker_id, self._journal.round
        with self._store.write() as session:
            if worker_id is None or reason not in _NOT_THE_JOBS_FAULT:
                return end_job(
                    session, job_id, self._owner, status=status, reason=reason, detail=detail, round_number=number
                )
            if not job_queue.requeue_job(session, job_id, worker_id=worker_id):
                return False
            results.add_event(session, job_id, "ended", number, {"reason": reason, "detail": detail})
            return True
