"""The web application: the API, the pages and what protects both."""

from dataclasses import dataclass

from fastapi import FastAPI

from db.store import Store
from service.settings import Settings


@dataclass(frozen=True)
class Parts:
    """What the routes work with; `request.app.state.parts` holds it."""

    settings: Settings
    store: Store


def create_app(parts: Parts) -> FastAPI:
    """The application over an opened store; whoever opened it closes it."""
    app = FastAPI(title="Kernelwright", docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json")
    app.state.parts = parts
    return app
