"""Reading jobs, cancelling and ending them, and marking those whose process died."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from agents.history import leading_place
from agents.protocols import JSON, Event, Outcome, ResumeState
from agents.replay import resume_state_from_events
from db.accounts.audit import add_change_of_anothers
from db.errors import StoreError
from db.evaluations import results
from db.jobs import batches, job_queue, jobs
from db.leaderboard.standings import candidate_figure
from db.locks import heartbeat_age_s
from db.records import EvaluationRecord, EventRecord, JobRecord, JobStatus, Owner
from db.store import Store
from db.tables import LOCAL_USER
from service.jobs.activity import Activity, read_activity
from service.jobs.liveness import LOST_AFTER_S, died_on_this_host, is_dead, runs_on_this_host
from service.jobs.memory import NOTHING_TOLD, ToldMemory, read_told
from service.jobs.pooled_figure import leaderboard_text
from tasks.outcomes import NO_CANDIDATE, NOT_EVALUATED, UNDER_WAY

WORKER_LOST = "worker_lost"
"""The event of a job whose worker died or was cut off; others go on with it."""

REMEASURED = "remeasured"
"""The event of a job that is done, and whose best candidate was measured again because the device had been busy."""

_END = ("job_stopped", "ended")
_AFTER_THE_END = (REMEASURED, WORKER_LOST)  # they do not say that the job goes on


@dataclass(frozen=True)
class RoundLine:
    """One round of a job as people read it.

    Attributes:
        change: what the candidate was meant to change.
        retracted: whether the evaluation was taken back.
        tags: remarks on the candidate that passed; they also say what its figures are made of.
        over_best: the speedup over the best candidate of that time; None: there was none, or it was not timed.
        decision: what the trial says of it beside that one.
        variants: the candidates of the round, in order, if the Coder handed in several; the round's own fields are then
            those of the one that stands for it. A variant's `change` is what sets it apart.
    """

    number: int
    change: str
    verdict: str
    code: str | None = None
    message: str = ""
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    candidate_hash: str | None = None
    best: bool = False
    retracted: bool = False
    tags: tuple[str, ...] = ()
    over_best: float | None = None
    decision: str | None = None
    variants: tuple["RoundLine", ...] = ()

    @property
    def others(self) -> tuple["RoundLine", ...]:
        """The variants but the one that stands for the round."""
        return tuple(each for each in self.variants if each.candidate_hash != self.candidate_hash)

    @property
    def outcome(self) -> str:
        """The verdict in words, with its code and whether it was taken back."""
        found = self.verdict if self.code is None else f"{self.verdict} ({self.code})"
        return f"{found}, retracted" if self.retracted else found


@dataclass(frozen=True)
class JobEnd:
    """What is known when a job ends, beyond its row.

    Attributes:
        unsettled_usd: the most that calls whose reply was lost may have cost.
        summary: figures of the strategy.
        unpriced_calls: calls whose price is unknown; the dollars of a job with such calls are too low.
    """

    unsettled_usd: float = 0.0
    summary: Mapping[str, Any] = field(default_factory=dict)
    unpriced_calls: int = 0


@dataclass(frozen=True)
class JobDetails:
    """A job, its rounds and its best candidate so far.

    `on_leaderboard` is what the leaderboard says of that candidate, beyond `best`; empty if that is all. `activity` is
    what it is doing, if it has not ended. `told` is what it was told of earlier jobs.
    """

    job: JobRecord
    rounds: tuple[RoundLine, ...]
    best: EvaluationRecord | None
    end: JobEnd
    on_leaderboard: str = ""
    activity: Activity | None = None
    told: ToldMemory = NOTHING_TOLD


def list_jobs(
    store: Store,
    *,
    kind: str | None = None,
    status: JobStatus | None = None,
    user: str | None = None,
    model: str | None = None,
    task: str | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[JobRecord]:
    """Jobs, newest first. Each argument but None is a condition.

    Args:
        store: The store.
        kind: `optimize` or `evaluate`.
        status: The status.
        user: The user who submitted the job.
        model: The model.
        task: The task as `suite/name`.
        before: Only jobs with a lower id.
        limit: At most so many.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        return jobs.list_jobs(
            session, kind=kind, status=status, user=user, model=model, task=task, before=before, limit=limit
        )


def get_job(store: Store, job_id: int) -> JobRecord:
    """A job as it stands.

    Raises:
        NotInStore: there is none with this id.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        return jobs.get_job(session, job_id)


def show_job(store: Store, job_id: int) -> JobDetails:
    """A job with its rounds.

    Raises:
        NotInStore: there is none with this id.
    """
    job = get_job(store, job_id)
    with store.read() as session:
        best = None if job.best_evaluation_id is None else results.get_evaluation(session, job.best_evaluation_id)
        on_leaderboard = "" if best is None else leaderboard_text(candidate_figure(session, best), best.id)
        judged = results.list_retracted(session, job_id)
        rows = results.list_events(session, job_id)
        events = [Event(event.kind, event.round, event.data) for event in rows]
        activity, told = read_activity(session, job, rows), read_told(session, events)
    lines = round_lines(events, None if best is None else best.candidate_hash, judged)
    return JobDetails(job, lines, best, last_end(events), on_leaderboard, activity, told)


def cancel_job(
    store: Store, job_id: int, *, actor: str = LOCAL_USER, check_owner: Callable[[str], None] = lambda _: None
) -> JobRecord:
    """Cancel a job. The process of a running one notices within two seconds. A job that has ended stays as it is.

    Args:
        store: the store.
        job_id: the job.
        actor: who cancels it, for the audit log if it is another's job.
        check_owner: raises for a job of whose owner `actor` may not cancel any.

    Raises:
        NotInStore: there is none with this id.
    """
    mark_dead_jobs(store)
    with store.write() as session:
        job = jobs.get_job(session, job_id)
        check_owner(job.user)
        jobs.request_cancel(session, job_id)
        after = jobs.get_job(session, job_id)
        if (job.status, job.cancel_requested) != (after.status, after.cancel_requested):
            add_change_of_anothers(session, actor=actor, owner=job.user, action="job.cancel", subject=f"job/{job_id}")
        return after


def end_job(
    session: Session,
    job_id: int,
    owner: Owner,
    *,
    status: JobStatus,
    reason: str,
    detail: str = "",
    round_number: int = 0,
) -> bool:
    """End a job that `owner` runs, and record the event; False if another process has it by now.

    With a run over a model that is cancelled or fails, the jobs of its regions end: it may have been cancelled just
    before they were queued.
    """
    error = detail if status is JobStatus.FAILED else None
    ended = jobs.finish_job(session, job_id, owner, status=status, stop_reason=reason, error=error)
    if ended:
        results.add_event(session, job_id, "ended", round_number, {"reason": reason, "detail": detail})
        if status in (JobStatus.CANCELLED, JobStatus.FAILED):
            batches.cancel_regions(session, job_id)
    return ended


def cancel_requested(store: Store, job_id: int) -> bool:
    """Whether a job's cancellation was requested; False while the store does not answer."""
    try:
        with store.read() as session:
            return jobs.cancel_requested(session, job_id)
    except StoreError:
        return False


def mark_dead_jobs(store: Store) -> None:
    """Mark running jobs whose process died as interrupted; those of a worker are queued again.

    A command on another host counts as dead after the same silence as a lost worker.
    """
    with store.read() as session:
        dead = [job for job in jobs.list_jobs(session, status=JobStatus.RUNNING) if _is_dead(session, job)]
    if not dead:
        return
    with store.write() as session:
        for job in dead:
            if job.worker_id is not None:
                job_queue.requeue_job(session, job.id, worker_id=job.worker_id)
            elif job.owner is not None:
                jobs.mark_interrupted(session, job.id, job.owner, job.heartbeat_at)


def _is_dead(session: Session, job: JobRecord) -> bool:
    if job.owner is None:
        return False
    # Of workers, only those of this machine: reconcilers take care of the rest.
    if died_on_this_host(job.owner) or job.worker_id is not None:
        return died_on_this_host(job.owner)
    if job.heartbeat_at is None:  # an earlier version runs it
        return is_dead(job.owner)
    return not runs_on_this_host(job.owner) and heartbeat_age_s(session, job.heartbeat_at) > LOST_AFTER_S


def read_events(store: Store, job_id: int) -> list[Event]:
    """A job's events without their large parts: sources of candidates, prompts and replies."""
    with store.read() as session:
        return [Event(event.kind, event.round, event.data) for event in results.list_events(session, job_id)]


def read_full_events(store: Store, job_id: int) -> list[Event]:
    """A job's events as the agents recorded them."""
    with store.read() as session:
        sources = results.list_candidate_sources(session, job_id)
        calls = {call.key: call for call in results.list_llm_calls(session, job_id) if call.key is not None}
    whole = []
    for event in read_events(store, job_id):
        data: dict[str, Any] = dict(event.data)
        if event.kind == "candidate":
            data["source"] = sources[str(data["hash"])]
        elif event.kind == "llm_call" and data.get("key") in calls:
            call = calls[data["key"]]
            data |= {"messages": call.messages, "reply": call.reply}
            data |= {"reasoning": call.reasoning, "tool_calls": call.tool_calls}
        whole.append(Event(event.kind, event.round, data))
    return whole


def load_resume_state(store: Store, job_id: int) -> tuple[list[Event], ResumeState]:
    """A job's events, and what they say about work that was done and paid for."""
    events = read_full_events(store, job_id)
    return events, resume_state_from_events(events, wall_s=worked_s(store, job_id))


def worked_s(store: Store, job_id: int) -> float:
    """For how many seconds a job was run: from each start to its stop, or to the last event before the next start."""
    with store.read() as session:
        return time_worked_s(results.list_events(session, job_id))


def time_worked_s(events: Sequence[EventRecord]) -> float:
    """For how many seconds a job was run, by all of its events; see `worked_s`."""
    total_s, began, last, stopped = 0.0, None, None, False
    for event in events:
        if event.created_at is None or event.kind == WORKER_LOST:  # which is noticed later
            continue
        if event.kind == "job_started":
            total_s += (last - began).total_seconds() if began and last else 0.0
            began, stopped = event.created_at, False
        if not stopped:
            last = event.created_at
        stopped = stopped or event.kind == "job_stopped"
    return total_s + ((last - began).total_seconds() if began and last else 0.0)


def last_end(events: Sequence[Event]) -> JobEnd:
    """What the last `job_stopped` event says; only the number of unpriced calls for a job that has not ended."""
    unpriced = sum(event.kind == "llm_call" and event.data.get("cost_usd") is None for event in events)
    for event in reversed(events):
        if event.kind == "job_stopped":
            data: Mapping[str, Any] = event.data
            return JobEnd(float(data.get("unsettled_usd") or 0.0), data.get("summary") or {}, unpriced)
    return JobEnd(unpriced_calls=unpriced)


def round_lines(
    events: list[Event], best: str | None = None, judged: Sequence[tuple[str, int, bool]] = ()
) -> tuple[RoundLine, ...]:
    """The rounds of a job, from its events; the last one may be under way, unless the job has ended.

    Args:
        events: the job's events.
        best: the hash of the best candidate.
        judged: what `db.evaluations.results.retractions` returns for the job.
    """
    lines: dict[int, RoundLine] = {}
    candidates: dict[int, dict[str, RoundLine]] = {}  # by round and hash
    said: dict[tuple[int, str], Mapping[str, Any]] = {}  # by round and hash: the last evaluation
    best_in: dict[int, str] = {}  # by round: the candidate of it that became the best last
    changes = {1: "first candidate"}
    over = False
    for event in events:
        number, data = event.round, event.data
        if event.kind not in _AFTER_THE_END:
            over = event.kind in _END
        match event.kind:
            case "advice":
                changes[number + 1] = str(data.get("change", ""))
            case "round_started":
                lines[number] = RoundLine(number, changes.get(number, ""), UNDER_WAY)
            case "candidate" if number in lines:
                change, digest = str(data.get("change") or lines[number].change), str(data["hash"])
                lines[number] = replace(
                    lines[number], candidate_hash=lines[number].candidate_hash or digest, change=change
                )
                own = RoundLine(number, str(data.get("label") or ""), UNDER_WAY, candidate_hash=digest)
                candidates.setdefault(number, {})[digest] = own
            case "evaluated" | "proved":  # what was proved in the end takes the place of the trial's figures
                lines.setdefault(number, RoundLine(number, changes.get(number, ""), ""))
                digest = str(data["candidate_hash"])
                known = candidates.setdefault(number, {}).get(digest, RoundLine(number, "", ""))
                candidates[number][digest] = _evaluated_line(known, data)
                if event.kind == "evaluated" or (number, digest) not in said:
                    said[number, digest] = data
            case "best":
                best_in[number] = str(data["hash"])
            case "round_done" if data.get("verdict") == NO_CANDIDATE and number in lines:
                lines[number] = replace(lines[number], verdict=NO_CANDIDATE)
            case "round_done":
                for digest, line in candidates.get(number, {}).items():
                    if (number, digest) not in said:
                        candidates[number][digest] = replace(line, verdict=NOT_EVALUATED)
    shown = []
    for number in sorted(lines):
        if over:
            lines[number] = _ended(lines[number])
            candidates[number] = {digest: _ended(each) for digest, each in candidates.get(number, {}).items()}
        found = [replace(each, retracted=_is_retracted(each, judged)) for each in candidates.get(number, {}).values()]
        evaluated = [each for each in found if (number, each.candidate_hash) in said]
        trials = [said[number, str(each.candidate_hash)] for each in evaluated]
        leading = _leading(evaluated, trials, best_in.get(number), best)
        line = lines[number] if leading is None else replace(leading, change=lines[number].change)
        line = replace(line, retracted=_is_retracted(line, judged))
        shown.append(replace(line, variants=tuple(found) if len(found) > 1 else ()))
    marked = next((line.number for line in shown if best and line.candidate_hash == best and not line.retracted), None)
    return tuple(_marked(line, best) if line.number == marked else line for line in shown)


def _ended(line: RoundLine) -> RoundLine:
    """A line of a job that has ended."""
    return replace(line, verdict=NOT_EVALUATED) if line.verdict == UNDER_WAY else line


def _evaluated_line(known: RoundLine, data: Mapping[str, Any]) -> RoundLine:
    """A candidate's line with the figures of its evaluation. A proof leaves what the trial said beside the best."""
    over_best = _number(data.get("over_champion"))
    return replace(
        known,
        verdict=str(data["verdict"]),
        code=None if data.get("code") is None else str(data["code"]),
        message=str(data.get("message") or ""),
        speedup=_number(data.get("speedup")),
        speedup_low=_number(data.get("speedup_low")),
        speedup_high=_number(data.get("speedup_high")),
        candidate_hash=str(data["candidate_hash"]),
        tags=_texts(data.get("tags")),
        over_best=known.over_best if over_best is None else over_best,
        decision=known.decision if data.get("decision") is None else str(data["decision"]),
    )


def _leading(
    evaluated: Sequence[RoundLine], trials: Sequence[Mapping[str, Any]], best_in: str | None, best: str | None
) -> RoundLine | None:
    """The candidate that stands for a round: the job's best, or else the one that the agents chose; None: none yet."""
    if not evaluated:
        return None
    repeats = [place for place, data in enumerate(trials) if data.get("repeat_of_round") is not None]
    for place, line in enumerate(evaluated):
        if best and line.candidate_hash == best and place not in repeats:
            return line
    return evaluated[leading_place([Outcome.from_json(data) for data in trials], repeats, best_in)]


def _marked(line: RoundLine, best: str | None) -> RoundLine:
    """The line of the round with the job's best candidate."""
    variants = tuple(replace(each, best=each.candidate_hash == best) for each in line.variants)
    return replace(line, best=True, variants=variants)


def _texts(value: JSON) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else ()


def _is_retracted(line: RoundLine, judged: Sequence[tuple[str, int, bool]]) -> bool:
    """Whether the evaluation of a round was taken back: its own, or that of the round which it repeats."""
    found = [(number, retracted) for digest, number, retracted in judged if digest == line.candidate_hash]
    own = [retracted for number, retracted in found if number == line.number]
    every = own or [retracted for _, retracted in found]
    return bool(every) and every[-1]


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
