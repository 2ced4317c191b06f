"""Running a batch in this process, with what it does on stderr."""

import contextlib

from db.records import JobRecord, JobStatus
from db.store import Store
from service.batches import BatchDetails
from service.cli.output import note, plain
from service.cli.progress import showing
from service.cli.signals import stopping_on_signals
from service.journal import Observer
from service.queued_here import run_batch_here
from service.settings import Settings
from service.stopping import Stop


def run_here(details: BatchDetails, *, settings: Settings, store: Store, stop: Stop) -> None:
    """Run the jobs of a batch that wait, one after the other, each with the picture that `optimize` shows.

    Raises:
        SandboxUnavailable: there is no sandbox to work with.
    """
    waiting = details.line.counts.get(JobStatus.QUEUED, 0)
    several = len({group.model for group in details.groups}) > 1
    number = 0
    note(f"batch {details.line.batch.id}: {waiting} of {details.line.jobs} jobs to run here, one after the other")
    with contextlib.ExitStack() as shown, stopping_on_signals(stop):

        def told(job: JobRecord) -> Observer:
            nonlocal number
            number += 1
            shown.close()  # the picture of the job before
            return shown.enter_context(showing(title_of(job, number, waiting, several=several)))

        run_batch_here(details.line.batch.id, settings=settings, store=store, told=told, stop=stop)


def title_of(job: JobRecord, number: int, waiting: int, *, several: bool) -> str:
    """What stands above the picture of a batch's job: `several` says that the batch has more than one model."""
    title = f"[{number}/{waiting}] {plain(job.task.ref)}"
    title += f" with {plain(job.model)}" if several else ""
    return title + (f", sample {job.sample}" if (job.sample or 1) > 1 else "")
