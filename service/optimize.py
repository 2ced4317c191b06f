"""Optimize one op: a job from its task to its exported best candidate, started or taken up again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.budget import Budget
from agents.job import JobResult, JobSpec, check_spec, run_job
from agents.ports import NO_PAST, Outcome, Past, Price
from agents.providers import is_builtin
from agents.replay import past_of_events
from agents.stopping import StopReason
from agents.strategies.choose import SHOWS_PROFILES
from db import jobs, results
from db.errors import StoreError
from db.records import EvaluationRecord, JobRecord, JobStatus, Owner
from db.store import Store
from evaluator.evaluation import Evaluation, candidate_hash
from sandbox.base import SandboxUnavailable
from service.convert import outcome_of
from service.errors import BadRequest
from service.export import Exported, check_target, export_job
from service.jobs import get_job, last_stop, read_events, stored_events, worked_s
from service.journal import Journal, Observer
from service.keeping import keep_evaluation, keep_task
from service.owner import this_process
from service.settings import Settings, read_key
from service.stopping import Stop, stop_when
from service.wiring import Bench, Stopped, only_builtin, open_bench, open_models
from tasks.load import find_task
from tasks.task import Task

SANDBOX_UNAVAILABLE = "sandbox_unavailable"

# What a job was asked for and must keep when it is taken up again, besides the columns of its row.
_OPTIONS = (
    *(
        "judge_model",
        "rounds",
        "seed",
        "plateau_rounds",
        "roofline_target",
        "api_base",
        "api_key_file",
        "image",
        "price",
    ),
    *("budget_usd", "budget_tokens", "budget_s", "budget_evaluations"),
)

_STATUS_OF_REASON = {
    StopReason.MODEL_UNAVAILABLE: JobStatus.FAILED,
    StopReason.LLM_ERROR: JobStatus.FAILED,
    StopReason.TASK_INVALID: JobStatus.FAILED,
    StopReason.SANDBOX_ERROR: JobStatus.FAILED,
    StopReason.CANCELLED: JobStatus.CANCELLED,
    SANDBOX_UNAVAILABLE: JobStatus.FAILED,
    "interrupted": JobStatus.INTERRUPTED,
}


@dataclass(frozen=True)
class JobReport:
    """How a job ended: `best` and `exported` are None where no candidate passed.

    `unsettled_usd` is the most that calls may have cost whose reply was lost; `summary` holds figures of the strategy's
    own (pass@k).
    """

    job: JobRecord
    best: EvaluationRecord | None
    exported: Exported | None
    stop_reason: str
    stop_detail: str
    unsettled_usd: float
    summary: Mapping[str, Any]


def optimize(
    ref: str, *, settings: Settings, store: Store, observe: Observer, stop: Stop, out: Path | None = None
) -> JobReport:
    """Find a faster kernel for the op that `ref` names, and export it to `out` (default: the job's folder).

    Raises:
        TaskError, BadRequest: what was asked for makes no sense; nothing was started.
        SandboxUnavailable: there is no sandbox to start in.
    """
    task = find_task(ref)
    if out is not None:
        check_target(out, keep=Path(ref))
    options: dict[str, Any] = {name: getattr(settings, name) for name in _OPTIONS}
    if settings.api_key_file is not None:
        read_key(settings.api_key_file)
        options["api_key_file"] = str(settings.api_key_file.expanduser().absolute())
    options |= {"ref": ref, "out": None if out is None else str(out.absolute())}
    with open_bench(task, settings, own_code_only=only_builtin(settings)) as bench:
        spec = _spec(bench, bench.platform.device().describe())
        options["device"] = spec.device  # prompts are the same when the job is taken up again
        owner = this_process()
        with store.write() as session:
            job_id = jobs.add_job(
                session,
                task_id=keep_task(session, task),
                kind="optimize",
                platform=bench.platform.name,
                sandbox=bench.sandbox.name,
                owner=owner,
                model=settings.model,
                strategy=settings.strategy,
                options=options,
            )
        return _Run(store, job_id, owner, bench, spec, Journal(store, job_id, observe), stop).run(NO_PAST)


def resume(job_id: int, *, settings: Settings, store: Store, observe: Observer, stop: Stop) -> JobReport:
    """Go on with a job that was interrupted, cancelled or failed: what it did and paid for stays done.

    Raises:
        NotInStore, BadRequest: there is no such job, it is done, or someone works on it.
        SandboxUnavailable: there is no sandbox to go on in.
    """
    job = get_job(store, job_id)
    if job.kind != "optimize":
        raise BadRequest(f"job {job_id} evaluated one candidate; there is nothing to resume, evaluate it again")
    if job.status is JobStatus.DONE:
        raise BadRequest(f"job {job_id} is done ({job.stop_reason}); `kernelwright jobs show {job_id}` shows it")
    settings = settings.model_copy(
        update={
            **{name: job.options.get(name) for name in _OPTIONS},
            "platform": job.platform,
            "model": job.model,
            "strategy": job.strategy,
            "sandbox": settings.sandbox or job.sandbox,
        }
    )
    kept = job.task
    task = Task(name=kept.name, source=kept.source, suite=kept.suite, category=kept.category, dtype=kept.dtype)
    events = read_events(store, job_id)
    if "device" not in job.options or any(event.kind == "llm_call" and "key" not in event.data for event in events):
        raise BadRequest(f"job {job_id} was begun by an earlier version, whose calls cannot be replayed; start it anew")
    with open_bench(task, settings, own_code_only=only_builtin(settings)) as bench:
        spec = _spec(bench, str(job.options["device"]))
        owner = this_process()
        with store.write() as session:
            if not jobs.claim_job(session, job_id, owner, sandbox=bench.sandbox.name):
                raise BadRequest(f"job {job_id} is being worked on; `kernelwright jobs cancel {job_id}` stops it")
        events = stored_events(store, job_id)  # whoever ran it before has written the last of them by now
        past = past_of_events(events, wall_s=worked_s(store, job_id))
        return _Run(store, job_id, owner, bench, spec, Journal(store, job_id, observe, events), stop).run(past)


class _Run:
    """One job in this process, from its claim to its end."""

    def __init__(
        self, store: Store, job_id: int, owner: Owner, bench: Bench, spec: JobSpec, journal: Journal, stop: Stop
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._owner = owner
        self._bench = bench
        self._spec = spec
        self._stop = stop
        self._journal = journal

    def run(self, past: Past) -> JobReport:
        self._journal.step(f"job {self._job_id}: {self._bench.task.id} in the {self._bench.sandbox.name} sandbox")
        try:
            with stop_when(self._cancel_requested, self._stop, "cancelled"):
                reason, detail = self._work(past)
        except KeyboardInterrupt:
            self._finish(JobStatus.INTERRUPTED, "interrupted", "")
            raise
        except BaseException as error:
            self._finish(JobStatus.FAILED, "error", f"{type(error).__name__}: {error}")
            raise
        if self._stop.requested() and self._stop.reason is not None:
            reason, detail = self._stop.reason, f"in round {self._journal.round}"
        status = _STATUS_OF_REASON.get(reason, JobStatus.DONE)
        self._finish(status, reason, detail)
        job = get_job(self._store, self._job_id)
        best = self._best(job)
        exported = None if best is None else self._export(job)
        end = last_stop(read_events(self._store, job.id))
        return JobReport(job, best, exported, reason, detail, end.unsettled_usd, end.summary)

    def _work(self, past: Past) -> tuple[str, str]:
        """Why the agents stopped, and one line of detail."""
        self._bench.prepare()
        try:
            result = run_job(
                self._spec,
                evaluate=self._evaluate,
                record=self._journal,
                llm=open_models(self._bench.settings, self._bench, step=self._journal.step, stop=self._stop, past=past),
                should_stop=self._stop.requested,
                past=past,
            )
        except Stopped:
            return self._stop.reason or "cancelled", ""
        except SandboxUnavailable as error:
            return SANDBOX_UNAVAILABLE, str(error)
        self._keep_end(result)
        return str(result.stop_reason), result.stop_detail

    def _keep_end(self, result: JobResult) -> None:
        """What the whole course says counts, also where events of an earlier run stood in another order."""
        with self._store.write() as session:
            jobs.set_rounds_done(session, self._job_id, result.rounds_done)
            if result.best is not None:
                jobs.set_best(session, self._job_id, result.best.evaluation_id)

    def _evaluate(self, source: str) -> Outcome:
        """The agents' `evaluate`: a verdict that is in the store counts, a new one is kept before they hear of it."""
        digest = candidate_hash(source)
        with self._store.read() as session:
            kept = results.find_evaluation(session, self._job_id, digest)
        if kept is None or kept.verdict == "sandbox_error":
            evaluation = self._bench.evaluate(
                source, step=self._journal.step, stop=self._stop, profile=self._shows_profiles()
            )
            with self._store.write() as session:
                evaluation_id = keep_evaluation(
                    session, self._job_id, self._bench, source, evaluation, round_number=self._journal.round
                )
                kept = results.get_evaluation(session, evaluation_id)
            if self._journal.round < self._spec.rounds:
                self._bench.prepare()
        # As it is in the store: when the job is taken up again, prompts must be the same to the letter.
        evaluation, evaluation_id = Evaluation.from_json(kept.result), kept.id
        return outcome_of(evaluation, self._bench.platform, candidate_hash=digest, evaluation_id=evaluation_id)

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

    def _export(self, job: JobRecord) -> Exported:
        settings = self._bench.settings
        try:
            return export_job(self._store, job, settings)
        except BadRequest as error:  # the place was good when the job began; a result is not lost for it
            self._journal.step(str(error))
            return export_job(self._store, job, settings, out=settings.job_dir(job.id) / "best.py")

    def _cancel_requested(self) -> bool:
        try:
            with self._store.read() as session:
                return jobs.cancel_requested(session, self._job_id)
        except StoreError:
            return False  # whoever writes next will say so

    def _finish(self, status: JobStatus, reason: str, detail: str) -> None:
        error = detail if status is JobStatus.FAILED else None
        with self._store.write() as session:
            jobs.finish_job(session, self._job_id, self._owner, status=status, stop_reason=reason, error=error)
            results.add_event(session, self._job_id, "ended", self._journal.round, {"reason": reason, "detail": detail})


def _spec(bench: Bench, device: str) -> JobSpec:
    settings, task = bench.settings, bench.task
    price = None
    if settings.price is not None:
        prompt, reply = (float(dollars) / 1e6 for dollars in settings.price.split(","))
        price = Price(prompt, reply)
    spec = JobSpec(
        task_id=task.id,
        task_source=task.source,
        category=task.category,
        dtype=task.dtype,
        platform=bench.platform.name,
        device=device,
        model=settings.model,
        judge_model=settings.judge_model,
        strategy=settings.strategy,
        rounds=settings.rounds,
        seed=settings.seed,
        budget=Budget(settings.budget_usd, settings.budget_tokens, settings.budget_s, settings.budget_evaluations),
        price=price,
        plateau_rounds=settings.plateau_rounds,
        roofline_target=settings.roofline_target,
    )
    try:
        check_spec(spec)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    return spec
