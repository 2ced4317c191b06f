"""The web application: the API, the pages and what protects both."""

from fastapi import FastAPI

from service.version import program_version
from web import problems
from web.api import routes as api
from web.broadcast import Hub
from web.dependencies import Dependencies
from web.metrics import Metrics
from web.pages import routes as pages
from web.security import login
from web.security.middleware import Guard
from web.security.rate_limit import Limits


def create_app(deps: Dependencies) -> FastAPI:
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
    app.state.dependencies = deps
    app.state.limits = Limits(deps.settings.requests_a_minute)
    app.state.hub = hub = Hub(deps)
    app.state.metrics = Metrics(deps.store, lambda: hub.listeners)
    problems.add_to(app)
    api.add_to(app)
    app.include_router(login.router)
    pages.add_to(app)
    app.add_middleware(Guard, login=deps.login, fastapi=app)
    return app
