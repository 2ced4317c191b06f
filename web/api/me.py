"""Who asks, and what he may do."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from service.submissions.access import Role
from service.submissions.jobs import allowed_models
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter(prefix="/me", tags=["access"])


class Me(BaseModel):
    """Who asks; limits of null are none."""

    user: str
    role: Role
    max_jobs: int | None
    max_usd_a_day: float | None
    models: list[str] = Field(description="Patterns of models that a job may name; operators may name any.")


@router.get("", responses=problems())
def me(deps: Deps, principal: Viewer) -> Me:
    """Tell who the token or session stands for."""
    return Me(
        user=principal.user,
        role=principal.role,
        max_jobs=principal.max_jobs,
        max_usd_a_day=principal.max_usd_a_day,
        models=["*"] if principal.role is Role.OPERATOR else list(allowed_models(deps.settings)),
    )
