"""Login and logout on the pages. A token is posted once; afterwards a cookie stands for it."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from service.submissions.access import NotAllowed, NotAuthenticated, authenticate
from web.dependencies import Deps
from web.pages.render.render import page
from web.security.identity import MAX_TOKEN_CHARS
from web.security.sessions import close_session, csrf_matches, is_secure, open_session

router = APIRouter(include_in_schema=False)
_LOCAL_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


@router.get("/login")
def login(request: Request, deps: Deps, target: Annotated[str, Query(alias="next", max_length=2000)] = "/") -> Response:
    """The form that asks for a token, if login is required."""
    if not deps.login:
        return RedirectResponse(local_path(target), status_code=303)
    return page(request, "login.html", message="", target=local_path(target))


@router.post("/login")
def log_in(
    request: Request,
    deps: Deps,
    token: Annotated[str, Form(max_length=MAX_TOKEN_CHARS)],
    target: Annotated[str, Form(alias="next", max_length=2000)] = "/",
) -> RedirectResponse:
    """Open a session and redirect to the page that was asked for.

    Raises:
        NotAuthenticated: The token is not valid.
    """
    response = RedirectResponse(local_path(target), status_code=303)
    if not deps.login:
        return response
    try:
        principal = authenticate(deps.store, token.strip())
    except NotAuthenticated:
        request.app.state.rate_limits.count_failure(request.client.host if request.client else "unknown")
        raise
    if principal.token_id is not None:
        open_session(response, deps.session_key, principal.token_id, secure=is_secure(request))
    return response


@router.post("/logout")
def log_out(request: Request, deps: Deps, csrf_token: Annotated[str, Form(max_length=100)] = "") -> RedirectResponse:
    """Close the browser's session.

    Raises:
        NotAllowed: The form has no valid CSRF token.
    """
    if not csrf_matches(request, deps.session_key, csrf_token):
        raise NotAllowed("the form is of another session; load the page again")
    response = RedirectResponse("/login" if deps.login else "/", status_code=303)
    close_session(response, secure=is_secure(request))
    return response


def local_path(target: str) -> str:
    """`target` if it is a path on this server, else `/`: a link must not redirect to another site."""
    return target if _LOCAL_PATH.fullmatch(target) else "/"
