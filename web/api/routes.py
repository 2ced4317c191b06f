"""Adds the API to the application: its routes under /api/v1, its description, and the metrics."""

from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from web import metrics
from web.api import (
    audit,
    batches,
    candidates,
    devices,
    evaluations,
    events,
    jobs,
    leaderboard,
    models,
    status,
    tasks,
    transcripts,
    weights,
)
from web.api.parameters import refuse_unknown
from web.problems import Problem

PREFIX = "/api/v1"
_MODULES = (
    status,
    tasks,
    jobs,
    transcripts,
    events,
    candidates,
    evaluations,
    leaderboard,
    batches,
    models,
    weights,
    devices,
    audit,
)


def add_to(app: FastAPI) -> None:
    """Add the routes, `GET /api/v1/openapi.json` and `GET /metrics`."""
    api = APIRouter(prefix=PREFIX, dependencies=[Depends(refuse_unknown)])
    for module in _MODULES:
        api.include_router(module.router)

    @api.get("/openapi.json", include_in_schema=False)
    def describe() -> Response:
        """The description of the API (OpenAPI 3.1); needs no token."""
        return JSONResponse(app.openapi())

    app.include_router(api)
    app.include_router(metrics.router)
    app.openapi = lambda: _description(app)  # type: ignore[method-assign]  # as FastAPI documents it


def _description(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=_TAGS
        )
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"] |= {**problem.pop("$defs", {}), "Problem": problem}
        app.openapi_schema = schema
    return app.openapi_schema


_TAGS = [
    {"name": "tasks", "description": "Ops to optimize."},
    {"name": "jobs", "description": "Requests to optimize an op, and their results."},
    {"name": "events", "description": "Streams of changes in jobs, batches and devices."},
    {"name": "candidates", "description": "Kernels that jobs have written."},
    {"name": "evaluations", "description": "Verdicts and measurements of candidates."},
    {"name": "leaderboard", "description": "The fastest candidates that passed."},
    {"name": "batches", "description": "Sets of jobs, and their figures."},
    {"name": "models", "description": "Runs over whole models: regions, their jobs, and the proof."},
    {"name": "weights", "description": "Weights of models, which runs and evaluations name."},
    {"name": "devices", "description": "Live workers."},
    {"name": "audit", "description": "The log of changes by operators."},
    {"name": "access", "description": "The client's role and limits."},
    {"name": "health", "description": "Whether the server works."},
]
