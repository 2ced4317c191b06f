"""Requests for runs over whole models over HTTP."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from db.store import Store
from service.settings import Settings
from service.submissions.access import Principal, Role, require
from service.submissions.enqueue import check_submission, queue_model
from service.submissions.idempotency import run_idempotent
from service.submissions.jobs import settings_for
from service.submissions.quotas import check_quota, priced_models
from service.weights import require_weights
from tasks.task import Task


def submit_model_for(
    principal: Principal,
    model: Task,
    *,
    options: Mapping[str, Any],
    plan_only: bool = False,
    weights: str | None = None,
    priority: str = "normal",
    settings: Settings,
    store: Store,
    key: str | None = None,
) -> tuple[int, bool]:
    """Queue a run over a whole model. With `plan_only` it ends with its plan, and nothing is spent.

    `weights` is the digest of weights that are kept for the user (`service.weights`).

    Returns:
        The run's id, which is its job's, and False if an earlier request with this key had queued it.

    Raises:
        BadRequest, TaskError: the request is invalid.
        NotAllowed, QuotaExceeded: the token does not allow it.
    """
    require(principal, Role.SUBMITTER)
    if priority == "high":
        require(principal, Role.OPERATOR)
    wanted = settings_for(settings, principal, options)
    check_submission(model, wanted, priority, whole_model=True)
    asks = None if plan_only else wanted
    priced = priced_models(principal, [asks])

    def create(session: Session) -> str:
        check_quota(session, principal, [asks], priced=priced)
        require_weights(session, principal.user, weights)
        run_id = queue_model(
            session,
            model,
            settings=wanted,
            user=principal.user,
            priority=priority,
            plan_only=plan_only,
            weights=weights,
        )
        return str(run_id)

    request = {"do": "model", "task": model.id, "source": model.source, "priority": priority, **options}
    request |= {"plan_only": plan_only} | ({} if weights is None else {"weights": weights})
    created, new = run_idempotent(store, create, user=principal.user, key=key, request=request)
    return int(created), new
