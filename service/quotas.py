"""What a token may have going at once, and spend a day."""

from datetime import timedelta

from sqlalchemy.orm import Session

from agents.providers import is_builtin
from db import queued, spending
from db.records import JobRecord
from db.types import utc_now
from service.access import Principal
from service.errors import ServiceError
from service.settings import Settings

DAY = timedelta(days=1)


class QuotaExceeded(ServiceError):
    """The token allows no more now. The text names the limit and what would help."""


def costs_nothing(settings: Settings) -> bool:
    """Whether no model of a job with these settings is paid for."""
    return _free(settings.model, settings.judge_model)


def check_quota(session: Session, principal: Principal, settings: Settings | None, *, spent_usd: float = 0.0) -> None:
    """Refuse a job that the token has no room for, in the transaction that queues it.

    `settings` None: the job asks no model. `spent_usd`: what the job, taken up again, has spent of its budget.

    Raises:
        QuotaExceeded: too many jobs at once, or its budget does not fit into what is left of the day's dollars.
    """
    if principal.token_id is None:
        return
    spending.hold_token(session, principal.token_id)
    if principal.max_jobs is not None and queued.count_open(session, principal.user) >= principal.max_jobs:
        raise QuotaExceeded(f"{principal.max_jobs} jobs at once are allowed; wait until one ends, or cancel one")
    if principal.max_usd_a_day is None or settings is None or costs_nothing(settings):
        return
    limit = principal.max_usd_a_day
    if settings.budget_usd is None:
        raise QuotaExceeded(f"${limit:.2f} a day are allowed, so a job needs a budget_usd")
    worst = spending.worst_spending(session, principal.user, utc_now() - DAY, _free)
    asked = max(settings.budget_usd - spent_usd, 0.0)
    if worst + asked > limit:
        left = max(limit - worst, 0.0)
        raise QuotaExceeded(
            f"${limit:.2f} a day are allowed and ${left:.2f} are left; ask for a budget_usd within that"
        )


def worst_left_usd(job: JobRecord) -> float:
    """What a job has spent, at the most."""
    return job.cost_usd + job.unsettled_usd


def _free(model: str | None, judge_model: str | None) -> bool:
    return all(name is None or is_builtin(name) for name in (model, judge_model))
