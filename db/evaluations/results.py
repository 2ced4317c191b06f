"""Candidates of a job as they are listed and shown."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from sqlalchemy import Select, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from db.errors import NotInStore
from db.leaderboard.update import count_in
from db.locks import lock_job
from db.records import EvaluationRecord, EventRecord, JsonValue, LlmCall, Measured
from db.tables import CandidateRow, EvaluationRow, EventRow, LlmCallRow, RoundRow
from db.types import clean_json
from tasks.outcomes import Verdict


@dataclass(frozen=True)
class CandidateRecord:
    """A candidate and the latest evaluation of it in its job."""

    hash: str
    round: int
    source: str
    created_at: datetime
    evaluation: EvaluationRecord | None


def list_candidates(session: Session, job_id: int) -> list[CandidateRecord]:
    """All candidates of a job, in the order in which they were written."""
    latest = {kept.candidate_hash: kept for kept in list_evaluations(session, job_id)}
    query = select(CandidateRow).where(CandidateRow.job_id == job_id).order_by(CandidateRow.id)
    return [_record(row, latest.get(row.hash)) for row in session.scalars(query)]


def find_candidate(session: Session, job_id: int, candidate_hash: str) -> CandidateRecord | None:
    """A job's candidate; None if it has none with this hash."""
    query = select(CandidateRow).where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    row = session.scalar(query)
    return None if row is None else _record(row, find_evaluation(session, job_id, candidate_hash))


def _record(row: CandidateRow, evaluation: EvaluationRecord | None) -> CandidateRecord:
    return CandidateRecord(row.hash, row.round, row.source, row.created_at, evaluation)


_MEASURED = tuple(field.name for field in fields(Measured))


def add_round(session: Session, job_id: int, number: int) -> None:
    """Note that a round began; does nothing if it is known."""
    if session.get(RoundRow, (job_id, number)) is None:
        session.add(RoundRow(job_id=job_id, number=number))


def set_advice(session: Session, job_id: int, number: int, advice: Mapping[str, JsonValue]) -> None:
    """Keep the Judge's advice of a round."""
    row = session.get(RoundRow, (job_id, number))
    if row is None:
        row = RoundRow(job_id=job_id, number=number)
        session.add(row)
    row.advice = clean_json(advice)


def add_candidate(session: Session, job_id: int, *, round_number: int, candidate_hash: str, source: str) -> int:
    """The id of this candidate in its job; stored first if it is new."""
    key = (CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    found = session.scalar(select(CandidateRow.id).where(*key))
    if found is not None:
        return found
    row = CandidateRow(job_id=job_id, round=round_number, hash=candidate_hash, source=source)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # another process stored it since we looked
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
    measured: Measured,
    result: Mapping[str, JsonValue],
) -> None:
    """Keep an evaluation, which counts on the leaderboard from then on; does nothing if one with this id is there."""
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
        **{name: clean_json(value) for name, value in asdict(measured).items()},
    )
    session.add(row)
    session.flush()
    count_in(session, row)


def add_llm_call(session: Session, job_id: int, call: LlmCall) -> None:
    """Keep what was said to a model, what it said and what it took."""
    values = {**asdict(call), "messages": clean_json(call.messages), "tool_calls": clean_json(call.tool_calls)}
    session.add(LlmCallRow(job_id=job_id, **values))


def add_event(session: Session, job_id: int, kind: str, round_number: int, data: Mapping[str, JsonValue]) -> None:
    """Append to what happened in a job. Of two writers the second waits for the first, so that ids never appear late:
    whoever has read up to one of them misses nothing.
    """
    lock_job(session, job_id)
    session.add(EventRow(job_id=job_id, kind=kind, round=round_number, data=clean_json(data)))


def get_evaluation(session: Session, evaluation_id: str) -> EvaluationRecord:
    """The evaluation with this id.

    Raises:
        NotInStore: there is none.
    """
    row = session.execute(_evaluations().where(EvaluationRow.id == evaluation_id)).one_or_none()
    if row is None:
        raise NotInStore(f"evaluation {evaluation_id} is not in the store")
    return record_of(row[0], row[1])


def has_evaluation(session: Session, evaluation_id: str) -> bool:
    """Whether there is an evaluation with this id."""
    return session.scalar(select(EvaluationRow.id).where(EvaluationRow.id == evaluation_id)) is not None


def find_evaluation(session: Session, job_id: int, candidate_hash: str) -> EvaluationRecord | None:
    """The latest evaluation of this candidate in this job, if any."""
    query = _evaluations().where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    row = session.execute(query.order_by(EvaluationRow.created_at.desc()).limit(1)).one_or_none()
    return None if row is None else record_of(row[0], row[1])


def count_failed_evaluations(session: Session, job_id: int, candidate_hash: str) -> int:
    """How often an evaluation of this candidate in this job told nothing of it, for the sandbox failed."""
    query = select(func.count()).select_from(EvaluationRow).join(CandidateRow)
    query = query.where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    query = query.where(EvaluationRow.verdict == Verdict.SANDBOX_ERROR)
    return session.scalar(query) or 0


def get_candidate_source(session: Session, job_id: int, candidate_hash: str) -> str:
    """The source of a job's candidate.

    Raises:
        NotInStore: the job has no such candidate.
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
    return [record_of(evaluation, candidate) for evaluation, candidate in session.execute(query)]


def retractions(session: Session, job_id: int) -> list[tuple[str, int, bool]]:
    """Each evaluation of a job, oldest first: its candidate's hash, its round, and whether it was taken back."""
    query = select(CandidateRow.hash, EvaluationRow.round, EvaluationRow.retracted_at).join(CandidateRow)
    query = query.where(CandidateRow.job_id == job_id).order_by(EvaluationRow.created_at, EvaluationRow.id)
    return [(row.hash, row.round, row.retracted_at is not None) for row in session.execute(query)]


def list_candidate_sources(session: Session, job_id: int) -> dict[str, str]:
    """Every candidate of a job: hash to source."""
    query = select(CandidateRow.hash, CandidateRow.source).where(CandidateRow.job_id == job_id)
    return {row.hash: row.source for row in session.execute(query)}


def list_events(
    session: Session, job_id: int, *, after: int = 0, kinds: Sequence[str] | None = None
) -> list[EventRecord]:
    """A job's events in order, those with an id above `after`; `kinds`: only these."""
    query = select(EventRow).where(EventRow.job_id == job_id, EventRow.id > after).order_by(EventRow.id)
    if kinds is not None:
        query = query.where(EventRow.kind.in_(kinds))
    return [EventRecord(row.id, row.kind, row.round, row.data, row.created_at) for row in session.scalars(query)]


def list_llm_calls(session: Session, job_id: int, *, from_round: int = 0) -> list[LlmCall]:
    """A job's LLM calls in order, from this round on."""
    query = select(LlmCallRow).where(LlmCallRow.job_id == job_id, LlmCallRow.round >= from_round)
    return [_llm_call(row) for row in session.scalars(query.order_by(LlmCallRow.id))]


def spent(session: Session, job_id: int) -> tuple[float, int, int]:
    """What a job's LLM calls took: US dollars (unknown prices count 0), prompt tokens, completion tokens."""
    query = select(
        func.coalesce(func.sum(LlmCallRow.cost_usd), 0.0),
        func.coalesce(func.sum(LlmCallRow.prompt_tokens), 0),
        func.coalesce(func.sum(LlmCallRow.completion_tokens), 0),
    ).where(LlmCallRow.job_id == job_id)
    cost, prompt_tokens, completion_tokens = session.execute(query).one()
    return float(cost or 0.0), int(prompt_tokens), int(completion_tokens)


def _evaluations() -> Select[EvaluationRow, CandidateRow]:
    return select(EvaluationRow, CandidateRow).join(CandidateRow, EvaluationRow.candidate_id == CandidateRow.id)


def record_of(row: EvaluationRow, candidate: CandidateRow) -> EvaluationRecord:
    """An evaluation and its candidate as a plain value."""
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
        measured=Measured(**{name: getattr(row, name) for name in _MEASURED}),
        result=row.result,
        created_at=row.created_at,
        retracted_at=row.retracted_at,
    )


def _llm_call(row: LlmCallRow) -> LlmCall:
    return LlmCall(
        round=row.round,
        model=row.model,
        role=row.role,
        purpose=row.purpose,
        messages=row.messages,
        reply=row.reply,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_usd=row.cost_usd,
        latency_s=row.latency_s,
        key=row.key,
        reasoning=row.reasoning,
        reasoning_tokens=row.reasoning_tokens,
        tool_calls=row.tool_calls,
    )
