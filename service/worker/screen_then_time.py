"""Screens a queued job's candidates first, and has only those that survive timed on a device.

A GPU's time is dear, and most candidates that reach one die of what a host without one finds: a compile error, an index
out of bounds, a race, a wrong result. Workers without a device screen, workers with one time; which of them are
connected is looked up for each candidate, so that a worker may come and go while a job runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from db.records import EvaluationRecord, WorkerRecord
from service.worker.queued_evaluator import QueuedEvaluator
from tasks.outcomes import Verdict


@dataclass(frozen=True)
class Place:
    """Where an evaluation can be had: a device class and a sandbox with a worker."""

    kind: str
    sandbox: str


@dataclass(frozen=True)
class Places:
    """Who screens and who times, as far as any worker does."""

    screens: Place | None
    times: Place | None


def places_of(workers: Sequence[WorkerRecord], platform: str, screened_device: str, *, begun_on: str) -> Places:
    """Where a platform's candidates are screened and timed.

    Args:
        workers: those that live.
        platform: the platform.
        screened_device: how the platform calls the device of workers that screen.
        begun_on: the device class that the job began on, which comes first: times on several are not comparable.
    """
    screens: list[Place] = []
    times: list[Place] = []
    for each in workers:
        if each.platform == platform:
            (screens if each.device == screened_device else times).append(Place(each.kind, each.sandbox))
    first = [
        sorted(found, key=lambda place: (place.kind != begun_on, place.kind, place.sandbox))
        for found in (screens, times)
    ]
    return Places(*(found[0] if found else None for found in first))


class ScreeningEvaluator:
    """A `service.jobs.run.JobEvaluator` whose result is that of screening, or of timing what survived it.

    Args:
        find: who screens and who times.
        at: the evaluator of a place; the name distinguishes the evaluations of a candidate.
        here: the place of the worker that runs the job, which is asked where none seems to live: then its own
            heartbeat was late.
    """

    def __init__(self, find: Callable[[], Places], at: Callable[[Place, str], QueuedEvaluator], here: Place) -> None:
        self._find = find
        self._at = at
        self._here = here
        self._times: Place | None = None

    def __call__(
        self, source: str, *, round_number: int, profile: bool, trial: bool, champion: str | None
    ) -> EvaluationRecord:
        """As `JobEvaluator`. Once a class of devices has timed a candidate of the job, it times all later ones."""
        places = self._find()
        times = self._times = self._times or places.times
        if places.screens is not None:
            screened = self._at(places.screens, "screening")(
                source, round_number=round_number, profile=profile and times is None, trial=False, champion=None
            )
            if times is None or screened.verdict != Verdict.SCREENED:
                return screened
        return self._at(times or self._here, "timing")(
            source, round_number=round_number, profile=profile, trial=trial, champion=champion
        )

    def prepare(self) -> None:
        """Do nothing: the evaluating workers prepare their own referees."""
