"""Puts the API together: its routes under /api/v1, their description, and the metrics."""

from fastapi import APIRouter, FastAPI

from web.api import health

PREFIX = "/api/v1"


def add_to(app: FastAPI) -> None:
    """Add the API."""
    api = APIRouter(prefix=PREFIX)
    api.include_router(health.router)
    app.include_router(api)
