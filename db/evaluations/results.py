"""What happened in a job: rounds, candidates, evaluations, LLM calls and events."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, Select, and_, exists, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased, defer

from db.errors import NotInStore
from db.leaderboard.standings import update_entries
from db.locks import lock_job
from db.records import (
    MEASUREMENTS,
    CandidateRecord,
    CostRecord,
    EvaluationRecord,
    EventRecord,
    JobStatus,
    JsonValue,
    LlmCall,
    Measurements,
    Noise,
)
from db.tables import CandidateRow, EvaluationRow, EventRow, JobRow, LlmCallRow, RoundRow
from db.types import clean_json
from tasks.outcomes import DISQUALIFYING, GIVEN_WEIGHTS, Verdict

_JOBS_A_QUERY = 200
_EVENTS_A_QUERY = 2000


def add_round(session: Session, job_id: int, number: int) -> None:
    """Store that a round has started. Does nothing if it is stored already."""
    if session.get(RoundRow, (job_id, number)) is None:
        session.add(RoundRow(job_id=job_id, number=number))


def set_advice(session: Session, job_id: int, number: int, advice: Mapping[str, JsonValue]) -> None:
    """Store the Judge's advice after a round."""
    row = session.get(RoundRow, (job_id, number))
    if row is None:
        row = RoundRow(job_id=job_id, number=number)
        session.add(row)
    row.advice = clean_json(advice)


def add_candidate(session: Session, job_id: int, *, round_number: int, candidate_hash: str, source: str) -> int:
    """Store a candidate unless the job has it already.

    Returns:
        The candidate's id.
    """
    key = (CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    found = session.scalar(select(CandidateRow.id).where(*key))
    if found is not None:
        return found
    row = CandidateRow(job_id=job_id, round=round_number, hash=candidate_hash, source=source)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # another process has stored it since the query above
        return session.scalars(select(CandidateRow.id).where(*key)).one()
    return row.id


def add_evaluation(
    session: Session,
    evaluation_id: str,
    *,
    candidate_id: int,
    round_number: int,
    platform: str,
    device: str,
    sandbox: str,
    verdict: str,
    code: str | None,
    message: str,
    tags: Sequence[str],
    measurements: Measurements,
    result: Mapping[str, JsonValue],
    noise: float | None = None,
) -> None:
    """Store an evaluation and count it on the leaderboard. Does nothing if an evaluation with this id is stored.

    `noise`: the load of other programs on the device meanwhile; None if nobody knows.
    """
    job_id = session.scalar(select(CandidateRow.job_id).where(CandidateRow.id == candidate_id))
    if job_id is not None:
        lock_job(session, job_id)
    if session.get(EvaluationRow, evaluation_id) is not None:
        return
    row = EvaluationRow(
        id=evaluation_id,
        candidate_id=candidate_id,
        round=round_number,
        platform=platform,
        device=device,
        sandbox=sandbox,
        verdict=verdict,
        code=code,
        message=message,
        tags=clean_json(tags),
        result=clean_json(result),
        noise=noise,
        **{name: clean_json(value) for name, value in asdict(measurements).items()},
    )
    session.add(row)
    session.flush()
    update_entries(session, row)


def add_llm_call(session: Session, job_id: int, call: LlmCall) -> None:
    """Store a call of a model: the messages, the reply and the cost."""
    values = {**asdict(call), "messages": clean_json(call.messages), "tool_calls": clean_json(call.tool_calls)}
    session.add(LlmCallRow(job_id=job_id, **values))


def add_event(session: Session, job_id: int, kind: str, round_number: int, data: Mapping[str, JsonValue]) -> None:
    """Append an event to a job.

    The job is locked until the transaction ends, so that events become visible in the order of their ids. A reader that
    has read up to an id therefore misses no event below it.
    """
    lock_job(session, job_id)
    session.add(EventRow(job_id=job_id, kind=kind, round=round_number, data=clean_json(data)))


def list_candidates(session: Session, job_id: int) -> list[CandidateRecord]:
    """All candidates of a job, in the order in which they were written."""
    latest = {each.candidate_hash: each for each in list_evaluations(session, job_id)}
    query = select(CandidateRow).where(CandidateRow.job_id == job_id).order_by(CandidateRow.id)
    return [_candidate_record(row, latest.get(row.hash)) for row in session.scalars(query)]


def find_candidate(session: Session, job_id: int, candidate_hash: str) -> CandidateRecord | None:
    """A candidate of a job, or None if the job has no candidate with this hash."""
    query = select(CandidateRow).where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    row = session.scalar(query)
    return None if row is None else _candidate_record(row, find_evaluation(session, job_id, candidate_hash))


def get_evaluation(session: Session, evaluation_id: str) -> EvaluationRecord:
    """The evaluation with this id.

    Raises:
        NotInStore: There is no such evaluation.
    """
    row = session.execute(_evaluations().where(EvaluationRow.id == evaluation_id)).one_or_none()
    if row is None:
        raise NotInStore(f"evaluation {evaluation_id} is not in the store")
    return _evaluation_record(row[0], row[1])


def has_evaluation(session: Session, evaluation_id: str) -> bool:
    """Whether there is an evaluation with this id."""
    return session.scalar(select(EvaluationRow.id).where(EvaluationRow.id == evaluation_id)) is not None


def find_evaluation(
    session: Session,
    job_id: int,
    candidate_hash: str,
    *,
    trial: bool | None = None,
    where: Callable[[EvaluationRecord], bool] = lambda record: True,
) -> EvaluationRecord | None:
    """The latest evaluation of a candidate in a job, or None.

    Args:
        trial: True: a trial, or else any (a round may have been measured in full); False: no trial; None: any.
        where: a condition on it.
    """
    query = _evaluations().where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    rows = session.execute(query.order_by(EvaluationRow.created_at.desc()))
    found = [record for row in rows if where(record := _evaluation_record(*row))]
    of_kind = found if trial is None else [each for each in found if _is_trial(each) is trial]
    return next(iter(of_kind or (found if trial else ())), None)


def count_evaluations(session: Session, job_id: int, candidate_hash: str, verdict: Verdict) -> int:
    """The number of evaluations of a candidate in a job that had this verdict."""
    query = select(func.count()).select_from(EvaluationRow).join(CandidateRow)
    query = query.where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    return session.scalar(query.where(EvaluationRow.verdict == verdict)) or 0


def get_candidate_source(session: Session, job_id: int, candidate_hash: str) -> str:
    """The source of a candidate of a job.

    Raises:
        NotInStore: The job has no such candidate.
    """
    source = session.scalar(
        select(CandidateRow.source).where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    )
    if source is None:
        raise NotInStore(f"job {job_id} has no candidate {candidate_hash[:16]}")
    return source


def list_evaluations(session: Session, job_id: int) -> list[EvaluationRecord]:
    """All evaluations of a job, oldest first."""
    query = _evaluations().where(CandidateRow.job_id == job_id).order_by(EvaluationRow.created_at, EvaluationRow.id)
    return [_evaluation_record(evaluation, candidate) for evaluation, candidate in session.execute(query)]


def list_retracted(session: Session, job_id: int) -> list[tuple[str, int, bool]]:
    """For each evaluation of a job, oldest first: the candidate's hash, the round, and whether it was retracted."""
    query = select(CandidateRow.hash, EvaluationRow.round, EvaluationRow.retracted_at).join(CandidateRow)
    query = query.where(CandidateRow.job_id == job_id).order_by(EvaluationRow.created_at, EvaluationRow.id)
    return [(row.hash, row.round, row.retracted_at is not None) for row in session.execute(query)]


def list_evaluations_of_candidate(
    session: Session, candidate_hash: str, *, task_id: int, limit: int = 50
) -> list[EvaluationRecord]:
    """Evaluations of a candidate in all jobs on this task, newest first. (On another source they prove nothing.)"""
    query = (
        _evaluations()
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(CandidateRow.hash == candidate_hash, JobRow.task_id == task_id)
        .order_by(EvaluationRow.created_at.desc(), EvaluationRow.id)
        .limit(limit)
    )
    return [_evaluation_record(evaluation, candidate) for evaluation, candidate in session.execute(query)]


def list_measurements(
    session: Session, evaluation_ids: Sequence[str]
) -> dict[str, tuple[Measurements, tuple[str, ...]]]:
    """The measurements and the tags of evaluations, by their ids, without reading their large results."""
    rows = session.scalars(
        select(EvaluationRow).where(EvaluationRow.id.in_(evaluation_ids)).options(defer(EvaluationRow.result))
    )
    return {row.id: (_measurements(row), tuple(row.tags)) for row in rows}


def retracted_among(session: Session, evaluation_ids: Sequence[str]) -> frozenset[str]:
    """Those of these evaluations that were retracted."""
    query = select(EvaluationRow.id).where(
        EvaluationRow.id.in_(evaluation_ids), EvaluationRow.retracted_at.is_not(None)
    )
    return frozenset(session.scalars(query))


def list_places(session: Session, evaluation_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
    """The job and the candidate's hash of evaluations, by their ids; those that are gone are left out."""
    query = select(EvaluationRow.id, CandidateRow.job_id, CandidateRow.hash).join(CandidateRow)
    rows = session.execute(query.where(EvaluationRow.id.in_(evaluation_ids)))
    return {row.id: (row.job_id, row.hash) for row in rows}


def list_candidate_rounds(session: Session, job_id: int) -> list[tuple[int, str]]:
    """The round and the hash of each candidate of a job, in the order in which they were written."""
    query = select(CandidateRow.round, CandidateRow.hash).where(CandidateRow.job_id == job_id)
    return [(row.round, row.hash) for row in session.execute(query.order_by(CandidateRow.round, CandidateRow.id))]


def list_advice(session: Session, job_id: int) -> dict[int, dict[str, object]]:
    """The Judge's advice by round; rounds without advice are left out."""
    query = select(RoundRow.number, RoundRow.advice).where(RoundRow.job_id == job_id).order_by(RoundRow.number)
    return {row.number: row.advice for row in session.execute(query) if row.advice}


def list_candidate_sources(session: Session, job_id: int) -> dict[str, str]:
    """The sources of all candidates of a job, by hash."""
    query = select(CandidateRow.hash, CandidateRow.source).where(CandidateRow.job_id == job_id)
    return {row.hash: row.source for row in session.execute(query)}


def list_events(
    session: Session,
    job_id: int,
    *,
    after: int = 0,
    up_to: int | None = None,
    kinds: Sequence[str] | None = None,
    limit: int | None = None,
) -> list[EventRecord]:
    """Events of a job in order.

    Args:
        session: A transaction.
        job_id: The job.
        after: Only events with a higher id.
        up_to: Only events with this id or a lower one.
        kinds: Only events of these kinds.
        limit: At most so many.
    """
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.id > after).order_by(EventRow.id)
    if up_to is not None:
        query = query.where(EventRow.id <= up_to)
    if kinds is not None:
        query = query.where(EventRow.kind.in_(kinds))
    if limit is not None:
        query = query.limit(limit)
    return [_event_record(row) for row in session.scalars(query)]


def list_new_events(session: Session, last_ids: Mapping[int, int]) -> list[tuple[int, EventRecord]]:
    """New events of many jobs, with the ids of their jobs.

    Args:
        session: A transaction.
        last_ids: For each job the id of the last known event.

    Returns:
        Events with higher ids, in order for each job. They may be incomplete: a query, which is for up to 200 jobs,
        returns at most 2000 events.
    """
    found: list[tuple[int, EventRecord]] = []
    wanted = list(last_ids.items())
    for begin in range(0, len(wanted), _JOBS_A_QUERY):
        jobs = wanted[begin : begin + _JOBS_A_QUERY]
        newer = (and_(EventRow.job_id == job_id, EventRow.id > last) for job_id, last in jobs)
        query = select(EventRow).where(or_(*newer)).order_by(EventRow.id).limit(_EVENTS_A_QUERY)
        found += [(row.job_id, _event_record(row)) for row in session.scalars(query)]
    return found


def last_events(session: Session, job_ids: Sequence[int], kinds: Sequence[str]) -> dict[int, EventRecord]:
    """The last event of these kinds of each job that has one, by the id of the job."""
    last = select(func.max(EventRow.id)).where(EventRow.job_id.in_(job_ids), EventRow.kind.in_(kinds))
    query = select(EventRow).where(EventRow.id.in_(last.group_by(EventRow.job_id)))
    return {row.job_id: _event_record(row) for row in session.scalars(query)}


def last_event_id(session: Session, job_id: int) -> int:
    """The id of the last event of a job; 0 if it has none."""
    return session.scalar(select(func.max(EventRow.id)).where(EventRow.job_id == job_id)) or 0


def list_llm_calls(session: Session, job_id: int, *, from_round: int = 0) -> list[LlmCall]:
    """The LLM calls of a job in order, from `from_round` on."""
    query = select(LlmCallRow).where(LlmCallRow.job_id == job_id, LlmCallRow.round >= from_round)
    return [_llm_call(row) for row in session.scalars(query.order_by(LlmCallRow.id))]


def count_llm_calls(session: Session, job_id: int) -> int:
    """The number of LLM calls of a job."""
    return session.scalar(select(func.count()).where(LlmCallRow.job_id == job_id)) or 0


def list_llm_call_heads(session: Session, job_id: int) -> dict[int, LlmCall]:
    """The LLM calls of a job in order, by their ids, without messages, reply and reasoning."""
    texts = (LlmCallRow.messages, LlmCallRow.reply, LlmCallRow.reasoning)
    query = select(LlmCallRow).where(LlmCallRow.job_id == job_id).order_by(LlmCallRow.id)
    rows = session.scalars(query.options(*(defer(each, raiseload=True) for each in texts)))
    return {row.id: _llm_call(row, texts=False) for row in rows}


def get_llm_calls(session: Session, ids: Collection[int]) -> dict[int, LlmCall]:
    """The LLM calls with these ids, whole; those that do not exist are left out."""
    query = select(LlmCallRow).where(LlmCallRow.id.in_(sorted(ids))).execution_options(populate_existing=True)
    return {row.id: _llm_call(row) for row in session.scalars(query)}


def llm_usage(session: Session, job_id: int) -> tuple[float, int, int]:
    """The sums over a job's LLM calls: US dollars (0 for an unknown price), prompt tokens, completion tokens."""
    query = select(
        func.coalesce(func.sum(LlmCallRow.cost_usd), 0.0),
        func.coalesce(func.sum(LlmCallRow.prompt_tokens), 0),
        func.coalesce(func.sum(LlmCallRow.completion_tokens), 0),
    ).where(LlmCallRow.job_id == job_id)
    cost, prompt_tokens, completion_tokens = session.execute(query).one()
    return float(cost or 0.0), int(prompt_tokens), int(completion_tokens)


def list_costs(
    session: Session, platform: str, device: str, verdicts: Collection[str], *, limit: int
) -> list[CostRecord]:
    """What the newest evaluations on a device with these verdicts took, newest first."""
    settings = EvaluationRow.result["provenance"]["settings"]
    query = (
        select(JobRow.task_id, EvaluationRow.result["cost_s"], settings["trial"])
        .select_from(EvaluationRow)
        .join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)
        .join(JobRow, CandidateRow.job_id == JobRow.id)
        .where(EvaluationRow.platform == platform, EvaluationRow.device == device, EvaluationRow.verdict.in_(verdicts))
        .order_by(EvaluationRow.created_at.desc())
        .limit(limit)
    )
    return [
        CostRecord(task_id, bool(trial), {name: s for name, s in cost_s.items() if isinstance(s, int | float)})
        for task_id, cost_s, trial in session.execute(query)
        if isinstance(cost_s, dict)
    ]


def list_noise(session: Session, platform: str, device: str, *, limit: int) -> list[Noise]:
    """The noise of the newest evaluations on a device, oldest first; those of which it is not known are left out."""
    query = (
        select(EvaluationRow.created_at, EvaluationRow.noise, EvaluationRow.tags)
        .where(
            EvaluationRow.platform == platform,
            EvaluationRow.device == device,
            EvaluationRow.noise.is_not(None),
        )
        .order_by(EvaluationRow.created_at.desc())
        .limit(limit)
    )
    return [Noise(at, load, tuple(tags)) for at, load, tags in reversed(session.execute(query).all())]


def list_newest_best(
    session: Session, *, platform: str, device: str, sandbox: str, limit: int
) -> list[tuple[int, str, tuple[str, ...]]]:
    """The newest jobs that workers have done on a device: id, the best evaluation, and the tags of that."""
    query = (
        select(JobRow.id, EvaluationRow.id, EvaluationRow.tags)
        .join(EvaluationRow, EvaluationRow.id == JobRow.best_evaluation_id)
        .where(
            JobRow.status == JobStatus.DONE.value,
            JobRow.worker_id.is_not(None),
            EvaluationRow.platform == platform,
            EvaluationRow.device == device,
            EvaluationRow.sandbox == sandbox,
            EvaluationRow.retracted_at.is_(None),
        )
        .order_by(JobRow.id.desc())
        .limit(limit)
    )
    return [(job_id, evaluation_id, tuple(tags)) for job_id, evaluation_id, tags in session.execute(query)]


def was_refuted() -> ColumnElement[bool]:
    """Whether a candidate was found wrong on the task and platform of an evaluation: by any evaluation that counts.

    It belongs in a query over `EvaluationRow` with its `CandidateRow` and `JobRow`. What was wrong with given weights
    only counts within the job that was given them.
    """
    evaluation, candidate, job = aliased(EvaluationRow), aliased(CandidateRow), aliased(JobRow)
    return exists().where(
        candidate.hash == CandidateRow.hash,
        job.id == candidate.job_id,
        job.task_id == JobRow.task_id,
        evaluation.candidate_id == candidate.id,
        evaluation.platform == EvaluationRow.platform,
        evaluation.retracted_at.is_(None),
        evaluation.verdict.in_(DISQUALIFYING),
        or_(evaluation.code.is_(None), evaluation.code != GIVEN_WEIGHTS, job.id == JobRow.id),
    )


def is_refuted(session: Session, evaluation_id: str) -> bool:
    """Whether the candidate of an evaluation was found wrong on its task and platform (`was_refuted`)."""
    query = (
        select(EvaluationRow.id)
        .join(CandidateRow, CandidateRow.id == EvaluationRow.candidate_id)
        .join(JobRow, JobRow.id == CandidateRow.job_id)
        .where(EvaluationRow.id == evaluation_id, was_refuted())
    )
    return session.scalar(query) is not None


def _is_trial(evaluation: EvaluationRecord) -> bool:
    """Whether it was asked for as a trial. A candidate that did not pass has no tags."""
    settings = dict(evaluation.result.get("provenance") or {}).get("settings")
    return bool(dict(settings or {}).get("trial"))


def _evaluations() -> Select[EvaluationRow, CandidateRow]:
    return select(EvaluationRow, CandidateRow).join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)


def _evaluation_record(row: EvaluationRow, candidate: CandidateRow) -> EvaluationRecord:
    return EvaluationRecord(
        id=row.id,
        job_id=candidate.job_id,
        candidate_hash=candidate.hash,
        source=candidate.source,
        round=row.round,
        platform=row.platform,
        device=row.device,
        sandbox=row.sandbox,
        verdict=row.verdict,
        code=row.code,
        message=row.message,
        tags=tuple(row.tags),
        measurements=_measurements(row),
        result=row.result,
        created_at=row.created_at,
        retracted_at=row.retracted_at,
    )


def _llm_call(row: LlmCallRow, *, texts: bool = True) -> LlmCall:
    return LlmCall(
        round=row.round,
        model=row.model,
        role=row.role,
        purpose=row.purpose,
        messages=row.messages if texts else [],
        reply=row.reply if texts else "",
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_usd=row.cost_usd,
        latency_s=row.latency_s,
        key=row.key,
        reasoning=row.reasoning if texts else "",
        reasoning_tokens=row.reasoning_tokens,
        tool_calls=row.tool_calls,
    )


def _event_record(row: EventRow) -> EventRecord:
    return EventRecord(row.id, row.kind, row.round, row.data, row.created_at)


def _candidate_record(row: CandidateRow, evaluation: EvaluationRecord | None) -> CandidateRecord:
    return CandidateRecord(row.hash, row.round, row.source, row.created_at, evaluation)


def _measurements(row: EvaluationRow) -> Measurements:
    return Measurements(**{name: getattr(row, name) for name in MEASUREMENTS})
