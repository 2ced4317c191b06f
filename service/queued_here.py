"""Run jobs that wait in line in this process, one after the other: for a user with one machine and no workers."""

from collections.abc import Callable
from dataclasses import replace

from agents.providers import only_builtin
from db import batches, jobs, queued
from db.records import JobRecord, JobStatus
from db.store import Store
from sandbox.base import SandboxUnavailable
from service.allotment import allot, finish_without_budget
from service.errors import BadRequest, JobLost
from service.jobs import end_job, get_job, past_of, settle
from service.journal import Journal, Observer
from service.kinds import Spot, sandbox_it_needs
from service.optimize import run_here
from service.owner import this_process
from service.run import JobReport
from service.settings import Settings
from service.spec import settings_of, task_of
from service.stopping import Stop
from service.wiring import open_bench

Told = Callable[[JobRecord], Observer]
"""Is told of each job that begins, and gives who is told of its events."""


def run_queued(job_id: int, *, settings: Settings, store: Store, observe: Observer, stop: Stop) -> JobReport | None:
    """Run a job that waits; None if it is not ours to run, or nothing is left of its batch's budget.

    What an earlier run of it did and paid for stays done.

    Raises:
        NotInStore: there is no such job.
        BadRequest: what it was asked for cannot be done here.
        SandboxUnavailable: there is no sandbox to work with; the job waits as before.
    """
    job = get_job(store, job_id)
    settings = settings_of(job, settings)
    settings = settings.model_copy(update={"sandbox": settings.sandbox or sandbox_it_needs(job)})
    with open_bench(task_of(job), settings, own_code_only=only_builtin(settings.model, settings.judge_model)) as bench:
        owner = this_process()
        keeps = Spot(bench.platform.name, bench.platform.device().describe(), bench.sandbox.name).options_for(job)
        if keeps is None:
            return None
        with store.write() as session:
            if not queued.take_job(session, job_id, job.attempt, owner, worker_id=None, sandbox=bench.sandbox.name):
                return None
            if allot(session, job_id) <= 0:
                finish_without_budget(session, job_id, owner)
                return None
            jobs.set_options(session, job_id, **keeps)
            taken = jobs.get_job(session, job_id)
        bench = replace(bench, settings=settings_of(taken, settings))
        events, past = past_of(store, job_id)
        journal = Journal(store, job_id, observe, events, owner=owner)
        return run_here(store, job_id, owner, bench, keeps["device"], journal, stop, past)


def run_batch_here(batch_id: int, *, settings: Settings, store: Store, told: Told, stop: Stop) -> None:
    """Run the jobs of a batch that wait, one after the other, until none is left or a stop is requested.

    Workers may take of them meanwhile. A job that fails ends nothing but itself.

    Raises:
        SandboxUnavailable: there is no sandbox to work with; the jobs wait as before.
        JobLost: others took this process for dead and have the job that it ran.
    """
    tried: list[int] = []
    while not stop.requested():
        settle(store)
        with store.read() as session:
            job_id = batches.next_waiting(session, batch_id, but=tried)
        if job_id is None:
            return
        tried.append(job_id)
        observe = told(get_job(store, job_id))
        try:
            run_queued(job_id, settings=settings, store=store, observe=observe, stop=stop)
        except (SandboxUnavailable, JobLost):
            raise
        except Exception as error:
            _fail(store, job_id, error)


def _fail(store: Store, job_id: int, error: Exception) -> None:
    """Have a job end that could not begin, or broke off as it did; one that ran has said so itself."""
    text = str(error) if isinstance(error, BadRequest) else f"{type(error).__name__}: {error}"
    owner = this_process()
    job = get_job(store, job_id)
    with store.write() as session:
        if job.status is JobStatus.QUEUED:
            queued.take_job(session, job_id, job.attempt, owner, worker_id=None, sandbox="")
        end_job(session, job_id, owner, status=JobStatus.FAILED, reason="error", detail=text)
