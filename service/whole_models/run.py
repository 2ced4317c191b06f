"""One run over a whole model that this process owns, from its claim to its end. A killed run goes on where it was."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from db.changes import Changes
from db.evaluations import results
from db.jobs import batches, job_queue, jobs, model_runs
from db.records import (
    PLAN_ONLY,
    WEIGHTS,
    EvaluationRecord,
    JobRecord,
    JobStatus,
    ModelRegionRecord,
    ModelRunRecord,
    Owner,
)
from db.store import Store
from evaluator.evaluation import Evaluation, shape_group_of
from service.cancellation import Cancelled, CancelToken, cancel_when
from service.errors import BadRequest, Unavailable
from service.evaluation_context import EvaluationContext
from service.jobs.batch_budget import WEIGHT
from service.jobs.liveness import require_owned
from service.jobs.persistence import save_task
from service.jobs.query import cancel_requested, end_job
from service.jobs.run import NOTHING_TO_WORK_WITH, JobEvaluator
from service.jobs.spec import OUT
from service.settings import Settings
from service.submissions.enqueue import kept_options
from service.whole_models.assemble import Assembler, Assembly, Kernel, Trial, files_with, kernels_of, source_of
from service.whole_models.budget import LEFT_TO_GAIN, end_what_is_not_worth_it
from service.whole_models.plan import Plan, capture_model, plan_json, plan_of
from service.whole_models.prove import ASKED_AGAIN, SLOWER, Proven, Prover, outcome, prove_each
from tasks.outcomes import Verdict, candidate_hash
from tasks.task import Task
from whole_models.regions import counted_ms, to_gain_ms

CANDIDATE_FILE = "candidate.py"
"""The delivered file that is the whole of it as one candidate, which the proof is of."""


@dataclass(frozen=True)
class ModelReport:
    """A run as it stands, its proof, and the folder with what is delivered; None: there is none yet."""

    run: ModelRunRecord
    proof: EvaluationRecord | None
    delivered: Path | None


@dataclass(frozen=True)
class ModelRun:
    """A job of kind `model` that `owner` has claimed.

    Attributes:
        store: the store.
        job_id: the job.
        owner: the process that runs it.
        context: the model as a task with the job's settings, and this host's platform and sandbox.
        evaluator_for: gives what evaluates candidates for the whole model. Its arguments are a word that tells
            evaluations of one candidate beside several others apart, and the list of `get_input_groups()` that is
            timed (None: the inputs of `get_inputs()`).
        run_jobs: has the jobs of a batch run, and returns when none of them waits or runs. Its second argument is to be
            called from time to time: it cancels jobs that are not worth it any more.
        step: called with a few words on what is done.
        cancel: ends the run early.
        write: performs a write, again and again where the store is gone for a while.
        changes: reports changes of the store; without it the store is polled for a cancellation.
    """

    store: Store
    job_id: int
    owner: Owner
    context: EvaluationContext
    evaluator_for: Callable[[str, int | None], JobEvaluator]
    run_jobs: Callable[[int, Callable[[], None]], None]
    step: Callable[[str], None]
    cancel: CancelToken
    write: Callable[[Callable[[], None]], None] = lambda action: action()
    changes: Changes | None = None

    def run(self) -> None:
        """Work from where earlier runs ended. The job's row then says how it ended, unless an error is raised.

        Raises:
            BadRequest: the model cannot be used.
            Unavailable: no job of a region had a model or a sandbox to work with, or a worker of another version was
                asked.
            SandboxUnavailable: there is no sandbox to work with.
            Cancelled: cancellation was requested; the run can be resumed.
            JobLost: another process has the job now.
        """
        with cancel_when(
            lambda: cancel_requested(self.store, self.job_id), self.cancel, "cancelled", changes=self.changes
        ):
            plan = self._plan()
            if self._run().options.get(PLAN_ONLY):
                self._end(JobStatus.DONE, "planned")
                return
            self._optimize(plan)
            self._deliver(plan, self._prove(plan, self._assemble(plan)))

    @property
    def _model(self) -> Task:
        return self.context.task

    @property
    def _settings(self) -> Settings:
        return self.context.settings

    def _run(self) -> ModelRunRecord:
        with self.store.read() as session:
            return model_runs.get_run(session, self.job_id)

    def _store(self, action: Callable[[Session], object]) -> None:
        """Write in a transaction in which this process owns the job."""

        def once() -> None:
            with self.store.write() as session:
                require_owned(session, self.job_id, self.owner)
                action(session)

        self.write(once)

    def _begin_stage(self, stage: str) -> None:
        def begin(session: Session) -> None:
            model_runs.set_stage(session, self.job_id, stage)
            results.add_event(session, self.job_id, "stage", 0, {"stage": stage})

        self._store(begin)

    def _plan(self) -> Plan:
        run = self._run()
        with self.store.read() as session:
            capture = model_runs.get_capture(session, self.job_id)
        if capture is None:
            self._begin_stage("plan")
            capture = capture_model(self.context, on_progress=self.step, cancel=self.cancel)
        plan = plan_of(self._model, capture, self._settings, groups=_groups_of(run))
        if not run.plan:
            self._store(lambda session: self._keep_plan(session, plan, capture))
        elif {each.name for each in run.regions} != set(plan.every_task):
            raise BadRequest(f"model run {run.id} was begun by another version, which found other regions; start anew")
        return plan

    def _keep_plan(self, session: Session, plan: Plan, capture: bytes) -> None:
        model_runs.set_capture(session, self.job_id, capture)
        model_runs.set_plan(session, self.job_id, plan_json(plan), _region_records(session, plan))

    def _optimize(self, plan: Plan) -> None:
        """Have a job run for each region that is worth it, those that could gain most first, while enough is left."""
        if self._run().batch_id is None:
            if plan.too_slow:  # before anything is paid for
                raise BadRequest(f"{self._model.id}: {plan.too_slow}")
            self._store(lambda session: self._queue_jobs(session, plan))
        run = self._run()
        if run.stage != "optimize" or run.batch_id is None:
            return
        self.run_jobs(run.batch_id, lambda: self._end_jobs(plan))
        if self.cancel.requested():
            raise Cancelled
        self._require_answers(run)
        self._begin_stage("assemble")

    def _end_jobs(self, plan: Plan) -> None:
        if ended := end_what_is_not_worth_it(self.store, self.job_id, plan):
            self.step(f"{ended} regions get no job: with their inputs they could save less than {LEFT_TO_GAIN:.0%}")

    def _queue_jobs(self, session: Session, plan: Plan) -> None:
        if jobs.cancel_requested(session, self.job_id):  # who cancels a run has no way to jobs that come later
            raise Cancelled
        job = jobs.get_job(session, self.job_id)
        settings = self._settings
        # Without an address or a key file of the job's own each worker uses what it has itself.
        own_access = {name: job.options.get(name) for name in ("api_base", "api_key_file")}
        worth, tasks = worth_a_job(plan), plan.every_task
        task_ids = {each.name: each.task_id for each in model_runs.get_run(session, self.job_id).regions}
        spec = {
            "name": f"whole model {self._model.name}",
            "tasks": [tasks[name].id for name in worth],
            "models": [settings.model],
            "platforms": [settings.platform],
            "model_run": self.job_id,
        }
        batch_id = batches.add_batch(
            session, name=str(spec["name"])[:200], user=job.user, spec=spec, budget_usd=settings.budget_usd
        )
        new = [
            job_queue.NewJob(
                task_id=task_ids[name],
                platform=settings.platform,
                model=settings.model,
                strategy=settings.strategy,
                # The batch bounds what all cost: of what others leave, each gets by what its region could gain.
                options=kept_options(
                    tasks[name],
                    settings.model_copy(update={"budget_usd": None, "sandbox": job.sandbox or None}),
                )
                | own_access
                | {WEIGHT: to_gain_share},
                sample=1,
            )
            for name, to_gain_share in worth.items()
        ]
        job_queue.add_queued_jobs(session, new, user=job.user, priority=job.priority, batch_id=batch_id)
        model_runs.set_batch(session, self.job_id, batch_id)
        results.add_event(session, self.job_id, "stage", 0, {"stage": "optimize"})

    def _require_answers(self, run: ModelRunRecord) -> None:
        """Stop where no job had a model or a sandbox to work with: that nothing was found says nothing then.

        Raises:
            Unavailable: all jobs failed for such a reason.
        """
        with self.store.read() as session:
            found = jobs.list_jobs(session, batch_id=run.batch_id)
        if found and all(job.status is JobStatus.FAILED and job.stop_reason in NOTHING_TO_WORK_WITH for job in found):
            raise Unavailable(f"{found[-1].error or found[-1].stop_reason} (then: kernelwright models resume {run.id})")

    def _assemble(self, plan: Plan) -> list[Assembly]:
        """What was chosen for each list of inputs."""
        run = self._run()
        source = partial(source_of, self._model.source, plan)
        chosen = []
        for each in plan.every:
            evaluate = partial(self._try, each.shape_group)
            assembler = Assembler(each, source, evaluate, _judged(run.trials), self._record, self.step)
            chosen.append(assembler.assemble(kernels_of(self.store, run, each)))
        self._keep(kernel for assembly in chosen for kernel in assembly.kernels)
        self._begin_stage("prove")
        return chosen

    def _record(self, trial: Trial) -> None:
        def keep(session: Session) -> None:
            model_runs.add_trial(session, self.job_id, trial.to_json())
            results.add_event(session, self.job_id, "trial", 0, trial.to_json())

        self._store(keep)

    def _keep(self, kernels: Iterable[Kernel]) -> None:
        kept = [kernel.name for kernel in kernels]
        self._store(lambda session: model_runs.set_kept(session, self.job_id, kept))

    def _try(self, shape_group: int | None, candidate: str, champion: str | None) -> Evaluation:
        """A trial of a candidate beside the champion, for the `Assembler`."""
        name = "" if champion is None else candidate_hash(champion)
        found = self._evaluate(candidate, name, trial=True, champion=champion, shape_group=shape_group)
        return Evaluation.from_json(found.result)

    def _prove(self, plan: Plan, assemblies: Sequence[Assembly]) -> list[Proven]:
        """What is delivered for each list of inputs, with its evaluation at full precision, which may refuse it."""
        source, known = partial(source_of, self._model.source, plan), _judged(self._run().trials)
        late = {
            (each.get("shape_group"), each["candidate"])
            for each in self._run().trials
            if each["decision"] in ASKED_AGAIN and str(each["question"]).startswith("proof")
        }
        provers = [
            Prover(
                each.shape_group,
                source,
                known,
                partial(self._proof, each.shape_group),
                self._read,
                self._record,
                self.step,
            )
            for each in plan.every
        ]
        proven = prove_each(provers, assemblies, late=late)
        self._keep(kernel for each in proven for kernel in each.kernels)
        return proven

    def _proof(self, shape_group: int | None, source: str) -> EvaluationRecord:
        """The evaluation of a source at full precision; one that is stored is not measured again, if it judges."""
        with self.store.read() as session:
            kept = results.find_evaluation(
                session,
                self.job_id,
                candidate_hash(source),
                trial=False,
                where=lambda each: shape_group_of(each.result) == shape_group,
            )
        if kept is not None and kept.verdict not in ASKED_AGAIN:
            return kept
        return self._evaluate(source, "", trial=False, champion=None, shape_group=shape_group)

    def _read(self, evaluation_id: str) -> EvaluationRecord:
        with self.store.read() as session:
            return results.get_evaluation(session, evaluation_id)

    def _evaluate(
        self, source: str, name: str, *, trial: bool, champion: str | None, shape_group: int | None
    ) -> EvaluationRecord:
        if champion is not None:  # the evaluator stores the candidate, and reads the champion
            digest = candidate_hash(champion)
            self._store(
                lambda session: results.add_candidate(
                    session, self.job_id, round_number=0, candidate_hash=digest, source=champion
                )
            )
        with self.store.read() as session:
            late = results.count_evaluations(session, self.job_id, candidate_hash(source), Verdict.TIMED_OUT)
        name += "" if shape_group is None else f" of shape group {shape_group}"
        evaluate = self.evaluator_for(f"{name}+{late}" if late else name, shape_group)
        found = evaluate(source, round_number=0, profile=False, trial=trial, champion=champion)
        if found.verdict not in ASKED_AGAIN and shape_group_of(found.result) != shape_group:
            raise Unavailable(f"evaluation {found.id} is of other inputs: a worker of another version made it")
        return found

    def _deliver(self, plan: Plan, proven: Sequence[Proven]) -> None:
        """Store what is delivered. The proof of a run is the first one: that with `get_inputs()` if this has any."""
        if not proven:
            self._end(JobStatus.DONE, "nothing_faster")
            return
        proof = proven[0].proof
        found = outcome(proof)
        kernels = [kernel for each in proven for kernel in each.kernels]

        def keep(session: Session) -> None:
            model_runs.set_proof(session, self.job_id, proof.id)
            if found == Verdict.PASSED:
                files = {**files_with(self._model.source, plan, kernels).files, CANDIDATE_FILE: proof.source}
                model_runs.set_files(session, self.job_id, files)
                jobs.set_best(session, self.job_id, proof.id)
            else:
                model_runs.set_kept(session, self.job_id, [])

        self._store(keep)
        if found in (Verdict.PASSED, SLOWER):
            self._end(JobStatus.DONE, "proven" if found == Verdict.PASSED else "nothing_faster")
        else:
            self._end(JobStatus.FAILED, "not_proven", f"the proof says {found}: {proof.message}"[:500])

    def _end(self, status: JobStatus, reason: str, detail: str = "") -> None:
        def end(session: Session) -> None:
            model_runs.set_stage(session, self.job_id, "done")
            batch_id = model_runs.batch_of(session, self.job_id)
            of_regions = [] if batch_id is None else jobs.list_jobs(session, batch_id=batch_id)
            jobs.set_spent(
                session,
                self.job_id,
                cost_usd=sum(job.cost_usd for job in of_regions),
                tokens=sum(job.tokens for job in of_regions),
            )
            end_job(session, self.job_id, self.owner, status=status, reason=reason, detail=detail)

        self._store(end)


def _groups_of(run: ModelRunRecord) -> frozenset[int] | None:
    """The shape groups that a stored plan has plans for; None: nothing is planned yet."""
    if not run.plan:
        return None
    groups = run.plan.get("groups") or []
    return frozenset(int(each["shape_group"]) for each in groups) if isinstance(groups, list) else frozenset()


def _region_records(session: Session, plan: Plan) -> list[ModelRegionRecord]:
    found: list[ModelRegionRecord] = []
    for each in plan.every:
        total_ms = counted_ms(each.captured)
        found += [
            ModelRegionRecord(
                name=region.name,
                position=len(found) + place,
                kind=region.kind,
                occurrences=len(region.occurrences),
                eager_ms=region.eager_ms,
                share=region.eager_ms / total_ms if total_ms else 0.0,
                task_id=save_task(session, each.tasks[region.name]),
                job_id=None,
            )
            for place, region in enumerate(each.chosen)
        ]
    return found


def worth_a_job(plan: Plan) -> dict[str, float]:
    """The regions that get a job, with the share of the model's time that each could gain, the largest first.

    Shares are of the time with the inputs that the region is for, and of equal regions of several graphs together:
    the first has the job. Of each list of inputs, the smallest that together could gain too little are left out.
    """
    found: list[tuple[str, float]] = []
    for each in plan.every:
        total_ms = counted_ms(each.captured)
        first_of, shares = dict[str, str](), dict[str, float]()
        for one in each.chosen:
            name = first_of.setdefault(one.form, one.name)
            share = to_gain_ms(each.captured, one) / total_ms if total_ms else 0.0
            shares[name] = shares.get(name, 0.0) + share
        parts = sorted(shares.items(), key=lambda part: -part[1])  # keeps the order by time where these are equal
        left = 0.0
        while parts and (left := left + parts[-1][1]) < LEFT_TO_GAIN:
            parts.pop()
        found += parts
    return dict(sorted(found, key=lambda part: -part[1]))


def _judged(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The decisions that an earlier run has made for good."""
    return [each for each in trials if each["decision"] not in ASKED_AGAIN]


def options_of_run(job_options: Mapping[str, Any], *, weights: str | None, out: Path | None) -> dict[str, Any]:
    """The options of a job over a model: those of any job, and its own. `weights` is their digest."""
    return {**job_options, WEIGHTS: weights, OUT: None if out is None else str(out.absolute())}


def is_model_job(job: JobRecord) -> bool:
    """Whether a job is a run over a whole model."""
    return job.kind == "model"
