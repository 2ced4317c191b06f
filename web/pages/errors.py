"""Errors as pages, and the form that asks for a token."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from web.dependencies import Deps
from web.pages.render.render import page
from web.problems import Problem
from web.security.login import own_path

router = APIRouter(include_in_schema=False)

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


def error_page(request: Request, problem: Problem) -> Response:
    """What people see of an error; who is not logged in is asked for his token."""
    if problem.status == 401 and request.url.path == "/login":
        target = own_path(request.query_params.get("next", "/"))
        return page(request, "login.html", status=401, message=problem.detail, target=target)
    heading = _HEADINGS.get(problem.status, problem.title)
    return page(request, "error.html", status=problem.status, problem=problem, heading=heading)


@router.get("/login")
def login(request: Request, deps: Deps, target: Annotated[str, Query(alias="next", max_length=2000)] = "/") -> Response:
    """Ask for a token, where one is needed."""
    if not deps.login:
        return RedirectResponse(own_path(target), status_code=303)
    return page(request, "login.html", message="", target=own_path(target))
