"""One evaluation from the queue: on this worker's device, kept in the store for whoever asked for it."""

import logging
from typing import Any

from db import jobs, results, workers
from db.records import JobRecord, JobStatus
from service.keeping import keep_evaluation
from service.spec import settings_of, task_of
from service.stopping import stop_when
from service.wiring import Bench, Stopped
from service.worker.place import Place

LOOK_S = 1.0
_OVER = (JobStatus.DONE, JobStatus.CANCELLED, JobStatus.FAILED)

log = logging.getLogger(__name__)


def run_evaluation(place: Place, evaluation_id: str, arguments: dict[str, Any]) -> None:
    """Evaluate the candidate that the arguments name, unless that was done, or its job has ended.

    Raises:
        Stopped: this worker is to end; somebody else must do it.
        SandboxUnavailable: this worker's sandbox cannot run anything.
    """
    job_id, digest = int(arguments["job_id"]), str(arguments["candidate"])
    with place.store.read() as session:
        if results.has_evaluation(session, evaluation_id):
            return
        job = jobs.get_job(session, job_id)
        source = results.get_candidate_source(session, job_id, digest)
    if _is_over(job):
        return
    about = {"job": job_id, "evaluation": evaluation_id, "candidate": digest[:16]}
    log.info("evaluation begins", extra=about)
    bench = Bench(task_of(job), place.platform, place.sandbox, settings_of(job, place.settings))
    with place.running.one() as stop, stop_when(lambda: _ended(place, job_id), stop, "cancelled", poll_s=LOOK_S):
        try:
            evaluation = bench.evaluate(
                source,
                step=lambda text: log.info("evaluation: %s", text, extra=about),
                stop=stop,
                profile=bool(arguments.get("profile")),
            )
        except Stopped:
            if place.running.requested():
                raise
            log.info("evaluation called off", extra=about)
            return
    with place.store.write() as session:
        if not workers.is_seen(session, place.worker_id):
            raise Stopped  # given up while we worked; the result is another's to find
        keep_evaluation(
            session,
            job_id,
            bench,
            source,
            evaluation,
            round_number=int(arguments["round"]),
            evaluation_id=evaluation_id,
        )
    log.info("evaluation ends: %s", evaluation.verdict.value, extra=about)
    bench.prepare()


def _ended(place: Place, job_id: int) -> bool:
    with place.store.read() as session:
        return _is_over(jobs.get_job(session, job_id))


def _is_over(job: JobRecord) -> bool:
    """Whether nobody wants the result any more. A job that waits for another worker still does."""
    return job.cancel_requested or job.status in _OVER
