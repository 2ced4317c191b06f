"""What a user's jobs have cost, and the most that those under way may yet cost."""

import math
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from db.records import OPEN
from db.tables import JobRow


def worst_spending(
    session: Session, user: str, since: datetime, free_models: Callable[[str | None, str | None], bool]
) -> float:
    """Dollars: what jobs that ended since then cost at the most, and what those under way may; infinite if unbounded.

    `free_models(model, judge_model)` says whether a job of these costs nothing.
    """
    query = select(
        JobRow.status, JobRow.cost_usd, JobRow.unsettled_usd, JobRow.options, JobRow.model, JobRow.kind
    ).where(JobRow.user == user, or_(JobRow.status.in_(OPEN), JobRow.finished_at >= since))
    total = 0.0
    for row in session.execute(query):
        spent = row.cost_usd + row.unsettled_usd
        if row.status in OPEN and row.kind == "optimize":
            budget = row.options.get("budget_usd")
            free = free_models(row.model, row.options.get("judge_model"))
            spent = max(spent, 0.0 if free else math.inf if budget is None else float(budget))
        total += spent
    return total
