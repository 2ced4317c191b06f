"""Queue another evaluation of a candidate that some job wrote."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from db import jobs, queued, results
from db.errors import NotInStore
from db.store import Store
from db.tables import CandidateRow
from service.access import Principal, Role, require
from service.once import once
from service.quotas import check_quota
from service.submit import PRIORITIES


def reevaluate(
    principal: Principal, job_id: int, candidate_hash: str, *, store: Store, key: str | None = None
) -> tuple[int, bool]:
    """A job that evaluates this candidate of `job_id` once more; its id, and False where the key had queued it.

    Raises:
        NotInStore: there is no such job, or no such candidate in it.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)

    def make(session: Session) -> str:
        job = jobs.get_job(session, job_id)
        source = find_source(session, job_id, candidate_hash)
        check_quota(session, principal, [None])
        new_id = queued.add_queued_job(
            session,
            task_id=job.task.id,
            kind="evaluate",
            platform=job.platform,
            model=None,
            strategy=None,
            options={"candidate_hash": candidate_hash, "of_job": job_id},
            user=principal.user,
            priority=PRIORITIES["normal"],
        )
        results.add_candidate(session, new_id, round_number=0, candidate_hash=candidate_hash, source=source)
        return str(new_id)

    request = {"do": "reevaluate", "job": job_id, "candidate": candidate_hash}
    made, new = once(store, make, user=principal.user, key=key, request=request)
    return int(made), new


def find_source(session: Session, job_id: int, candidate_hash: str) -> str:
    """The source of a job's candidate.

    Raises:
        NotInStore: the job has no such candidate.
    """
    query = select(CandidateRow.source).where(CandidateRow.job_id == job_id, CandidateRow.hash == candidate_hash)
    source = session.scalar(query)
    if source is None:
        raise NotInStore(f"candidate {candidate_hash[:64]} is not in job {job_id}")
    return source
