"""Queue another evaluation of a candidate that some job wrote."""

from sqlalchemy.orm import Session

from db import jobs, queued, results
from db.store import Store
from service.access import Principal, Role, require
from service.kinds import SANDBOX
from service.once import once
from service.quotas import check_quota
from service.submit import PRIORITIES

DOCKER = "docker"


def reevaluate(
    principal: Principal, job_id: int, candidate_hash: str, *, store: Store, key: str | None = None
) -> tuple[int, bool]:
    """A job that evaluates this candidate of `job_id` once more; its id, and False where the key had queued it.

    It names the job and the model that wrote the candidate: what is found counts as the model's, and not as another
    candidate that someone brought. A candidate that was run in Docker is run nowhere else.

    Raises:
        NotInStore: there is no such job, or no such candidate in it.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)

    def make(session: Session) -> str:
        job = jobs.get_job(session, job_id)
        source = results.get_candidate_source(session, job_id, candidate_hash)
        check_quota(session, principal, [None])
        options = {"candidate_hash": candidate_hash, "of_job": job.options.get("of_job", job_id)}
        if DOCKER in (job.sandbox, job.options.get(SANDBOX)):
            options[SANDBOX] = DOCKER
        new_id = queued.add_queued_job(
            session,
            task_id=job.task.id,
            kind="evaluate",
            platform=job.platform,
            model=job.model,
            strategy=None,
            options=options,
            user=principal.user,
            priority=PRIORITIES["normal"],
        )
        results.add_candidate(session, new_id, round_number=0, candidate_hash=candidate_hash, source=source)
        return str(new_id)

    request = {"do": "reevaluate", "job": job_id, "candidate": candidate_hash}
    made, new = once(store, make, user=principal.user, key=key, request=request)
    return int(made), new
