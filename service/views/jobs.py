"""The views of jobs: a list of jobs, and one job with its rounds, advice and log."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agents.protocols import Event
from db.evaluations import results
from db.jobs import jobs
from db.leaderboard.standings import candidate_figure
from db.records import OPEN, EvaluationRecord, EventRecord, JobRecord, JobStatus, Measurements
from db.store import Store
from evaluator.evaluation import noise_of
from service.jobs.activity import Activity, read_activity
from service.jobs.limits import LimitLine, limit_lines
from service.jobs.memory import NOTHING_TOLD, ToldMemory, read_told
from service.jobs.pooled_figure import leaderboard_text
from service.jobs.query import RoundLine, mark_dead_jobs, round_lines
from service.transcripts.render import event_line, tokens_text, variant_text
from service.views.evaluation import Ratio, number, ratio
from service.views.wording import REMEDIES, STOPS, tokens_of_job
from tasks.outcomes import UNRANKED, WALL, Clock, clock_of, is_ranked, is_reliable

MAX_LOG_LINES = 400


@dataclass(frozen=True)
class JobLine:
    """A job in a list, with the speedup of its best candidate, whether it has no rank, and what it is made of."""

    job: JobRecord
    speedup: Ratio | None
    unreliable: bool
    clock: Clock = WALL


@dataclass(frozen=True)
class JobList:
    """A page of jobs, newest first.

    Attributes:
        lines: the jobs.
        next_before: the next page holds jobs with a lower id than this; None on the last page.
        counts: the number of jobs by status.
    """

    lines: tuple[JobLine, ...]
    next_before: int | None
    counts: Mapping[str, int]


@dataclass(frozen=True)
class RoundView:
    """A round with the latency of its candidate, and the variants that do not stand for it, each as such a view."""

    line: RoundLine
    others: tuple["RoundView", ...] = ()
    unreliable: bool = False
    repeat_of_round: int | None = None
    candidate_ms: float | None = None
    roofline_fraction: float | None = None
    speedup_compile: float | None = None

    @property
    def own_variant(self) -> RoundLine | None:
        """The variant that stands for the round; None: the round has one candidate."""
        return next((each for each in self.line.variants if each.candidate_hash == self.line.candidate_hash), None)

    @property
    def clock(self) -> Clock:
        """What its latency and speedups are made of."""
        return clock_of(self.line.tags)


@dataclass(frozen=True)
class AdviceView:
    """The Judge's advice after a round."""

    round: int
    bottleneck: str
    change: str
    evidence: tuple[str, ...]
    expected_speedup: float | None
    lessons: tuple[str, ...]
    stop: bool


@dataclass(frozen=True)
class LogLine:
    """One line of a job's log."""

    at: datetime | None
    text: str


@dataclass(frozen=True)
class BestPoint:
    """A point of a job's curve: the speedup of a round unless it was retracted, and the best reliable one so far."""

    round: int
    speedup: float | None
    low: float | None
    high: float | None
    best: float | None
    verdict: str


@dataclass(frozen=True)
class JobView:
    """A job in its present state.

    `on_leaderboard` is what the leaderboard says of the best candidate, beyond `best_ratio`; empty if that is all.
    `limits` are those that it may be given more of, once it has ended; `activity` is what it does until then.
    `told` is what it was told of earlier jobs, and `evidence` the job and the candidate of each evaluation that this
    rests on, by its id.
    """

    job: JobRecord
    rounds: tuple[RoundView, ...]
    advice: tuple[AdviceView, ...]
    log: tuple[LogLine, ...]
    log_left_out: int
    best: EvaluationRecord | None
    best_ratio: Ratio | None
    on_leaderboard: str
    curve: tuple[BestPoint, ...]
    stop_words: str
    remedy: str
    limits: tuple[LimitLine, ...]
    activity: Activity | None
    last_event: int
    told: ToldMemory = NOTHING_TOLD
    evidence: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def best_counts(self) -> bool:
        """Whether the figures of the best candidate give it a rank; those of a trial do not."""
        return self.best is not None and is_ranked(self.best.tags)

    @property
    def tags_without_rank(self) -> tuple[str, ...]:
        """The tags of the best candidate that say why it has no rank."""
        return () if self.best is None else tuple(tag for tag in self.best.tags if tag in UNRANKED)

    @property
    def noise(self) -> float | None:
        """The load of other programs while the best candidate was timed; None if nobody knows."""
        profile = None if self.best is None else self.best.result.get("profile")
        return noise_of(profile) if isinstance(profile, Mapping) else None

    @property
    def is_open(self) -> bool:
        """Whether the job has not ended."""
        return self.job.status in OPEN

    @property
    def clock(self) -> Clock:
        """What the latencies and speedups of its candidates are made of."""
        return clock_of({tag for each in self.rounds for tag in each.line.tags})

    @property
    def tokens(self) -> str:
        """The tokens that the job's models used."""
        return tokens_of_job(self.job)

    @property
    def budget(self) -> tuple[tuple[str, str], ...]:
        """The limits of the job's budget, by name."""
        options = self.job.options
        named = (
            ("budget_usd", "dollars", "${:g}"),
            ("budget_tokens", "tokens", "{:,}"),
            ("budget_s", "time", "{:g} s"),
            ("budget_evaluations", "evaluations", "{}"),
        )
        return tuple((what, shape.format(value)) for key, what, shape in named if (value := options.get(key)))


def job_list(store: Store, *, status: str | None, before: int | None, limit: int = 50) -> JobList:
    """A page of jobs that optimize an op, newest first.

    Raises:
        ValueError: there is no such status.
    """
    wanted = None if status is None else JobStatus(status)
    mark_dead_jobs(store)
    with store.read() as session:
        found = jobs.list_jobs(session, kind="optimize", status=wanted, before=before, limit=limit + 1)
        counts = jobs.count_by_status(session)
    more = len(found) > limit
    found = found[:limit]
    return JobList(job_lines(store, found), found[-1].id if more else None, counts)


def job_lines(store: Store, found: Sequence[JobRecord]) -> tuple[JobLine, ...]:
    """Jobs with their best speedups."""
    with store.read() as session:
        best = results.list_measurements(session, [job.best_evaluation_id for job in found if job.best_evaluation_id])
    return tuple(_line(job, best.get(job.best_evaluation_id or "")) for job in found)


def job_view(store: Store, job_id: int) -> JobView:
    """One job with its rounds, advice and log.

    Raises:
        NotInStore: there is no job with this id.
    """
    mark_dead_jobs(store)
    with store.read() as session:
        job = jobs.get_job(session, job_id)
        events = results.list_events(session, job_id)
        advice = results.list_advice(session, job_id)
        best = None if job.best_evaluation_id is None else results.get_evaluation(session, job.best_evaluation_id)
        on_leaderboard = "" if best is None else leaderboard_text(candidate_figure(session, best), best.id)
        judged = results.list_retracted(session, job_id)
        activity = read_activity(session, job, events)
        told = read_told(session, [Event(event.kind, event.round, event.data) for event in events])
        evidence = results.list_places(session, sorted(told.memory.evidence))
    rounds = _rounds(events, None if best is None else best.candidate_hash, judged)
    log = [line for event in events if (line := _log_line(event)) is not None]
    measurements = None if best is None else best.measurements
    reason = job.stop_reason or ""
    best_in = {event.round for event in events if event.kind == "best"}
    best_in |= {each.line.number for each in rounds if each.line.best}
    return JobView(
        job=job,
        rounds=rounds,
        advice=tuple(_advice(number_, value) for number_, value in advice.items()),
        log=tuple(log[-MAX_LOG_LINES:]),
        log_left_out=max(len(log) - MAX_LOG_LINES, 0),
        best=best,
        best_ratio=None
        if measurements is None
        else ratio(measurements.speedup, measurements.speedup_low, measurements.speedup_high),
        on_leaderboard=on_leaderboard,
        curve=_curve(rounds, best_in),
        stop_words=STOPS.get(reason, reason),
        remedy=REMEDIES.get(reason, ""),
        limits=limit_lines(job, events),
        activity=activity,
        last_event=events[-1].id if events else 0,
        told=told,
        evidence=evidence,
    )


def log_text(event: EventRecord) -> str | None:
    """An event as one line of the log; None for events that the log leaves out."""
    data = event.data
    match event.kind:
        case "candidate":
            repeat = data.get("repeat_of_round")
            what = f"the same file as in round {repeat}" if repeat else "a new candidate"
            return f"round {event.round}: {what}{variant_text(data)}"
        case "evaluation_started":
            return f"round {event.round}: evaluating"
        case "proof_started":
            return f"round {event.round}: measuring the best candidate once more, at full precision"
        case "evaluated" | "proved":
            return f"round {event.round}: {data.get('verdict')}, {data.get('message')}"
        case "llm_call":
            tokens = tokens_text(str(data.get("model")), data.get("prompt_tokens"), data.get("completion_tokens"))
            return f"round {event.round}: the {data.get('role')} answered ({tokens})"
        case "step":
            return str(data.get("text") or "") or None
    return event_line(event)


def _line(job: JobRecord, best: tuple[Measurements, tuple[str, ...]] | None) -> JobLine:
    if best is None:
        return JobLine(job, None, False)
    measurements, tags = best
    speedup = ratio(measurements.speedup, measurements.speedup_low, measurements.speedup_high)
    return JobLine(job, speedup, not is_ranked(tags), clock_of(tags))


def _log_line(event: EventRecord) -> LogLine | None:
    text = log_text(event)
    return None if text is None else LogLine(event.created_at, text)


def _rounds(
    events: Sequence[EventRecord], best: str | None, judged: Sequence[tuple[str, int, bool]]
) -> tuple[RoundView, ...]:
    lines = round_lines([Event(event.kind, event.round, event.data) for event in events], best, judged)
    said = {
        (event.round, event.data.get("candidate_hash")): event.data
        for event in events
        if event.kind in ("evaluated", "proved")
    }
    return tuple(_round(line, said) for line in lines)


def _round(line: RoundLine, said: Mapping[tuple[int, object], Mapping[str, Any]]) -> RoundView:
    data = said.get((line.number, line.candidate_hash), {})
    latency = data.get("latency_ms")
    repeat = data.get("repeat_of_round")
    return RoundView(
        line=line,
        others=tuple(_round(each, said) for each in line.others),
        unreliable=not is_reliable(line.tags),
        repeat_of_round=repeat if isinstance(repeat, int) else None,
        candidate_ms=number(latency.get("candidate")) if isinstance(latency, Mapping) else None,
        roofline_fraction=number(data.get("roofline_fraction")),
        speedup_compile=number(data.get("speedup_compile")),
    )


def _curve(rounds: Sequence[RoundView], best_in: Collection[int]) -> tuple[BestPoint, ...]:
    """Each round's speedup, and that of the best candidate by then. `best_in`: the rounds that became the best."""
    points: list[BestPoint] = []
    best: float | None = None
    for each in rounds:
        line = each.line
        if line.retracted:
            points.append(BestPoint(line.number, None, None, None, best, line.verdict))
            continue
        if line.speedup is not None and line.number in best_in:
            best = line.speedup
        points.append(BestPoint(line.number, line.speedup, line.speedup_low, line.speedup_high, best, line.verdict))
    return tuple(points)


def _advice(round_number: int, data: Mapping[str, Any]) -> AdviceView:
    return AdviceView(
        round=round_number,
        bottleneck=str(data.get("bottleneck") or ""),
        change=str(data.get("change") or ""),
        evidence=_texts(data.get("evidence")),
        expected_speedup=number(data.get("expected_speedup")),
        lessons=_texts(data.get("lessons")),
        stop=data.get("stop") is True,
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value[:20]) if isinstance(value, list) else ()
