"""What a token may have going at once, and spend a day."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from sqlalchemy.orm import Session

from agents.litellm_setup import import_litellm
from agents.prices import price_of
from agents.providers import is_builtin
from db import queued, spending
from db.locks import lock_name
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


def hold_quota(session: Session, principal: Principal) -> None:
    """Let nothing else that this user asks for be checked until the transaction ends, by whichever token it comes."""
    lock_name(session, "quota", principal.user)


def check_quota(
    session: Session, principal: Principal, wanted: Sequence[Settings | None], *, spent_usd: float = 0.0
) -> None:
    """Refuse jobs that the token has no room for, in the transaction that queues them.

    `wanted` are the settings of each, None for one that asks no model. `spent_usd`: what the job, taken up again, has
    spent of its budget.

    Raises:
        QuotaExceeded: too many jobs at once, their budgets do not fit into what is left of the day's dollars, or
            nobody knows what a model costs.
    """
    if principal.token_id is None:
        return
    hold_quota(session, principal)
    if principal.max_jobs is not None:
        open_now = queued.count_open(session, principal.user)
        if open_now + len(wanted) > principal.max_jobs:
            raise QuotaExceeded(
                f"{principal.max_jobs} jobs at once are allowed and {open_now} wait or run;"
                " wait until one ends, or cancel one"
            )
    limit = principal.max_usd_a_day
    paid = [settings for settings in wanted if settings is not None and not costs_nothing(settings)]
    if limit is None or not paid:
        return
    budgets = [settings.budget_usd for settings in paid if settings.budget_usd is not None]
    if len(budgets) < len(paid):
        raise QuotaExceeded(f"${limit:.2f} a day are allowed, so each job needs a budget_usd")
    if (model := _unpriced(paid)) is not None:
        raise QuotaExceeded(
            f"${limit:.2f} a day are allowed and no price of model {model[:80]!r} is known;"
            " choose another, or have an operator set KERNELWRIGHT_PRICE on the server"
        )
    worst = spending.worst_spending(session, principal.user, utc_now() - DAY, _free)
    asked = max(sum(budgets) - spent_usd, 0.0)
    if worst + asked > limit:
        left = max(limit - worst, 0.0)
        raise QuotaExceeded(
            f"${limit:.2f} a day are allowed and ${left:.2f} are left; ask for a budget_usd within that"
        )


def worst_left_usd(job: JobRecord) -> float:
    """What a job has spent, at the most."""
    return job.cost_usd + job.unsettled_usd


def _unpriced(wanted: Iterable[Settings]) -> str | None:
    """A model whose price neither a setting says nor LiteLLM knows; its budget could not be kept."""
    asked = {
        model
        for settings in wanted
        if settings.price is None
        for model in (settings.model, settings.judge_model)
        if model is not None and not is_builtin(model)
    }
    if not asked:
        return None
    litellm = import_litellm()
    return next((model for model in sorted(asked) if price_of(litellm, model) is None), None)


def _free(model: str | None, judge_model: str | None) -> bool:
    return all(name is None or is_builtin(name) for name in (model, judge_model))
