"""Starts, shows, cancels, resumes and compares batches: tasks × models × platforms × samples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy.orm import Session

from db.accounts.audit import add_change_of_anothers
from db.jobs import batches, job_queue, jobs, model_runs
from db.records import OPEN, RESUMABLE, WEIGHTS, BatchRecord, JobRecord, JobStatus
from db.store import Store
from db.tables import LOCAL_USER
from service.batches.compare import Comparison, compare
from service.batches.plan import BatchPlan, plan_batch
from service.batches.results import Baseline, BatchJob, Group, batch_jobs, devices_of, groups_of, samples_of
from service.batches.spec import BatchSpec, with_kept_weights
from service.batches.statistics import Sample
from service.errors import BadRequest
from service.evaluation_context import check_keys
from service.jobs.persistence import save_task
from service.jobs.query import mark_dead_jobs
from service.jobs.spec import settings_of
from service.settings import Settings
from service.submissions.enqueue import PRIORITIES, kept_options
from service.weights import keep_state, require_weights, weights_named
from tasks.outcomes import Clock, clock_of
from tasks.task import Task

NOT_WORTH_IT = "too_little_to_gain"
"""The stop reason of a job that was cancelled because others have left too little to gain."""

FINAL = ("task_invalid", NOT_WORTH_IT)
"""Reasons for which a job ends that running it again would not change."""


@dataclass(frozen=True)
class BatchLine:
    """A batch in a list."""

    batch: BatchRecord
    counts: Mapping[JobStatus, int]
    spent_usd: float

    @property
    def ended(self) -> int:
        """The number of its jobs that neither wait nor run."""
        return sum(count for status, count in self.counts.items() if status not in OPEN)

    @property
    def jobs(self) -> int:
        """The number of its jobs."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class BatchDetails:
    """A batch with each job and the figures of each model and platform, over one baseline."""

    line: BatchLine
    over: Baseline
    groups: tuple[Group, ...]
    jobs: tuple[BatchJob, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def memory(self) -> str:
        """What its jobs are told of earlier ones: off, similar or all. Only batches with the same are comparable."""
        return ", ".join(sorted({job.memory for job in self.jobs}))

    @property
    def complete(self) -> bool:
        """Whether every job has ended for good, so that the figures will stay."""
        return all(job.outcome != "open" for job in self.jobs)

    def clock(self, platform: str) -> Clock:
        """What the latencies and speedups of its jobs on a platform are made of."""
        return clock_of({tag for job in self.jobs if job.platform == platform for tag in job.tags})


@dataclass(frozen=True)
class ModelComparison:
    """A model on a platform of one batch compared with one of another batch, or of the same.

    If there are several `devices`, a difference may come from the devices.
    """

    platform: str
    model_a: str
    model_b: str
    comparison: Comparison
    devices: tuple[str, ...]


def start_batch(
    spec: BatchSpec, *, settings: Settings, store: Store, user: str = LOCAL_USER, files: bool = True
) -> int:
    """Queue all jobs of a batch in one transaction. Tasks that cannot be used are stored with the reasons.

    `files` says whether tasks and keys may be files of this machine. Requests of other users must not use them.

    Returns:
        The batch's id.

    Raises:
        BadRequest: the request is invalid, or none of its tasks can be used; nothing was queued.
    """
    if files:
        spec = with_kept_weights(spec, partial(keep_state, store, user))
    plan = plan_batch(spec, settings=settings, store=store, files=files)
    with store.write() as session:
        return queue_batch(session, spec, plan, user=user)


def queue_batch(session: Session, spec: BatchSpec, plan: BatchPlan, *, user: str) -> int:
    """Store a planned batch and all its jobs in the caller's transaction, and return its id."""
    kept = spec.model_dump(mode="json", exclude_none=True) | {"refused": [list(pair) for pair in plan.refused]}
    tasks = {_key(job.task): job.task for job in plan.jobs}
    for digest in sorted({each.weights for each in plan.jobs if each.weights is not None}):
        require_weights(session, user, digest)  # before the tasks, as all who queue jobs do
    # Tasks are stored before the queue is locked, and always in the same order (db.locks).
    ids = {key: save_task(session, tasks[key]) for key in sorted(tasks)}
    batch_id = batches.add_batch(session, name=spec.name, user=user, spec=kept, budget_usd=spec.budget_usd)
    new = [
        job_queue.NewJob(
            task_id=ids[_key(planned_job.task)],
            platform=planned_job.settings.platform,
            model=planned_job.settings.model,
            strategy=planned_job.settings.strategy,
            options=kept_options(planned_job.task, planned_job.settings)
            | ({} if planned_job.weights is None else {WEIGHTS: planned_job.weights}),
            sample=planned_job.sample,
            kind="model" if spec.whole_models else "optimize",
        )
        for planned_job in plan.jobs
    ]
    job_queue.add_queued_jobs(session, new, user=user, priority=PRIORITIES[spec.priority], batch_id=batch_id)
    if spec.whole_models:
        model_runs.add_runs_of_batch(session, batch_id)
    return batch_id


def list_batches(
    store: Store, *, user: str | None = None, before: int | None = None, limit: int | None = None
) -> list[BatchLine]:
    """Batches, newest first."""
    mark_dead_jobs(store)
    with store.read() as session:
        found = batches.list_batches(session, user=user, before=before, limit=limit)
        ids = [batch.id for batch in found]
        counts, spent = batches.count_jobs(session, ids), batches.spent_usd(session, ids)
    return [BatchLine(batch, counts[batch.id], spent[batch.id]) for batch in found]


def show_batch(store: Store, batch_id: int, *, over: Baseline = "eager") -> BatchDetails:
    """A batch with its present figures over a baseline.

    Raises:
        NotInStore: there is no batch with this id.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        batch = batches.get_batch(session, batch_id)
        counts, spent = batches.count_jobs(session, [batch_id]), batches.spent_usd(session, [batch_id])
        records = jobs.list_jobs(session, batch_id=batch_id)
        best, verdicts = batches.best_evaluations(session, batch_id), batches.verdicts(session, batch_id)
    in_batch = batch_jobs(batch_id, records[::-1], best, verdicts)
    refused = tuple((str(ref), str(reason)) for ref, reason in batch.spec.get("refused", ()))
    line = BatchLine(batch, counts[batch_id], spent[batch_id])
    return BatchDetails(line, over, groups_of(in_batch, over), in_batch, refused)


def cancel_batch(
    store: Store, batch_id: int, *, actor: str = LOCAL_USER, check_owner: Callable[[str], None] = lambda _: None
) -> int:
    """Stop a batch: waiting jobs are cancelled, and cancellation of running jobs is requested.

    Args:
        store: the store.
        batch_id: the batch.
        actor: who cancels it, for the audit log if it is another's batch.
        check_owner: raises for a batch of whose owner `actor` may not cancel any.

    Returns:
        The number of these jobs.

    Raises:
        NotInStore: there is no batch with this id.
    """
    mark_dead_jobs(store)
    with store.write() as session:
        batch = batches.get_batch(session, batch_id)
        check_owner(batch.user)
        # Jobs are locked before their batch, in the same order as by a worker that takes a job.
        concerned = batches.cancel_jobs(session, batch_id)
        batches.set_cancelled(session, batch_id, True)
        if concerned:
            add_change_of_anothers(
                session, actor=actor, owner=batch.user, action="batch.cancel", subject=f"batch/{batch_id}"
            )
        return concerned


def resume_batch(store: Store, batch_id: int, *, budget_usd: float | None = None) -> int:
    """Queue the jobs of a batch again that ended before they were done. Nothing that they did and paid for is repeated.

    Args:
        store: the store.
        batch_id: the batch.
        budget_usd: another total for the batch.

    Returns:
        The number of jobs that wait now.

    Raises:
        NotInStore: there is no batch with this id.
        BadRequest: the total is not a number from 0 on, or jobs were told to stop and have not stopped yet.
    """
    if budget_usd is not None and not 0 <= budget_usd < float("inf"):
        raise BadRequest(f"--budget-usd {budget_usd}: must be dollars, 0 or more")
    mark_dead_jobs(store)
    with store.write() as session:
        waiting = requeue_batch(session, batch_id)
        if budget_usd is not None:
            batches.set_budget(session, batch_id, budget_usd)
        return waiting


def check_batch_keys(store: Store, batch_id: int, settings: Settings) -> None:
    """Check that the models of what a resumed batch would run have keys on this machine.

    Raises:
        NotInStore: there is no batch with this id.
        ModelUnavailable, KeyUnreadable: there is none for a model whose provider needs one.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        batches.get_batch(session, batch_id)
        found = [
            job
            for job in jobs.list_jobs(session, batch_id=batch_id)
            if job.status is JobStatus.QUEUED or _may_go_on(job)
        ]
    of_jobs = [settings_of(job, settings) for job in found]
    several = {(each.model, each.judge_model, each.api_base, each.api_key_file): each for each in of_jobs}
    for each in several.values():
        check_keys(each)


def _may_go_on(job: JobRecord) -> bool:
    return job.status in RESUMABLE and job.stop_reason not in FINAL


def requeue_batch(session: Session, batch_id: int) -> int:
    """`resume_batch` in the caller's transaction. Jobs whose process died must have been marked before.

    Raises:
        NotInStore: there is no batch with this id.
        BadRequest: cancelled jobs have not ended yet, or weights that its jobs name are not kept any more.
    """
    user = batches.get_batch(session, batch_id).user
    again = [job for job in jobs.list_jobs(session, batch_id=batch_id) if _may_go_on(job)]
    for digest in sorted({digest for job in again if (digest := weights_named(job)) is not None}):
        require_weights(session, user, digest)
    if stopping := batches.count_stopping(session, batch_id):
        raise BadRequest(f"batch {batch_id}: {stopping} jobs are still stopping; try again in a moment")
    for job in again:
        if job.kind == "model":
            requeue_regions(session, job.id)
    batches.requeue_jobs(session, batch_id, final=FINAL)
    batches.set_cancelled(session, batch_id, False)
    return batches.count_jobs(session, [batch_id])[batch_id].get(JobStatus.QUEUED, 0)


def requeue_regions(session: Session, run_id: int) -> None:
    """Queue the jobs of a model's regions again that ended early, if the run over the model still looks for kernels.

    Raises:
        BadRequest: cancelled jobs have not ended yet.
    """
    run = model_runs.get_run(session, run_id)
    if run.batch_id is not None and run.stage == "optimize":
        requeue_batch(session, run.batch_id)


def compare_batches(
    store: Store,
    a: int,
    b: int,
    *,
    over: Baseline = "eager",
    model_a: str | None = None,
    model_b: str | None = None,
) -> list[ModelComparison]:
    """`compare_details` of two batches in the store.

    Raises:
        NotInStore: there is no such batch.
        BadRequest: a model that was chosen is not in its batch, or no two can be matched.
    """
    sides = [show_batch(store, batch_id, over=over) for batch_id in (a, b)]
    return compare_details(*sides, model_a=model_a, model_b=model_b)


def compare_details(
    a: BatchDetails, b: BatchDetails, *, model_a: str | None = None, model_b: str | None = None
) -> list[ModelComparison]:
    """Compare each model and platform of batch `a` with that of `b`, task by task.

    Models are matched by name, unless one is chosen for each side or each side has but one.

    Raises:
        BadRequest: a model that was chosen is not in its batch, or no two can be matched.
    """
    sides = (a, b)
    models = [_chosen(side, model) for side, model in zip(sides, (model_a, model_b), strict=True)]
    if len(models[0]) == len(models[1]) == 1:
        pairs = [(models[0][0], models[1][0])]
    else:
        pairs = [(model, model) for model in models[0] if model in models[1]]
    platforms = [dict.fromkeys(group.platform for group in side.groups) for side in sides]
    found = [
        ModelComparison(
            platform,
            ours,
            theirs,
            compare(samples_of(_jobs(a, ours, platform), a.over), samples_of(_jobs(b, theirs, platform), b.over)),
            devices_of([*_jobs(a, ours, platform), *_jobs(b, theirs, platform)]),
        )
        for platform in platforms[0]
        if platform in platforms[1]
        for ours, theirs in pairs
    ]
    if not found:
        shown = " and ".join(", ".join(names) for names in models)
        ids = f"{a.line.batch.id} and {b.line.batch.id}"
        raise BadRequest(f"batches {ids} share no model on a platform ({shown}); choose --model-a and --model-b")
    return found


def _key(task: Task) -> tuple[str, str, str]:
    return task.suite, task.name, task.source_hash


def group_samples(details: BatchDetails, group: Group) -> list[Sample]:
    """The samples of a group's figures."""
    return samples_of(_jobs(details, group.model, group.platform), details.over)


def _jobs(details: BatchDetails, model: str, platform: str) -> list[BatchJob]:
    return [job for job in details.jobs if ((job.model or ""), job.platform) == (model, platform)]


def _chosen(side: BatchDetails, model: str | None) -> list[str]:
    models = list(dict.fromkeys(group.model for group in side.groups))
    if model is None:
        return models
    if model not in models:
        raise BadRequest(f"batch {side.line.batch.id} has no model {model[:80]}; there is: {', '.join(models)}")
    return [model]
