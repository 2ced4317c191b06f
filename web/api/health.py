"""Whether the server lives, and whether it can work."""

from fastapi import APIRouter
from pydantic import BaseModel

from service.version import program_version
from web.dependencies import Deps
from web.problems import problems

router = APIRouter(prefix="/health", tags=["health"])


class Health(BaseModel):
    """`ok`, and by which version."""

    status: str
    version: str


@router.get("/live", responses=problems())
def live() -> Health:
    """Whether the process answers; needs no token."""
    return Health(status="ok", version=program_version())


@router.get("/ready", responses=problems())
def ready(deps: Deps) -> Health:
    """Whether the store answers; needs no token."""
    deps.store.ping()
    return Health(status="ok", version=program_version())
