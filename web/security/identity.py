"""Authentication of requests: the local user, an access token, or the session of a browser."""

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from service.submissions.access import (
    LOCAL,
    NotAllowed,
    NotAuthenticated,
    Principal,
    Role,
    authenticate,
    authenticate_session,
    require,
)
from web.dependencies import Dependencies, dependencies_of
from web.security.sessions import CSRF_HEADER, csrf_matches, session_token_id

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_bearer = HTTPBearer(
    auto_error=False, description="A token of `kernelwright tokens create`; none is needed on a loopback address."
)
MAX_TOKEN_CHARS = 200


def identify(request: Request) -> Principal:
    """Authenticate a request by its headers alone, and count it towards the rate limit.

    Raises:
        NotAuthenticated: There is no valid token or session.
        NotAllowed: A session's request has no valid CSRF token.
        ProblemError: The rate limit is reached.
        StoreError: The store does not answer.
    """
    deps, limits = dependencies_of(request), request.app.state.rate_limits
    if not deps.login:
        principal = LOCAL
    elif "authorization" in request.headers:
        try:
            scheme, token = get_authorization_scheme_param(request.headers["authorization"])
            if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_CHARS:
                raise NotAuthenticated("send the token as `Authorization: Bearer kw_...`")
            principal = authenticate(deps.store, token)
        except NotAuthenticated:
            limits.count_failure(request.client.host if request.client else "unknown")
            raise
    else:
        principal = _by_session(request, deps)
    limits.count_request(principal)
    return principal


def principal_of(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)] = None
) -> Principal:
    """The principal of a request. The middleware has stored it in `request.state` if the request has a body.

    Raises:
        NotAuthenticated, NotAllowed, ProblemError, StoreError: See `identify`.
    """
    if getattr(request.state, "principal", None) is None:
        request.state.principal = identify(request)
    principal: Principal = request.state.principal
    return principal


def _by_session(request: Request, deps: Dependencies) -> Principal:
    token_id = session_token_id(request, deps.session_key)
    if token_id is None:
        raise NotAuthenticated("log in, or send a token as `Authorization: Bearer kw_...`")
    principal = authenticate_session(deps.store, token_id)
    # Forms have their CSRF token in a field of the body, which their routes check (pages/parameters.py).
    form = request.headers.get("content-type", "").startswith(("application/x-www-form-urlencoded", "multipart/"))
    if request.method not in _SAFE_METHODS and not (form and not request.url.path.startswith("/api/")):
        given = request.headers.get(CSRF_HEADER, "")
        if not csrf_matches(request, deps.session_key, given):
            raise NotAllowed(f"a session's request needs the header {CSRF_HEADER} with its page's token")
    return principal


def _viewer(principal: Annotated[Principal, Depends(principal_of)]) -> Principal:
    require(principal, Role.VIEWER)
    return principal


def _submitter(principal: Annotated[Principal, Depends(principal_of)]) -> Principal:
    require(principal, Role.SUBMITTER)
    return principal


def _operator(principal: Annotated[Principal, Depends(principal_of)]) -> Principal:
    require(principal, Role.OPERATOR)
    return principal


Viewer = Annotated[Principal, Depends(_viewer)]
Submitter = Annotated[Principal, Depends(_submitter)]
Operator = Annotated[Principal, Depends(_operator)]
