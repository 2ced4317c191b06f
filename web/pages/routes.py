"""Adds the pages to the application, and shows errors as pages."""

from fastapi import FastAPI, Request, Response

from web.pages import (
    batches,
    candidates,
    devices,
    jobs,
    leaderboard,
    login,
    models,
    overview,
    submit,
    tasks,
    transcripts,
)
from web.pages.render import assets
from web.pages.render.render import page
from web.problems import Problem

_HEADINGS = {
    401: "Log in first",
    403: "Not allowed",
    404: "Not here",
    405: "Not that way",
    409: "Not as it stands",
    413: "Too large",
    422: "That cannot be",
    429: "Too much at once",
    500: "The server made a mistake",
    503: "Not available now",
}


def add_to(app: FastAPI) -> None:
    """Add the pages. `app.state.error_page` shows errors on them."""
    app.state.error_page = error_page
    for module in (
        assets,
        overview,
        leaderboard,
        submit,
        jobs,
        transcripts,
        candidates,
        tasks,
        batches,
        models,
        devices,
        login,
    ):
        app.include_router(module.router)


def error_page(request: Request, problem: Problem) -> Response:
    """The page for an error. A failed login gets the login form again."""
    if problem.status == 401 and request.url.path == "/login":
        target = login.local_path(request.query_params.get("next", "/"))
        return page(request, "login.html", status=401, message=problem.detail, target=target)
    heading = _HEADINGS.get(problem.status, problem.title)
    return page(request, "error.html", status=problem.status, problem=problem, heading=heading)
