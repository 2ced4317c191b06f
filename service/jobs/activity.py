"""What a job is doing now, how long it usually takes, and whom it waits for."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from agents.llm.models import is_builtin
from db.evaluations import results
from db.jobs import job_queue, jobs, workers
from db.records import CostRecord, EventRecord, JobRecord, JobStatus, WorkerStatus
from db.types import utc_now
from evaluator.phases import BEFORE, PHASES, QUEUED, STARTING, WAITING, doing, phase_seconds
from service.jobs.liveness import LOST_AFTER_S
from service.jobs.phase_notes import PHASE
from tasks.outcomes import RIGHT

MODEL = "model"
"""The phase of a job that waits for the reply of a model."""

_KINDS = (
    *("job_started", "round_started", "llm_started", "llm_call", "llm_failed", "reply_rejected", "candidate"),
    *("evaluation_started", "proof_started", PHASE, "evaluated", "proved", "round_done", "job_stopped", "ended"),
)
_LOOKED_AT = 200  # running jobs, when one waits
_NAMED = 5  # of them, those that are named
_COSTS = 60  # the newest evaluations that say how long one takes
_ENOUGH = 3  # evaluations of the same task, to look at no others
_SHORTEST_S = 0.05  # a phase that is usually shorter is not listed before it begins


@dataclass(frozen=True)
class PhaseTime:
    """A phase of an evaluation: how long it took or has been going on (None: it is to come), and usually takes."""

    name: str
    doing: str
    now: bool
    elapsed_s: float | None
    usual_s: float | None


@dataclass(frozen=True)
class Waiting:
    """Why nothing happens.

    Attributes:
        ahead: how many are served before.
        held_by: the ids of the jobs that have what it waits for, five at most.
        doing: what the first of them does, in words.
        workers: the workers alive that could serve it; None: it does not wait for one.
    """

    ahead: int
    held_by: tuple[int, ...]
    doing: str
    workers: int | None = None


@dataclass(frozen=True)
class Activity:
    """What a job is doing.

    Attributes:
        phase: `model`, or a phase of an evaluation (`evaluator.phases`).
        doing: that in words.
        since: when the phase began.
        elapsed_s: how long it has been doing it: the whole evaluation without its wait, a call, or the wait.
        usual_s: how long that usually takes, by earlier ones; None: nobody knows.
        round: the round.
        candidate_hash: the candidate that is evaluated.
        proof: whether the best candidate is measured once more, at full precision.
        phases: those of the evaluation, in order, also those that are to come; empty if nothing is known of them.
        waiting: why nothing happens, if it waits.
    """

    phase: str
    doing: str
    since: datetime | None
    elapsed_s: float
    usual_s: float | None
    round: int
    candidate_hash: str | None = None
    proof: bool = False
    phases: tuple[PhaseTime, ...] = ()
    waiting: Waiting | None = None


@dataclass(frozen=True)
class _Now:
    """The last thing that a job's events say it has begun."""

    phase: str
    round: int
    at: datetime | None
    model: str = ""
    text: str = ""
    hash: str | None = None
    proof: bool = False
    begun: tuple[tuple[str, datetime | None], ...] = ()
    device: str = ""
    places: tuple[str, ...] = ()


def read_activity(session: Session, job: JobRecord, events: Sequence[EventRecord]) -> Activity | None:
    """What an open job is doing by its events; None: it has ended, or is between two things."""
    if job.status is JobStatus.QUEUED:
        return _queued(session, job)
    now = _last_begun(job, events) if job.status is JobStatus.RUNNING else None
    if now is None:
        return None
    found = Activity(now.phase, now.text, now.at, _since(now.at), None, now.round, now.hash, now.proof)
    if now.phase == MODEL:
        return replace(found, usual_s=_usual_call_s(events, now))
    if now.phase in BEFORE:
        return replace(found, waiting=_waits_for(session, job, now))
    if now.hash is None:
        return found
    usual = _usual_phases(session, job, now)
    phases = _phase_times(now, usual)
    return replace(
        found,
        elapsed_s=sum(each.elapsed_s or 0.0 for each in phases if each.name not in BEFORE),
        usual_s=sum(usual.values()) if usual else None,
        phases=phases,
    )


def _last_begun(job: JobRecord, events: Sequence[EventRecord]) -> _Now | None:
    """What a running job does: its evaluation, or the call of a model that has been waited for longest.

    An evaluation that was under way when its process died goes on when it starts again.
    """
    calls: dict[object, _Now] = {}  # those that are not answered yet, by key
    now: _Now | None = None
    pending: _Now | None = None
    device = ""
    first = STARTING if job.worker_id is None else QUEUED
    own = str(job.options.get("candidate_hash")) if job.kind == "evaluate" else None
    for event in events:
        data = event.data
        match event.kind:
            case "evaluation_started" | "proof_started":
                now = pending = _Now(
                    first,
                    event.round,
                    event.created_at,
                    text=doing(first),
                    hash=str(data.get("hash")),
                    proof=event.kind == "proof_started",
                    begun=((first, event.created_at),),
                    device=device,
                )
            case "phase":
                phase = str(data.get("phase"))
                device = str(data.get("device") or "")
                before = pending or _Now(phase, event.round, event.created_at, hash=own, proof=own is not None)
                now = replace(
                    before,
                    phase=phase,
                    at=event.created_at,
                    text=doing(phase),
                    begun=(*before.begun, (phase, event.created_at)),
                    device=device,
                    places=_texts(data.get("places")),
                )
                pending = now if pending is not None or own is not None else None
            case "llm_started":
                text = f"the {data.get('role')} answers ({data.get('purpose')})"
                calls[data.get("key")] = _Now(
                    MODEL, event.round, event.created_at, model=str(data.get("model")), text=text
                )
                now = pending
            case "llm_call" | "llm_failed":
                calls.pop(data.get("key"), None)
                now = pending
            case "job_started":
                calls.clear()
                if pending is not None:
                    begun = ((first, event.created_at),)
                    pending = replace(pending, phase=first, at=event.created_at, text=doing(first), begun=begun)
                now = pending
            case "evaluated" | "proved":
                now = pending = None
            case "candidate" | "round_done":
                now = pending
            case "job_stopped" | "ended":
                now = None
                calls.clear()
    return now or next(iter(calls.values()), None)


def _phase_times(now: _Now, usual: Mapping[str, float]) -> tuple[PhaseTime, ...]:
    took: dict[str, float] = {}
    ends = [at for _, at in now.begun[1:]] + [None]
    for (phase, began), end in zip(now.begun, ends, strict=True):
        took[phase] = took.get(phase, 0.0) + _since(began, end)
    shown = {*took, now.phase, *(name for name, seconds in usual.items() if seconds >= _SHORTEST_S)}
    return tuple(
        PhaseTime(phase.name, phase.doing, phase.name == now.phase, took.get(phase.name), usual.get(phase.name))
        for phase in PHASES
        if phase.name in shown
    )


def _usual_phases(session: Session, job: JobRecord, now: _Now) -> dict[str, float]:
    """The median of what each phase of such an evaluation took on this device, in seconds; empty: there was none.

    Evaluations of the same task are asked, if there are enough of them, or else all. A phase that fewer than half of
    them had is left out.
    """
    costs = results.list_costs(session, job.platform, now.device, RIGHT, limit=_COSTS) if now.device else []
    alike = [each for each in costs if each.trial is not now.proof]
    of_task = [each for each in alike if each.task_id == job.task.id]
    asked: list[CostRecord] = of_task if len(of_task) >= _ENOUGH else alike
    seconds = [phase_seconds(each.cost_s) for each in asked]
    names = [phase.name for phase in PHASES if 2 * sum(phase.name in each for each in seconds) > len(seconds)]
    return {name: statistics.median(each[name] for each in seconds if name in each) for name in names}


def _usual_call_s(events: Sequence[EventRecord], now: _Now) -> float | None:
    """The median of what the calls of this model took in the job so far."""
    took = [
        float(event.data["latency_s"])
        for event in events
        if event.kind == "llm_call"
        and event.data.get("model") == now.model
        and isinstance(event.data.get("latency_s"), int | float)
    ]
    return statistics.median(took) if took else None


def _queued(session: Session, job: JobRecord) -> Activity:
    """A job that waits for a worker."""
    running = jobs.list_jobs(session, kind=job.kind, status=JobStatus.RUNNING, limit=_LOOKED_AT)
    held = sorted(each.id for each in running if each.platform == job.platform and each.worker_id is not None)
    alive = [
        each
        for each in workers.list_workers(session, live=True)
        if each.platform == job.platform
        and each.status is WorkerStatus.ALIVE
        and _since(each.heartbeat_at) <= LOST_AFTER_S
    ]
    waiting = Waiting(
        job_queue.count_queued_before(session, job.id), tuple(held[:_NAMED]), "at work" if held else "", len(alive)
    )
    return Activity(QUEUED, "waiting for a worker", job.created_at, _since(job.created_at), None, 0, waiting=waiting)


def _waits_for(session: Session, job: JobRecord, now: _Now) -> Waiting:
    """Which jobs have the device that an evaluation waits for, and how many others wait for it before this one."""
    running = {
        each.id: each
        for each in jobs.list_jobs(session, status=JobStatus.RUNNING, limit=_LOOKED_AT)
        if each.id != job.id
    }
    last = results.last_events(session, list(running), _KINDS)
    held: list[tuple[int, str]] = []
    ahead = 0
    for job_id, event in last.items():
        other, theirs = running[job_id], _last_begun(running[job_id], [event])
        if theirs is None or not _shares_device(job, now, other, theirs):
            continue
        if theirs.phase in BEFORE:
            ahead += _is_before(other, theirs, job, now)
        else:
            held.append((job_id, "the compiler search" if theirs.phase == MODEL else theirs.text))
    held.sort()
    return Waiting(ahead, tuple(job_id for job_id, _ in held[:_NAMED]), held[0][1] if held else "")


def _shares_device(job: JobRecord, now: _Now, other: JobRecord, theirs: _Now) -> bool:
    """Whether what another job does needs the device that an evaluation waits for."""
    if theirs.phase == MODEL and not is_builtin(theirs.model):
        return False
    if now.places and theirs.places:
        return bool({*now.places} & {*theirs.places})
    kinds = [each.options.get("device_kind") for each in (job, other)]
    return other.platform == job.platform and kinds[0] == kinds[1]


def _is_before(other: JobRecord, theirs: _Now, job: JobRecord, now: _Now) -> bool:
    """Whether another job that waits is served before: in the queue by its place, at the device by its time."""
    if WAITING in (theirs.phase, now.phase):
        return theirs.phase == WAITING and (now.phase == QUEUED or _earlier(theirs.at, now.at))
    places = [(each.priority, each.fair_tag) for each in (other, job)]
    return places[0] < places[1] or (places[0] == places[1] and _earlier(theirs.at, now.at))


def _earlier(first: datetime | None, second: datetime | None) -> bool:
    return first is not None and second is not None and first < second


def _since(began: datetime | None, end: datetime | None = None) -> float:
    """Seconds from one moment to another, or to now; clocks of two hosts may differ, so never fewer than 0."""
    return 0.0 if began is None else max(((end or utc_now()) - began).total_seconds(), 0.0)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()
