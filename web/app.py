"""The web application: the API, the pages, and the middleware around both."""

from fastapi import FastAPI

from service.version import program_version
from web import problems
from web.api import routes as api
from web.api.weights import Uploads
from web.broadcast import Broadcaster
from web.dependencies import Dependencies
from web.metrics import Metrics
from web.pages import routes as pages
from web.security.head import HeadMiddleware
from web.security.middleware import SecurityMiddleware
from web.security.rate_limit import RateLimits


def create_app(deps: Dependencies) -> FastAPI:
    """Make the application. The caller opens and closes the store."""
    app = FastAPI(
        title="Kernelwright",
        version=program_version(),
        description="Submit PyTorch ops, follow jobs, read results. Errors are application/problem+json.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.dependencies = deps
    app.state.rate_limits = RateLimits(deps.settings.requests_a_minute)
    app.state.broadcaster = broadcaster = Broadcaster(deps)
    app.state.uploads = Uploads()
    app.state.metrics = Metrics(deps.store, lambda: broadcaster.listeners)
    problems.add_to(app)
    api.add_to(app)
    pages.add_to(app)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(SecurityMiddleware, login=deps.login, fastapi=app)
    return app
