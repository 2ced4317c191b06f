"""Quotas: how many jobs a token may have at the same time, and how much it may spend a day."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from agents.llm.models import import_litellm, is_builtin, only_builtin, price_of
from db.jobs import job_queue, spending
from db.locks import lock_name
from db.types import utc_now
from service.errors import ServiceError
from service.jobs.batch_budget import worst_paid_usd
from service.settings import Settings
from service.submissions.access import Principal

DAY = timedelta(days=1)


class QuotaExceeded(ServiceError):
    """The token's quota is used up. The text names the limit and a remedy."""


def priced_models(principal: Principal, wanted: Iterable[Settings | None]) -> frozenset[str]:
    """The models of these jobs that have a price; none if the token has no limit in dollars.

    `check_quota` needs them. Call this before the transaction, because the first look into the list of prices takes
    seconds.
    """
    if principal.token_id is None or principal.max_usd_a_day is None:
        return frozenset()
    asked = {model for settings in wanted if settings is not None for model in _unpriced(settings)}
    if not asked:
        return frozenset()
    litellm = import_litellm()
    return frozenset(model for model in asked if price_of(litellm, model) is not None)


def hold_quota(session: Session, principal: Principal) -> None:
    """Lock a user's quota until the transaction ends, for all of the user's tokens."""
    lock_name(session, "quota", principal.user)


def check_quota(
    session: Session,
    principal: Principal,
    wanted: Sequence[Settings | None],
    *,
    priced: frozenset[str] = frozenset(),
    spent_usd: float = 0.0,
) -> None:
    """Check that a token's quota has room for jobs, in the transaction that queues them.

    Args:
        session: the transaction.
        principal: the user of the request.
        wanted: the settings of each job; None for a job that calls no model.
        priced: the result of `priced_models` for them.
        spent_usd: the dollars that a resumed job has spent of its budget.

    Raises:
        QuotaExceeded: there are too many jobs at once, their budgets exceed the dollars that are left for the day, or
            the price of a model is unknown.
    """
    if principal.token_id is None:
        return
    hold_quota(session, principal)
    if principal.max_jobs is not None:
        open_now = job_queue.count_open(session, principal.user)
        if open_now + len(wanted) > principal.max_jobs:
            raise QuotaExceeded(
                f"{principal.max_jobs} jobs at once are allowed and {open_now} wait or run;"
                " wait until one ends, or cancel one"
            )
    limit = principal.max_usd_a_day
    paid = [settings for settings in wanted if settings is not None and not _is_free(settings)]
    if limit is None or not paid:
        return
    budgets = [settings.budget_usd for settings in paid if settings.budget_usd is not None]
    if len(budgets) < len(paid):
        raise QuotaExceeded(f"${limit:.2f} a day are allowed, so each job needs a budget_usd")
    for model in sorted({model for settings in paid for model in _unpriced(settings)} - priced):
        raise QuotaExceeded(
            f"${limit:.2f} a day are allowed and no price of model {model[:80]!r} is known;"
            " choose another, or have an operator set KERNELWRIGHT_PRICE on the server"
        )
    worst = spending.max_spending_usd(
        session, principal.user, utc_now() - DAY, free_models=only_builtin, max_paid_usd=worst_paid_usd
    )
    asked = max(sum(budgets) - spent_usd, 0.0)
    if worst + asked > limit:
        left = max(limit - worst, 0.0)
        raise QuotaExceeded(
            f"${limit:.2f} a day are allowed and ${left:.2f} are left; ask for a budget_usd within that"
        )


def _is_free(settings: Settings) -> bool:
    return only_builtin(settings.model, settings.judge_model)


def _unpriced(settings: Settings) -> set[str]:
    """The models of a job without a price in the settings. Without any known price its budget could not be kept."""
    if settings.price is not None:
        return set()
    return {model for model in (settings.model, settings.judge_model) if model is not None and not is_builtin(model)}
