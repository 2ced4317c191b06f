"""The web application: the API, the pages and what protects both."""

from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles

from service.version import program_version
from web import login, problems
from web.api import routes as api
from web.guard import Guard
from web.hub import Hub
from web.limits import Limits
from web.metrics import Metrics
from web.pages import routes as pages
from web.parts import Parts

__all__ = ["Parts", "create_app"]

_STATIC = Path(__file__).parent / "static"


def create_app(parts: Parts) -> FastAPI:
    """The application over an opened store; whoever opened it closes it."""
    app = FastAPI(
        title="Kernelwright",
        version=program_version(),
        description="Submit PyTorch ops, watch jobs, read what was found. Errors are application/problem+json.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.parts = parts
    app.state.limits = Limits(parts.settings.requests_a_minute)
    app.state.hub = hub = Hub(parts)
    app.state.metrics = Metrics(parts.store, lambda: hub.listeners)
    problems.add_to(app)
    api.add_to(app)
    app.include_router(login.router)
    app.mount("/static", StaticFiles(directory=_STATIC, check_dir=False), name="static")
    pages.add_to(app)
    app.add_middleware(Guard, login=parts.login, fastapi=app)
    return app
