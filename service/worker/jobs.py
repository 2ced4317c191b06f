"""One job from the queue: its models are asked here, its candidates are evaluated wherever there is a device."""

import logging

from agents.ports import Event
from agents.replay import past_of_events
from db import jobs, queued, results
from db.errors import StoreError
from db.records import JobRecord, JobStatus
from sandbox.base import SandboxUnavailable
from service.allotment import allot, finish_without_budget
from service.errors import BadRequest, JobLost
from service.jobs import get_job, stored_events, worked_s
from service.journal import Journal, Observer
from service.run import JobRun
from service.spec import settings_of, spec_of, task_of
from service.stopping import Stop, stop_when
from service.wiring import Bench, Stopped, open_models
from service.worker.measure import MeasureQueued
from service.worker.place import Place

log = logging.getLogger(__name__)


def run_job(place: Place, job_id: int, attempt: int) -> None:
    """Run a job that waits in this attempt to its end, or until this worker is to end: then it waits again."""
    with place.store.write() as session:
        if not queued.take_job(
            session, job_id, attempt, place.owner, worker_id=place.worker_id, sandbox=place.sandbox.name
        ):
            return
        if allot(session, job_id) <= 0:
            finish_without_budget(session, job_id, place.owner)
            return
        if "device_kind" not in jobs.get_job(session, job_id).options:
            jobs.set_options(session, job_id, device=place.device.describe(), device_kind=place.kind)
        job = jobs.get_job(session, job_id)
    about = {"job": job_id, "attempt": attempt, "task": job.task.ref, "model": job.model, "user": job.user}
    log.info("job begins", extra=about)
    with place.running.one() as stop:
        try:
            run = _evaluate_again if job.kind == "evaluate" else _optimize
            run(place, job, stop)
        except JobLost as error:
            log.warning("job left alone: %s", error, extra=about)
        except (BadRequest, SandboxUnavailable) as error:
            _fail(place, job_id, str(error))
        except StoreError:
            raise  # the store is gone: whoever takes the job over finds all that was kept
        except Exception as error:
            log.exception("job failed", extra=about)
            _fail(place, job_id, f"{type(error).__name__}: {error}")
        if place.running.requested():
            _give_back(place, job_id)
    log.info("job ends: %s", get_job(place.store, job_id).status.value, extra=about)


def _optimize(place: Place, job: JobRecord, stop: Stop) -> None:
    settings = settings_of(job, place.settings)
    task = task_of(job)
    events = stored_events(place.store, job.id)
    past = past_of_events(events, wall_s=worked_s(place.store, job.id))
    journal = Journal(place.store, job.id, _observe(job), events, owner=place.owner)
    bench = Bench(task, place.platform, place.sandbox, settings)
    JobRun(
        place.store,
        job.id,
        place.owner,
        spec=spec_of(task, settings, device=str(job.options["device"])),
        journal=journal,
        measure=MeasureQueued(place.store, place.queue, job, str(job.options["device_kind"]), stop),
        platform=place.platform,
        llm=open_models(settings, bench, step=journal.step, stop=stop, past=past),
        stop=stop,
    ).run(past)


def _evaluate_again(place: Place, job: JobRecord, stop: Stop) -> None:
    """A candidate that a user wants evaluated (once more): it was stored with the job."""
    with place.store.read() as session:
        sources = results.list_candidate_sources(session, job.id)
    measure = MeasureQueued(place.store, place.queue, job, str(job.options["device_kind"]), stop)
    status, best = JobStatus.DONE, None
    with stop_when(lambda: _cancel_requested(place, job.id), stop, "cancelled"):
        try:
            for source in sources.values():
                kept = measure(source, round_number=0, profile=True)
                best = kept.id if kept.verdict == "passed" else best
        except Stopped:
            status = JobStatus.INTERRUPTED if stop.reason == "interrupted" else JobStatus.CANCELLED
    with place.store.write() as session:
        if best is not None:
            jobs.set_best(session, job.id, best)
        reason = stop.reason or "evaluated"
        jobs.finish_job(session, job.id, place.owner, status=status, stop_reason=reason)
        results.add_event(session, job.id, "ended", 0, {"reason": reason, "detail": ""})


def _fail(place: Place, job_id: int, error: str) -> None:
    with place.store.write() as session:
        jobs.finish_job(session, job_id, place.owner, status=JobStatus.FAILED, stop_reason="error", error=error)
        results.add_event(session, job_id, "ended", 0, {"reason": "error", "detail": error})


def _give_back(place: Place, job_id: int) -> None:
    """Put a job that our own end interrupted back in line; one that had ended before stays ended."""
    with place.store.write() as session:
        job = jobs.get_job(session, job_id)
        if job.stop_reason == "interrupted" and not job.cancel_requested:
            queued.requeue_job(session, job_id)


def _cancel_requested(place: Place, job_id: int) -> bool:
    with place.store.read() as session:
        return jobs.cancel_requested(session, job_id)


def _observe(job: JobRecord) -> Observer:
    def observe(event: Event) -> None:
        text = event.data.get("text", "") if event.kind == "step" else ""
        log.info("%s %s", event.kind, text, extra={"job": job.id, "round": event.round})

    return observe
