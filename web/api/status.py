"""The server's health, and the user that a request is authenticated as."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from service.submissions.access import Role
from service.submissions.jobs import allowed_models
from service.version import program_version
from web.dependencies import Deps
from web.problems import problems
from web.security.identity import Viewer

router = APIRouter()


class Health(BaseModel):
    """`ok`, and the server's version."""

    status: str
    version: str


class Me(BaseModel):
    """The client's user, role and limits. A limit of null means that there is none."""

    user: str
    role: Role
    max_jobs: int | None
    max_usd_a_day: float | None
    models: list[str] = Field(description="Patterns of models that a job may name; operators may name any.")


@router.get("/health/live", tags=["health"], responses=problems())
def live() -> Health:
    """Whether the process answers; needs no token."""
    return Health(status="ok", version=program_version())


@router.get("/health/ready", tags=["health"], responses=problems())
def ready(deps: Deps) -> Health:
    """Whether the store answers; needs no token."""
    deps.store.ping()
    return Health(status="ok", version=program_version())


@router.get("/me", tags=["access"], responses=problems())
def me(deps: Deps, principal: Viewer) -> Me:
    """Tell who the token or session stands for."""
    return Me(
        user=principal.user,
        role=principal.role,
        max_jobs=principal.max_jobs,
        max_usd_a_day=principal.max_usd_a_day,
        models=["*"] if principal.role is Role.OPERATOR else list(allowed_models(deps.settings)),
    )
