"""The outermost middleware: request ids, checks of host and origin, the body limit, security headers, and the log.

If login is required, the sender of a body is authenticated by the headers before the body is read.
"""

import logging
import re
import secrets
import time
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from db.errors import StoreError
from service.submissions.access import NotAllowed, NotAuthenticated
from web.metrics import Metrics
from web.problems import ProblemError, problem_of, problem_response
from web.security.identity import identify
from web.security.request_body import CLOSE_CONNECTION, MAX_BODY_BYTES, MAX_LOGIN_BYTES, has_body, read_body

_log = logging.getLogger(__name__)
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
API = "/api/v1"
LOGIN = "/login"
SENT_AS_FILE = ("PUT", "/api/v1/weights")
"""The request whose route reads its body itself, because it is large; its sender is authenticated before."""
_PROXY_HEADERS = frozenset({"forwarded", "via", "x-real-ip"})
_PROXY_PREFIXES = ("x-forwarded-", "cf-")
_POLLED_ROUTES = frozenset({"/api/v1/health/live", "/api/v1/health/ready", "/metrics"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{8,64}")

# No 'unsafe-inline' for plotly: it adds its rules to an empty style sheet that the page links (docs/access.md).
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityMiddleware:
    """Wraps the whole application.

    Args:
        app: The application.
        login: Whether login is required. If not, only requests to a loopback name are accepted.
        fastapi: The FastAPI application, whose state holds the metrics.
    """

    def __init__(self, app: ASGIApp, *, login: bool, fastapi: FastAPI) -> None:
        self._app = app
        self._login = login
        self._fastapi = fastapi

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection. Only HTTP requests are checked and logged."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        scope["app"] = self._fastapi
        started_s = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(MutableHeaders(scope=message), request_id, scope)
            await send(message)

        try:
            self._check(scope["method"], headers, scope)
            max_bytes = await self._max_body_bytes(scope, headers)
            if (scope["method"], scope["path"]) != SENT_AS_FILE:
                receive = await read_body(headers, receive, max_bytes=max_bytes)
            await self._app(scope, receive, send_with_headers)
        except ProblemError as error:
            await problem_response(Request(scope), error)(scope, receive, send_with_headers)
        except Exception as error:
            _log.exception("request %s failed", request_id, extra={"request_id": request_id})
            if status:  # part of the response was sent: only closing the connection can tell the client
                raise
            await problem_response(Request(scope), problem_of(error))(scope, receive, send_with_headers)
        finally:
            self._log_request(scope, request_id, status, time.perf_counter() - started_s)

    def _check(self, method: str, headers: Headers, scope: Scope) -> None:
        """Check where a request comes from.

        Raises:
            ProblemError: Without login, the host is no loopback name or a proxy forwarded the request; or the request
                changes something and comes from another site's page.
        """
        host = headers.get("host", "")
        if not self._login:
            if _host_name(host) not in _LOOPBACK_NAMES:
                detail = "this server answers to localhost, 127.0.0.1 and [::1] only; use one of these names"
                raise ProblemError(421, detail)
            if any(name in _PROXY_HEADERS or name.startswith(_PROXY_PREFIXES) for name in headers):
                detail = "a proxy passed this request on, whose users are not known; start the server with --login"
                raise ProblemError(403, detail)
        if method not in _SAFE_METHODS and _crosses_sites(headers, host, scope["scheme"]):
            raise ProblemError(403, "the request comes from another site's page", kind="cross-site")

    async def _max_body_bytes(self, scope: Scope, headers: Headers) -> int:
        """The largest body that is read. Where login is required, only an authenticated client may send a body.

        Raises:
            ProblemError: The client is not authenticated, or not allowed to send this request.
        """
        if not self._login or not has_body(headers):
            return MAX_BODY_BYTES
        if (scope["method"], scope["path"]) == ("POST", LOGIN):
            return MAX_LOGIN_BYTES
        request = Request(scope)
        try:
            request.state.principal = await run_in_threadpool(identify, request)
        except (ProblemError, NotAuthenticated, NotAllowed, StoreError) as error:
            problem = problem_of(error)
            problem.headers |= CLOSE_CONNECTION
            raise problem from error
        return MAX_BODY_BYTES

    def _log_request(self, scope: Scope, request_id: str, status: int, took_s: float) -> None:
        route = scope.get("route")
        path = getattr(route, "path", None) or "(none)"
        if scope["path"].startswith(API) and route is not None and not path.startswith(API):
            path = API + path  # a router's routes lack the prefix that the router was included with
        metrics: Metrics = self._fastapi.state.metrics
        metrics.count_request(scope["method"], path, status, took_s)
        _log.log(
            logging.DEBUG if path in _POLLED_ROUTES and status < 400 else logging.INFO,
            "%s %s %s",
            scope["method"],
            scope["path"],
            status,
            extra={"request_id": request_id, "status": status, "took_ms": round(took_s * 1000, 2)},
        )


def _host_name(host: str) -> str:
    """The name in a Host header without the port, or an empty string if the header is malformed."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:\d{1,5})?", host)
    return found[1].lower() if found else ""


def _crosses_sites(headers: Headers, host: str, scheme: str) -> bool:
    """Whether the browser's headers say that a page of another site sent the request."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        parsed = urlsplit(origin)
    except ValueError:
        return True
    return (parsed.scheme, parsed.netloc.lower()) != (scheme, host.lower())


def _add_headers(headers: MutableHeaders, request_id: str, scope: Scope) -> None:
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")
    headers["X-Request-ID"] = request_id
    if scope["scheme"] == "https":
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
