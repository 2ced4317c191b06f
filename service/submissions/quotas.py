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
    """The models of these jobs that have a price, as far as the token has dollars to count.

    For `check_quota`, and to be asked before its transaction: reading the list of prices for the first time takes
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
    """Refuse jobs that the token has no room for, in the transaction that queues them.

    `wanted` are the settings of each, None for one that asks no model; `priced` is what `priced_models` says of them.
    `spent_usd`: what the job, taken up again, has spent of its budget.

    Raises:
        QuotaExceeded: too many jobs at once, their budgets do not fit into what is left of the day's dollars, or
            nobody knows what a model costs.
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
    """The models of a job that no setting says a price of; if nobody else does, its budget could not be kept."""
    if settings.price is not None:
        return set()
    return {model for model in (settings.model, settings.judge_model) if model is not None and not is_builtin(model)}
