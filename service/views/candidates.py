"""The view of a candidate, and the differences between its source and another."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from db.errors import NotInStore
from db.evaluations import results
from db.jobs import jobs
from db.leaderboard.standings import candidate_figure
from db.records import AuditRecord, CandidateRecord, JobRecord
from db.store import Store
from service.audit import list_audit
from service.jobs.pooled_figure import leaderboard_text
from service.jobs.spec import task_of
from service.views.evaluation import EvaluationView, evaluation_view
from service.views.why import Why, why

REFERENCE = "reference"
"""The key that stands for the task's own source in place of another candidate's hash."""

MAX_DIFF_LINES = 2000
MAX_LINE_CHARS = 2000
_CONTEXT_LINES = 3


@dataclass(frozen=True)
class Other:
    """A source to compare with; `key` is a candidate's hash or `reference`."""

    key: str
    title: str


@dataclass(frozen=True)
class CandidateView:
    """A candidate of a job.

    Attributes:
        job: the job.
        hash: the candidate's hash.
        source: the candidate's source.
        round: the round that wrote it.
        is_best: whether it is the job's best candidate.
        evaluations: its evaluations in all jobs on the same task, newest first.
        shown: the evaluation that is shown in full.
        why: its profile.
        on_leaderboard: what the leaderboard says of it on that evaluation's board, beyond this evaluation; empty if
            that is all.
        judgements: the entries of the audit log on the shown evaluation, newest first.
        others: the sources that it can be compared with.
    """

    job: JobRecord
    hash: str
    source: str
    round: int
    is_best: bool
    evaluations: tuple[EvaluationView, ...]
    shown: EvaluationView | None
    why: Why | None
    on_leaderboard: str
    judgements: tuple[AuditRecord, ...]
    others: tuple[Other, ...]


@dataclass(frozen=True)
class DiffLine:
    """A pair of lines. `kind` is same, changed, removed (left only), added (right only), or gap (equal lines)."""

    kind: str
    left_number: int | None = None
    left: str = ""
    right_number: int | None = None
    right: str = ""


@dataclass(frozen=True)
class DiffView:
    """The differences between two sources. `cut` means that only their first lines were compared."""

    title: str
    lines: tuple[DiffLine, ...]
    added: int
    removed: int
    cut: bool


def list_candidates(store: Store, job_id: int) -> list[CandidateRecord]:
    """All candidates of a job, in the order in which they were written.

    Raises:
        NotInStore: There is no such job.
    """
    with store.read() as session:
        jobs.get_job(session, job_id)
        return results.list_candidates(session, job_id)


def get_candidate(store: Store, job_id: int, candidate_hash: str) -> CandidateRecord:
    """A candidate of a job with its source and its latest evaluation.

    Raises:
        NotInStore: The job has no such candidate.
    """
    with store.read() as session:
        found = results.find_candidate(session, job_id, candidate_hash)
    if found is None:
        raise NotInStore(f"candidate {candidate_hash} is not in job {job_id}")
    return found


def get_source(store: Store, job_id: int, candidate_hash: str) -> str:
    """The source of a candidate.

    Raises:
        NotInStore: The job has no such candidate.
    """
    with store.read() as session:
        return results.get_candidate_source(session, job_id, candidate_hash)


def candidate_view(store: Store, job_id: int, digest: str, evaluation_id: str | None = None) -> CandidateView:
    """A candidate with its evaluations.

    Args:
        store: the store.
        job_id: the job.
        digest: the candidate's hash.
        evaluation_id: the evaluation to show in full; by default the newest one of this job.

    Raises:
        NotInStore: there is no such job, candidate or evaluation.
    """
    with store.read() as session:
        job = jobs.get_job(session, job_id)
        source = results.get_candidate_source(session, job_id, digest)
        rounds = results.list_candidate_rounds(session, job_id)
        records = results.list_evaluations_of_candidate(session, digest, task_id=job.task.id)
    views = tuple(evaluation_view(record) for record in records)
    own = [view for view in views if view.job_id == job_id]
    shown = next(iter(own), None) if evaluation_id is None else _find(views, evaluation_id)
    on_leaderboard, profile = "", None
    if shown is not None:
        record = next(each for each in records if each.id == shown.id)
        profile = why(record, shown, source)
        with store.read() as session:
            on_leaderboard = leaderboard_text(candidate_figure(session, record), record.id)
    others = [Other(REFERENCE, "the task's own source (reference)")]
    others += [Other(each, f"round {number}, {each[:8]}") for number, each in rounds if each != digest]
    judgements = list_audit(store, subject=f"evaluation/{shown.id}", limit=20) if shown is not None else []
    best = any(view.id == job.best_evaluation_id for view in own)
    written = next(number for number, each in rounds if each == digest)
    return CandidateView(
        job, digest, source, written, best, views, shown, profile, on_leaderboard, tuple(judgements), tuple(others)
    )


def diff_with(store: Store, view: CandidateView, key: str) -> DiffView:
    """The differences between another source of the job (left) and a candidate (right).

    Raises:
        NotInStore: there is no other source with this key.
    """
    title = next((other.title for other in view.others if other.key == key), None)
    if title is None:
        raise NotInStore(f"job {view.job.id} has no candidate {key[:64]} to compare with")
    if key == REFERENCE:
        return diff(title, task_of(view.job).source, view.source)
    with store.read() as session:
        return diff(title, results.get_candidate_source(session, view.job.id, key), view.source)


def diff(title: str, left: str, right: str) -> DiffView:
    """Compare two sources line by line. Long runs of equal lines are left out."""
    before, after = left.splitlines(), right.splitlines()
    cut = max(len(before), len(after)) > MAX_DIFF_LINES
    before, after = _bounded(before), _bounded(after)
    lines = tuple(_lines(before, after))
    return DiffView(
        title,
        lines,
        added=sum(line.kind in ("added", "changed") for line in lines),
        removed=sum(line.kind in ("removed", "changed") for line in lines),
        cut=cut,
    )


def _bounded(lines: list[str]) -> list[str]:
    return [line[:MAX_LINE_CHARS] for line in lines[:MAX_DIFF_LINES]]


def _lines(before: list[str], after: list[str]) -> Iterator[DiffLine]:
    end = 0
    for group in difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(_CONTEXT_LINES):
        skipped = group[0][1] - end
        if skipped > 0:
            yield DiffLine("gap", left=f"{skipped} equal lines")
        for _, left_from, left_to, right_from, right_to in group:
            yield from _paired(before, after, range(left_from, left_to), range(right_from, right_to))
        end = group[-1][2]
    if end < len(before) and end > 0:
        yield DiffLine("gap", left=f"{len(before) - end} equal lines")


def _paired(before: list[str], after: list[str], left: range, right: range) -> Iterator[DiffLine]:
    same = before[left.start : left.stop] == after[right.start : right.stop]
    for offset in range(max(len(left), len(right))):
        has_left, has_right = offset < len(left), offset < len(right)
        kind = "same" if same else "changed" if has_left and has_right else "removed" if has_left else "added"
        yield DiffLine(
            kind,
            left[offset] + 1 if has_left else None,
            before[left[offset]] if has_left else "",
            right[offset] + 1 if has_right else None,
            after[right[offset]] if has_right else "",
        )


def _find(views: tuple[EvaluationView, ...], evaluation_id: str) -> EvaluationView:
    found = next((view for view in views if view.id == evaluation_id), None)
    if found is None:
        raise NotInStore(f"evaluation {evaluation_id[:64]} is not one of this candidate")
    return found
