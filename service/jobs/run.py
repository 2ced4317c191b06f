"""Runs one job that this process owns, from the claim to its end."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlalchemy.orm import Session

from agents.job import JobResult, JobSpec, run_job
from agents.llm.models import is_builtin, only_builtin
from agents.memory import Memory, MemoryMode
from agents.protocols import LLM, NO_PREBUILDS, Event, Outcome, ResumeState
from agents.stop_rules import StopReason
from agents.strategies.registry import SHOWS_PROFILES
from db.changes import Changes
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
from service.evaluation_context import EvaluationContext, open_models
from service.jobs.batch_budget import allot_budget, finish_without_budget
from service.jobs.export import Exported
from service.jobs.journal import Journal, Observer, is_better_record
from service.jobs.liveness import job_lost, require_owned
from service.jobs.memory import MEMORY, recall, told_memory
from service.jobs.persistence import outcome_of, save_evaluation
from service.jobs.phase_notes import place_of
from service.jobs.prebuild import Prebuilder
from service.jobs.query import cancel_requested, end_job, get_job, last_end, load_resume_state, read_events
from service.jobs.spec import DEVICE_TEXT, prompts_of, spec_of, told_device_text
from tasks.outcomes import Verdict, candidate_hash

SANDBOX_UNAVAILABLE = "sandbox_unavailable"
INTERRUPTED = "interrupted"

_REQUEUED_REASONS = (INTERRUPTED, SANDBOX_UNAVAILABLE)
"""A job of the queue that ends for one of these goes back to the queue: the job is not at fault."""

_STATUS_OF_REASON = {
    StopReason.MODEL_UNAVAILABLE: JobStatus.FAILED,
    StopReason.LLM_ERROR: JobStatus.FAILED,
    StopReason.TASK_INVALID: JobStatus.FAILED,
    StopReason.SANDBOX_ERROR: JobStatus.FAILED,
    StopReason.CANCELLED: JobStatus.CANCELLED,
    SANDBOX_UNAVAILABLE: JobStatus.FAILED,
    INTERRUPTED: JobStatus.INTERRUPTED,
}


NOTHING_TO_WORK_WITH = ("model_unavailable", "sandbox_unavailable", "sandbox_error", "llm_error")
"""Reasons for which a job stops that say nothing of its op: there was no model or no sandbox to work with."""


@dataclass(frozen=True)
class JobReport:
    """How a job ended.

    Attributes:
        best: the best evaluation, or None if no candidate passed.
        exported: where the kernel was written; None before that, or if no candidate passed.
        unsettled_usd: the most that calls whose reply was lost may have cost.
        unpriced_calls: the number of calls whose price is unknown.
        summary: figures of the strategy, such as pass@k.
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
    """Evaluates candidates of a job, here or on another machine, and stores the results."""

    def __call__(
        self, source: str, *, round_number: int, profile: bool, trial: bool, champion: str | None
    ) -> EvaluationRecord:
        """The stored evaluation of a candidate.

        Args:
            source: the candidate.
            round_number: its round.
            profile: whether it is profiled as well.
            trial: whether it is enough to know whether it is better than `champion`.
            champion: the source of the best candidate so far; it is stored.

        Raises:
            Cancelled: cancellation was requested before there was a result.
            SandboxUnavailable: nothing can be evaluated.
        """
        ...

    def prepare(self) -> None:
        """Prepare for the next evaluation, while its candidate is being written."""
        ...


class LocalEvaluator:
    """Evaluates on this host's device."""

    def __init__(
        self,
        store: Store,
        job_id: int,
        owner: Owner,
        context: EvaluationContext,
        on_progress: Callable[[str], None],
        cancel: CancelToken,
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._owner = owner
        self._context = context
        self._on_progress = on_progress
        self._cancel = cancel

    def __call__(
        self, source: str, *, round_number: int, profile: bool, trial: bool, champion: str | None
    ) -> EvaluationRecord:
        """As `JobEvaluator`."""
        evaluation = self._context.evaluate(
            source,
            on_progress=self._on_progress,
            cancel=self._cancel,
            profile=profile,
            trial=trial,
            champion=champion,
        )
        with self._store.write() as session:
            require_owned(session, self._job_id, self._owner)
            evaluation_id = save_evaluation(
                session, self._job_id, self._context, source, evaluation, round_number=round_number
            )
            return results.get_evaluation(session, evaluation_id)

    def prepare(self) -> None:
        """As `JobEvaluator`."""
        self._context.prepare()


def claim_queued_job(
    session: Session,
    job_id: int,
    attempt: int,
    owner: Owner,
    options: Mapping[str, str],
    *,
    sandbox: str,
    worker_id: str | None = None,
) -> JobRecord | None:
    """Make a process the owner of a job of the queue, in the caller's transaction.

    Args:
        attempt: the attempt in which the job was found in the queue.
        options: what `MeasurementTarget.options_for` gives for the job.
        sandbox: the name of the sandbox that the job will run in.
        worker_id: the worker that claims it; None for a command.

    Returns:
        The job, or None if another process has taken it, or nothing is left of its batch's budget.
    """
    if not job_queue.take_job(session, job_id, attempt, owner, worker_id=worker_id, sandbox=sandbox):
        return None
    jobs.update_options(session, job_id, **options)
    if allot_budget(session, job_id) <= 0:
        finish_without_budget(session, job_id, owner)
        return None
    return jobs.get_job(session, job_id)


def run_claimed_job(
    store: Store,
    job_id: int,
    owner: Owner,
    context: EvaluationContext,
    *,
    observe: Observer,
    cancel: CancelToken,
    evaluator: JobEvaluator | None = None,
    prebuild: bool = True,
    worker_id: str | None = None,
    write: Callable[[Callable[[], None]], None] = lambda action: action(),
    changes: Changes | None = None,
) -> JobReport:
    """Run a job that `owner` has claimed, from where its earlier runs ended.

    Args:
        store: the store.
        job_id: the job.
        owner: the process that runs it.
        context: the job's task and settings, and this host's platform and sandbox.
        observe: called with each event.
        cancel: ends the job early.
        evaluator: evaluates the candidates; None: on this host's device.
        prebuild: whether candidates are built on this host before their evaluation.
        worker_id: the worker that runs it, if the job is one of the queue.
        write: performs writes of events, as `Journal` says.
        changes: reports changes of the store; without it the store is polled for a cancellation.

    Raises:
        StoreError: the store is gone; the job can be resumed.
        JobLost: another process has the job now.
    """
    with store.read() as session:
        job = jobs.get_job(session, job_id)
    events, resume_state = load_resume_state(store, job_id)
    journal = Journal(store, job_id, observe, events, owner=owner, write=write, where=place_of(context))
    journal.progress(f"job {job_id}: {context.task.id} in the {context.sandbox.name} sandbox")
    settings = context.settings
    told = told_device_text(job, begun=any(event.kind == "job_started" for event in events))
    memory = told_memory(events)

    def device_text() -> str:
        """What the job's models are told of the device: the same in all of its runs, for it is part of prompts."""
        if told is not None:
            return told
        reads = not only_builtin(settings.model, settings.judge_model)
        text = context.device_text(measure=reads, on_progress=journal.progress, cancel=cancel)
        write(lambda: _keep_device_text(store, job_id, owner, text))
        return text

    def known() -> Memory:
        """What its models are told of earlier jobs: the same in all of its runs, whatever happens to these."""
        return memory if memory is not None else _recall(store, job, context, journal)

    run = JobRun(
        store,
        job_id,
        owner,
        spec=spec_of(context.task, settings, device=str(job.options["device"])),
        device_text=device_text,
        memory=known,
        journal=journal,
        evaluator=evaluator or LocalEvaluator(store, job_id, owner, context, journal.progress, cancel),
        platform=context.platform,
        llm=open_models(
            context.settings, context, on_progress=journal.progress, cancel=cancel, resume_state=resume_state
        ),
        cancel=cancel,
        worker_id=worker_id,
        builds=Prebuilder(context, journal.progress) if prebuild else None,
        changes=changes,
    )
    return run.run(resume_state)


def _keep_device_text(store: Store, job_id: int, owner: Owner, text: str) -> None:
    with store.write() as session:
        require_owned(session, job_id, owner)
        jobs.update_options(session, job_id, **{DEVICE_TEXT: text})


def _recall(store: Store, job: JobRecord, context: EvaluationContext, journal: Journal) -> Memory:
    """Read what a job is told of earlier ones, and store it with the job before anything is paid for.

    If there is nothing to tell, no event says so: the job's option does.
    """
    settings = context.settings
    with store.read() as session:
        found = recall(
            session,
            context.task,
            mode=MemoryMode(settings.memory or MemoryMode.OFF),
            platform=settings.platform,
            device=str(job.options["device"]).partition("\n")[0],
            user=job.user,
            prompts=prompts_of(settings.platform),
        )
    if found:
        journal(Event(MEMORY, 0, found.to_json()))
    return found


class JobRun:
    """One run of a job that `owner` has claimed.

    Args:
        device_text: gives what prompts say of the device, before the first of them is written; None: what `spec` says.
        memory: gives what they say of earlier jobs, in the same way.
        llm: answers the models' calls.
        evaluator: evaluates the candidates.
        worker_id: set for a job of the queue. Such a job is queued again if it ends because of this machine.
        builds: builds candidates before their evaluation; None where another host evaluates them.
        changes: reports changes of the store; without it the store is polled for a cancellation.
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
        device_text: Callable[[], str] | None = None,
        memory: Callable[[], Memory] | None = None,
        worker_id: str | None = None,
        builds: Prebuilder | None = None,
        changes: Changes | None = None,
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
        self._device_text = device_text
        self._memory = memory
        self._worker_id = worker_id
        self._builds = builds
        self._changes = changes

    def run(self, resume_state: ResumeState) -> JobReport:
        """Work until the job ends or is cancelled. The job's row then says how it ended, unless this process is killed.

        Raises:
            StoreError: the store is gone; the job can be resumed.
            JobLost: another process has the job now.
        """
        try:
            with (
                contextlib.nullcontext() if self._builds is None else contextlib.closing(self._builds),
                cancel_when(
                    lambda: cancel_requested(self._store, self._job_id),
                    self._cancel,
                    "cancelled",
                    changes=self._changes,
                ),
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
        end = last_end(read_events(self._store, job.id))
        return JobReport(job, best, None, reason, detail, end.unsettled_usd, end.unpriced_calls, end.summary)

    def _work(self, resume_state: ResumeState) -> tuple[str, str]:
        """Run the agents; the reason why they stopped, and one line of detail."""
        try:
            spec = self._spec
            if self._device_text is not None:
                spec = replace(spec, device=self._device_text())
            if self._memory is not None:
                spec = replace(spec, memory=self._memory())
            self._evaluator.prepare()
            result = run_job(
                spec,
                evaluate=self._try,
                prove=self._prove,
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
        self._save_result(result)
        return str(result.stop_reason), result.stop_detail

    def _save_result(self, result: JobResult) -> None:
        """Store the agents' own result: events of an earlier run may have come in another order."""
        with self._store.write() as session:
            require_owned(session, self._job_id, self._owner)
            jobs.set_rounds_done(session, self._job_id, result.rounds_done)
            best = result.best
            if best is None or not jobs.set_best(session, self._job_id, best.evaluation_id):
                retractions.choose_best(session, self._job_id, is_better_record)

    def _try(self, source: str, champion: str | None) -> Outcome:
        """The agents' `evaluate`."""
        return self._evaluate(source, trial=True, champion=champion)

    def _prove(self, source: str) -> Outcome:
        """The agents' `prove`."""
        return self._evaluate(source, trial=False, champion=None)

    def _evaluate(self, source: str, *, trial: bool, champion: str | None) -> Outcome:
        """Evaluate a candidate. A stored verdict is used again; a new one is stored before it is returned."""
        digest = candidate_hash(source)
        with self._store.read() as session:
            kept = results.find_evaluation(session, self._job_id, digest, trial=trial)
        if kept is None or kept.verdict == Verdict.SANDBOX_ERROR:
            kept = self._evaluator(
                source,
                round_number=self._journal.round,
                profile=trial and self._shows_profiles(),
                trial=trial,
                champion=champion,
            )
            if trial:
                self._evaluator.prepare()
        # From the store: when the job is resumed, its prompts must be identical.
        evaluation, evaluation_id = Evaluation.from_json(kept.result), kept.id
        return outcome_of(evaluation, self._platform, candidate_hash=digest, evaluation_id=evaluation_id)

    def _shows_profiles(self) -> bool:
        """Whether a language model will read the profile of this round's candidate."""
        spec = self._spec
        looks = spec.strategy in SHOWS_PROFILES and not is_builtin(spec.judge_model or spec.model)
        return looks and self._journal.round < spec.rounds

    def _best(self, job: JobRecord) -> EvaluationRecord | None:
        if job.best_evaluation_id is None:
            return None
        with self._store.read() as session:
            return results.get_evaluation(session, job.best_evaluation_id)

    def _finish(self, status: JobStatus, reason: str, detail: str) -> bool:
        """End the job, or put it back into the queue; False if another process has it by now."""
        job_id, worker_id, number = self._job_id, self._worker_id, self._journal.round
        with self._store.write() as session:
            if worker_id is None or reason not in _REQUEUED_REASONS:
                return end_job(
                    session, job_id, self._owner, status=status, reason=reason, detail=detail, round_number=number
                )
            if not job_queue.requeue_job(session, job_id, worker_id=worker_id):
                return False
            results.add_event(session, job_id, "ended", number, {"reason": reason, "detail": detail})
            return True
