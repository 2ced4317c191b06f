"""Measures noisy results again: what idle workers do of themselves, and a batch that runs in this process at its end.

A job whose best evaluation is tagged `noisy` has no speedup that counts, and that is no fault of its user. Its best
candidate is measured again on a quiet device, at most `MOST_TRIES` times. Once a measurement counts, it is the job's.
One that finds the candidate wrong is the last: what passes only sometimes is not correct.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from agents.llm.models import only_builtin
from db.evaluations import results
from db.jobs import batches, jobs
from db.records import EvaluationRecord, JobRecord, JobStatus
from db.store import Store
from evaluator.platforms import Platform
from sandbox.base import SandboxUnavailable
from service.cancellation import Cancelled, CancelToken
from service.errors import BadRequest
from service.evaluation_context import EvaluationContext, open_evaluation_context, open_platform
from service.jobs.export import export_job
from service.jobs.persistence import outcome_of, save_evaluation
from service.jobs.query import REMEASURED, get_job
from service.jobs.spec import MeasurementTarget, required_sandbox, settings_of, task_of
from service.settings import Settings
from service.weights import WeightsReader, has_weights
from tasks.outcomes import NOISY, is_ranked

MOST_TRIES = 3
"""Measurements of one job, at most."""

QUIET_LOAD = 0.1
"""The load of others before it begins, at most: less than what makes a result noisy."""

SAMPLE_S = 2.0
"""How long that load is looked at."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remeasured:
    """What came of the noisy results of a batch.

    Attributes:
        counts: those that count now.
        left: those that do not yet, because this machine is busy.
        elsewhere: those that do not yet, because this machine lacks their device or their sandbox.
    """

    counts: int
    left: int
    elsewhere: int = 0


def can_be_mended(session: Session, job_id: int, evaluation_id: str, tags: tuple[str, ...]) -> bool:
    """Whether noise alone keeps a result of a job from counting, and it may be measured again."""
    mends = NOISY in tags and is_ranked(tag for tag in tags if tag != NOISY)
    mends = mends and len(results.list_events(session, job_id, kinds=[REMEASURED])) < MOST_TRIES
    return mends and not results.is_refuted(session, evaluation_id)


def rules_of(job: JobRecord) -> tuple[str, ...]:
    """The rules that a job's candidates were judged by, beside the referee's own."""
    tolerance = job.options.get("tolerance")
    return () if tolerance is None else (str(tolerance),)


def is_quiet(platform: Platform, cancel: CancelToken, *, sample_s: float = SAMPLE_S) -> bool:
    """Whether others leave the device alone. False if the platform cannot say.

    Raises:
        Cancelled: cancellation was requested meanwhile.
    """
    busy = platform.load(lambda: cancel.event.wait(sample_s))
    if cancel.requested():
        raise Cancelled
    return busy is not None and busy <= QUIET_LOAD


def measure_again(
    store: Store,
    job: JobRecord,
    noisy: EvaluationRecord,
    context: EvaluationContext,
    *,
    cancel: CancelToken,
    may_store: Callable[[Session], bool] = lambda session: True,
) -> bool:
    """Measure the best candidate of a job once more; whether that counts, and is the job's now.

    Args:
        store: the store.
        job: the job.
        noisy: its best evaluation.
        context: what it is evaluated with.
        cancel: ends the evaluation.
        may_store: called in the transaction that stores the result; False: it is not stored.

    Raises:
        Cancelled: cancellation was requested, or `may_store` refused.
        SandboxUnavailable: the sandbox cannot run anything.
        StoreError: the store does not answer.
    """
    about = {"job": job.id, "candidate": noisy.candidate_hash[:16]}
    log.info("a noisy result is measured again", extra=about)
    evaluation = context.evaluate(noisy.source, on_progress=lambda _: None, cancel=cancel)
    with store.write() as session:
        if not may_store(session):
            raise Cancelled
        evaluation_id = save_evaluation(session, job.id, context, noisy.source, evaluation, round_number=noisy.round)
        still_best = jobs.get_job(session, job.id).best_evaluation_id == noisy.id
        counts = evaluation.passed and is_ranked(evaluation.tags) and still_best
        counts = counts and not results.is_refuted(session, noisy.id)
        data = {"evaluation": evaluation_id, "verdict": evaluation.verdict.value, "counts": counts}
        results.add_event(session, job.id, REMEASURED, noisy.round, data)
        if counts:
            jobs.set_best(session, job.id, evaluation_id)
        if counts and job.kind == "optimize":  # what is proved takes the place of the round's earlier figures
            digest = noisy.candidate_hash
            proof = outcome_of(evaluation, context.platform, candidate_hash=digest, evaluation_id=evaluation_id)
            results.add_event(session, job.id, "proved", noisy.round, proof.to_json())
    log.info("measured again: %s", evaluation.message, extra=about)
    return counts


def remeasure_batch(
    batch_id: int,
    *,
    settings: Settings,
    store: Store,
    cancel: CancelToken,
    on_job: Callable[[JobRecord], None] = lambda job: None,
) -> Remeasured:
    """Measure the noisy results of a batch's jobs again on this machine's devices, as far as they are quiet.

    Results of other devices and sandboxes are left alone. `on_job` is called with each job before it is measured.

    Raises:
        Cancelled: cancellation was requested; what was measured before is stored.
        StoreError: the store does not answer.
    """
    counted = 0
    busy: set[str] = set()  # platforms
    lacking: set[tuple[str, str | None]] = set()  # platforms and sandboxes
    waiting = _noisy_jobs(store, batch_id)
    elsewhere: set[int] = set()
    for job_id in waiting:
        job = get_job(store, job_id)
        if job.platform in busy:
            continue
        wanted = settings_of(job, settings)
        wanted = wanted.model_copy(update={"sandbox": wanted.sandbox or required_sandbox(job)})
        sandbox = (job.platform, wanted.sandbox)
        if sandbox in lacking or not _is_device_of(job, wanted):
            elsewhere.add(job_id)
            continue
        if not is_quiet(open_platform(wanted.platform, wanted.device), cancel):
            busy.add(job.platform)
            continue
        try:
            mended = _measure_here(store, job, wanted, cancel, on_job)
        except SandboxUnavailable as error:
            log.warning("job %s cannot be measured again here: %s", job_id, error)
            lacking.add(sandbox)
            elsewhere.add(job_id)
            continue
        if mended is None:
            elsewhere.add(job_id)
        elif mended:
            counted += 1
            _export(store, job_id, wanted)
    still = set(_noisy_jobs(store, batch_id))
    return Remeasured(counted, len(still - elsewhere), len(still & elsewhere))


def _is_device_of(job: JobRecord, wanted: Settings) -> bool:
    """Whether a job was measured on a device as this machine has it. Nothing is started for that."""
    platform = open_platform(wanted.platform, wanted.device)
    target = MeasurementTarget(platform.name, platform.device(wanted.device).describe(), wanted.sandbox or "")
    return target.options_for(job, any_sandbox=True) is not None


def _measure_here(
    store: Store, job: JobRecord, wanted: Settings, cancel: CancelToken, on_job: Callable[[JobRecord], None]
) -> bool | None:
    """Measure the best candidate of a job until that counts; whether it does. None: in another sandbox than its own.

    It ends early when the device is quiet no more.
    """
    with open_evaluation_context(
        task_of(job),
        wanted,
        own_code_only=only_builtin(wanted.model, wanted.judge_model),
        rules=rules_of(job),
        cold=bool(job.options.get("cold")),
        weights=WeightsReader(store).of(job),
    ) as context:
        target = MeasurementTarget(context.platform.name, context.device.describe(), context.sandbox.name)
        if target.options_for(job) is None:
            return None
        while (noisy := _noisy(store, job.id)) is not None:
            on_job(job)
            if measure_again(store, job, noisy, context, cancel=cancel):
                return True
            if not is_quiet(context.platform, cancel):
                break
    return False


def _noisy_jobs(store: Store, batch_id: int) -> list[int]:
    with store.read() as session:
        found = batches.best_evaluations(session, batch_id)
        done = {job.id: job for job in jobs.list_jobs(session, batch_id=batch_id) if job.status is JobStatus.DONE}
        return sorted(
            job_id
            for job_id, best in found.items()
            if job_id in done
            and not best.retracted
            and can_be_mended(session, job_id, best.id, best.tags)
            and has_weights(session, done[job_id])
        )


def _noisy(store: Store, job_id: int) -> EvaluationRecord | None:
    """The best evaluation of a job, as long as noise keeps it from counting and it has tries left."""
    with store.read() as session:
        best = jobs.get_job(session, job_id).best_evaluation_id
        found = None if best is None else results.get_evaluation(session, best)
        return found if found is not None and can_be_mended(session, job_id, found.id, found.tags) else None


def _export(store: Store, job_id: int, settings: Settings) -> None:
    """Write the kernel and the report of the job again, with the figures that count."""
    try:
        export_job(store, get_job(store, job_id), settings)
    except BadRequest as error:  # a file in the way takes nothing from the figures
        log.warning("job %s was not exported again: %s", job_id, error)
