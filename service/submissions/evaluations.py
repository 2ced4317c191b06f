"""Requests to evaluate a candidate without a model: one from a user, or one that a job wrote."""

from typing import Any

from sqlalchemy.orm import Session

from db.evaluations import results
from db.jobs import job_queue, jobs
from db.records import WEIGHTS
from db.store import Store
from evaluator.platforms import OF_NVIDIA, PLATFORM_NAMES
from evaluator.profile import SANITIZES_ON
from service.errors import BadRequest
from service.evaluate import MAX_CANDIDATE_BYTES, check_rules
from service.evaluation_context import check_shape_group
from service.jobs.persistence import save_task
from service.jobs.spec import BASELINES, SANDBOX
from service.settings import Settings, override
from service.submissions.access import Principal, Role, require
from service.submissions.enqueue import PRIORITIES, asked_sandbox
from service.submissions.idempotency import run_idempotent
from service.submissions.quotas import check_quota
from service.weights import require_weights, weights_named
from tasks.outcomes import candidate_hash as hash_of
from tasks.task import Task
from tasks.text import clean_text

DOCKER = "docker"


def evaluate_for(
    principal: Principal,
    task: Task,
    candidate: str,
    *,
    platform: str | None = None,
    profile: bool = False,
    cold: bool = False,
    tolerance: str | None = None,
    shape_group: int | None = None,
    baselines: str | None = None,
    weights: str | None = None,
    sanitize: bool = False,
    settings: Settings,
    store: Store,
    key: str | None = None,
) -> tuple[int, bool]:
    """Queue a job that evaluates a candidate for a task. Nothing of the candidate is executed here.

    The options are those of `service.evaluate.evaluate_source`, but for `weights`: the digest of weights that are kept
    for the user (`service.weights`).

    Returns:
        The job's id, and False if an earlier request with this key had queued it.

    Raises:
        BadRequest: the candidate is too large, the platform, a rule or a baseline is unknown, the task has no shape
            groups, or nothing of the platform runs on a GPU that could be sanitized.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)
    source = clean_text(candidate)
    if len(source.encode()) > MAX_CANDIDATE_BYTES:
        raise BadRequest("candidate: larger than 1 MiB; a candidate is one Python file")
    platform = settings.platform if platform is None else platform
    if platform not in PLATFORM_NAMES:
        raise BadRequest(f"platform {platform[:80]!r} is unknown; there is: {', '.join(PLATFORM_NAMES)}")
    check_rules(() if tolerance is None else (tolerance,))
    check_shape_group(task, shape_group)
    if sanitize and platform not in OF_NVIDIA:
        raise BadRequest(f"sanitize: platform {platform}: {SANITIZES_ON}")
    digest = hash_of(source)
    wanted: dict[str, Any] = {"profile": profile or sanitize, "cold": cold, "tolerance": tolerance}
    wanted |= {} if shape_group is None else {"shape_group": shape_group}
    wanted[BASELINES] = (settings if baselines is None else override(settings, baselines=baselines)).baselines
    wanted |= {} if weights is None else {WEIGHTS: weights}
    wanted |= {"sanitize": True} if sanitize else {}

    def create(session: Session) -> str:
        check_quota(session, principal, [None])
        require_weights(session, principal.user, weights)
        options = {"candidate_hash": digest, "ref": task.id, **wanted, **asked_sandbox(settings)}
        return _queue(session, principal, save_task(session, task), platform, options, source)

    request = {"do": "evaluate", "task": task.id, "source": task.source, "candidate": digest, "platform": platform}
    created, new = run_idempotent(store, create, user=principal.user, key=key, request={**request, **wanted})
    return int(created), new


def reevaluate(
    principal: Principal, job_id: int, candidate_hash: str, *, store: Store, key: str | None = None
) -> tuple[int, bool]:
    """Queue a job that evaluates a candidate of `job_id` again.

    The new job names the original job and its model, so that the result counts for that model, and its baselines. A
    candidate that ran in Docker runs only in Docker again, and one that was held to given weights is held to them
    again.

    Returns:
        The job's id, and False if an earlier request with this key had queued it.

    Raises:
        NotInStore: there is no such job, or it has no such candidate.
        BadRequest: the weights of the job are not kept for this user.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)

    def create(session: Session) -> str:
        job = jobs.get_job(session, job_id)
        source = results.get_candidate_source(session, job_id, candidate_hash)
        check_quota(session, principal, [None])
        options = {"candidate_hash": candidate_hash, "of_job": job.options.get("of_job", job_id)}
        if (weights := weights_named(job)) is not None:
            require_weights(session, principal.user, weights)
            options[WEIGHTS] = weights
        if DOCKER in (job.sandbox, job.options.get(SANDBOX)):
            options[SANDBOX] = DOCKER
        if BASELINES in job.options:
            options[BASELINES] = job.options[BASELINES]
        return _queue(session, principal, job.task.id, job.platform, options, source, model=job.model)

    request = {"do": "reevaluate", "job": job_id, "candidate": candidate_hash}
    created, new = run_idempotent(store, create, user=principal.user, key=key, request=request)
    return int(created), new


def _queue(
    session: Session,
    principal: Principal,
    task_id: int,
    platform: str,
    options: dict[str, Any],
    source: str,
    *,
    model: str | None = None,
) -> str:
    """Store the job and its candidate, which `model` wrote, if any; the job's id."""
    job_id = job_queue.add_queued_job(
        session,
        task_id=task_id,
        kind="evaluate",
        platform=platform,
        model=model,
        strategy=None,
        options=options,
        user=principal.user,
        priority=PRIORITIES["normal"],
    )
    results.add_candidate(session, job_id, round_number=0, candidate_hash=options["candidate_hash"], source=source)
    return str(job_id)
