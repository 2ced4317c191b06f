"""Errors as responses: application/problem+json (RFC 9457) for the API, a page for browsers."""

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from db.errors import NotInStore, StoreError
from service.errors import BadRequest, Conflict, Unavailable
from service.submissions.access import NotAllowed, NotAuthenticated
from service.submissions.quotas import QuotaExceeded
from tasks.task import TaskError
from tasks.text import clean_text

MEDIA_TYPE = "application/problem+json"
MAX_SHOWN_CHARS = 80
MAX_ERRORS = 20
_log = logging.getLogger(__name__)
# Names of the two forms of a body. Pydantic puts them into the location of an error; the client does not know them.
_BODY_FORMS = frozenset({"of_task", "of_source"})
_API = ("/api/", "/metrics")


class FieldError(BaseModel):
    """A value of a request that was refused."""

    field: str = Field(description="The location, such as body.rounds or query.limit.")
    message: str
    value: str | None = Field(default=None, description="The value, shortened.")


class Problem(BaseModel):
    """Why a request failed (RFC 9457)."""

    type: str = Field(
        default="about:blank", description="/problems/WORD for programs, or about:blank if `status` says all."
    )
    title: str = Field(description="The name of the status.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What is wrong with the request, and what to do.")
    instance: str = Field(description="The path of the request.")
    request_id: str | None = Field(default=None, description="The id of the request in the server's log.")
    errors: list[FieldError] | None = Field(default=None, description="The refused values, with status 422.")


class ProblemError(Exception):
    """Ends a request with an error response. `kind` is the last part of the problem's `type`."""

    def __init__(self, status: int, detail: str, *, kind: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = dict(headers or {})


def add_to(app: FastAPI) -> None:
    """Add the handlers of errors. `app.state.error_page(request, problem) -> Response`, if set, shows them on pages."""
    app.state.error_page = None
    app.add_exception_handler(RequestValidationError, _on_validation)
    for error in (HTTPException, ProblemError, NotAuthenticated, NotAllowed, NotInStore, StoreError, TaskError,
                  BadRequest, QuotaExceeded, Unavailable):  # fmt: skip
        app.add_exception_handler(error, _on_error)


def problem_response(request: Request, problem: ProblemError, errors: Sequence[FieldError] | None = None) -> Response:
    """The response for a problem."""
    status = HTTPStatus(problem.status)
    body = Problem(
        type=f"/problems/{problem.kind}" if problem.kind else "about:blank",
        title=status.phrase,
        status=problem.status,
        detail=clean_text(problem.detail),
        instance=clean_text(request.url.path),
        request_id=request.scope.get("state", {}).get("request_id"),
        errors=list(errors) if errors is not None else None,
    )
    page = request.app.state.error_page
    if request.url.path.startswith(_API):
        response: Response = JSONResponse(
            body.model_dump(mode="json", exclude_none=True), status_code=problem.status, media_type=MEDIA_TYPE
        )
    elif page is not None:
        response = page(request, body)
    else:
        response = PlainTextResponse(f"{body.title}: {body.detail}\n", status_code=problem.status)
    response.headers.update(problem.headers)
    return response


def problem_of(error: Exception) -> ProblemError:
    """The problem for an error of a use case. An unexpected error gives no details."""
    match error:
        case ProblemError():
            return error
        case HTTPException():
            return ProblemError(
                error.status_code,
                _detail(error),
                headers={name.title(): value for name, value in (error.headers or {}).items()},
            )
        case NotAuthenticated():
            return ProblemError(401, str(error), headers={"WWW-Authenticate": 'Bearer realm="kernelwright"'})
        case NotAllowed():
            return ProblemError(403, str(error))
        case NotInStore():
            return ProblemError(404, str(error))
        case TaskError():
            return ProblemError(422, str(error), kind="invalid-op")
        case Conflict():
            return ProblemError(409, str(error))
        case QuotaExceeded():
            return ProblemError(403, str(error), kind="quota")
        case BadRequest():
            return ProblemError(422, str(error))
        case StoreError() | Unavailable():
            _log.error("unavailable: %s", error)
            detail = "the server cannot reach what it needs; try again later, or ask who runs it"
            return ProblemError(503, detail, headers={"Retry-After": "5"})
        case _:
            return ProblemError(500, "a fault of the server; its log tells more under this request's id")


async def _on_error(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status == 405 and (methods := _methods_of(request)):
        problem.headers["Allow"] = ", ".join(methods)  # Starlette names the methods of one route only
    return problem_response(request, problem)


def _methods_of(request: Request) -> list[str]:
    """The methods that the API accepts at this path."""
    found: set[str] = set()
    for template, item in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(template)), request.url.path):
            found |= {method.upper() for method in item} | ({"HEAD"} if "get" in item else set())
    return sorted(found)


async def _on_validation(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    errors = [
        FieldError(
            field=".".join(str(part) for part in found["loc"] if part not in _BODY_FORMS)[:200],
            message=clean_text(str(found["msg"]))[:300],
            value=_refused_value(found),
        )
        for found in error.errors()[:MAX_ERRORS]
    ]
    first = errors[0] if errors else FieldError(field="body", message="cannot be read")
    detail = f"{first.field}: {first.message}"
    return problem_response(request, ProblemError(422, detail, kind="validation"), errors)


def _refused_value(found: Mapping[str, Any]) -> str | None:
    """A refused value, shortened. None if the value is missing or is the whole body."""
    if found["type"] in ("missing", "json_invalid") or isinstance(found.get("input"), dict | list):
        return None
    return clean_text(str(found.get("input")))[:MAX_SHOWN_CHARS]


def _detail(error: HTTPException) -> str:
    if error.status_code == 404:
        return "there is nothing at this address"
    if error.status_code == 405:
        return "this address does not take that method"
    return str(error.detail)


_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "There is no token, or it is not valid.",
    403: "Not allowed for this role, by the quota, or from another site's page.",
    404: "Not found.",
    408: "The body did not arrive.",
    409: "In conflict with the present state.",
    411: "The length of the body is not declared.",
    413: "The body is too large.",
    415: "The body is compressed or of an unknown type.",
    421: "The server does not answer to this host name.",
    422: "A value was refused; `errors` lists all.",
    429: "Too many requests; Retry-After says when to try again.",
    500: "A fault of the server; `request_id` identifies it in the log.",
    503: "The store does not answer.",
}
_ALWAYS = (400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503)


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The descriptions of the problems that every route can respond with, and of those with a status in `more`."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _DESCRIPTIONS[status], "content": content} for status in sorted({*_ALWAYS, *more})}
