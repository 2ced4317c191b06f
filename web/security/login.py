"""Logging in and out of the pages: a token is posted once, and a cookie stands for it afterwards."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse

from service.submissions.access import NotAllowed, NotAuthenticated, authenticate
from web.dependencies import Deps
from web.security.identity import MAX_TOKEN_CHARS
from web.security.sessions import close_session, csrf_matches, is_secure, open_session

router = APIRouter(include_in_schema=False)
_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


@router.post("/login")
def log_in(
    request: Request,
    deps: Deps,
    token: Annotated[str, Form(max_length=MAX_TOKEN_CHARS)],
    target: Annotated[str, Form(alias="next", max_length=2000)] = "/",
) -> RedirectResponse:
    """Open a session and go on to the page that was asked for.

    Raises:
        NotAuthenticated: the token opens nothing.
    """
    limits = request.app.state.rate_limits
    address = request.client.host if request.client else "unknown"
    response = RedirectResponse(own_path(target), status_code=303)
    if not deps.login:
        return response
    try:
        principal = authenticate(deps.store, token.strip())
    except NotAuthenticated:
        limits.count_failure(address)
        raise
    if principal.token_id is not None:
        open_session(response, deps.session_key, principal.token_id, secure=is_secure(request))
    return response


@router.post("/logout")
def log_out(request: Request, deps: Deps, csrf_token: Annotated[str, Form(max_length=100)] = "") -> RedirectResponse:
    """End the browser's session.

    Raises:
        NotAllowed: another site's page asked for it.
    """
    if not csrf_matches(request, deps.session_key, csrf_token):
        raise NotAllowed("the form is of another session; load the page again")
    response = RedirectResponse("/login" if deps.login else "/", status_code=303)
    close_session(response, secure=is_secure(request))
    return response


def own_path(target: str) -> str:
    """`target` where it is a path of this server, else the first page: a link must not lead away."""
    return target if _OWN_PATH.fullmatch(target) else "/"
