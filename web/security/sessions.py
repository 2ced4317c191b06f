"""Browser sessions: a signed cookie with the id of an access token, and CSRF tokens bound to a session."""

import base64
import hashlib
import hmac
import secrets
import time

from fastapi import Request
from fastapi.responses import Response

COOKIE = "kernelwright_session"
LIFETIME_S = 12 * 3600
CSRF_HEADER = "X-CSRF-Token"
_MAX_CHARS = 200


def open_session(response: Response, key: bytes, token_id: int, *, secure: bool) -> None:
    """Set the session cookie. The session ends after `LIFETIME_S`, or when the token expires or is revoked."""
    value = f"{token_id}.{int(time.time()) + LIFETIME_S}.{secrets.token_urlsafe(12)}"
    response.set_cookie(
        _name(secure),
        f"{value}.{_sign(key, 'session', value)}",
        max_age=LIFETIME_S,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def close_session(response: Response, *, secure: bool) -> None:
    """Delete the session cookie."""
    response.delete_cookie(_name(secure), path="/", secure=secure, httponly=True, samesite="strict")


def session_token_id(request: Request, key: bytes) -> int | None:
    """The id of the session's token, or None if the cookie is missing, not signed by us, or expired."""
    value, _, signature = _cookie(request).rpartition(".")
    if not value or not hmac.compare_digest(signature.encode(), _sign(key, "session", value).encode()):
        return None
    token_id, expires, _nonce = value.split(".")
    return int(token_id) if time.time() < int(expires) else None


def csrf_token(request: Request, key: bytes) -> str:
    """The CSRF token of this session. Forms send it as the field `csrf_token`, scripts in the header `CSRF_HEADER`."""
    return _sign(key, "csrf", _cookie(request))


def csrf_matches(request: Request, key: bytes, given: str) -> bool:
    """Whether `given` is the CSRF token of this session."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), csrf_token(request, key).encode())


def is_secure(request: Request) -> bool:
    """Whether the browser uses https, to this server or to the proxy in front of it."""
    return request.url.scheme == "https"


def _cookie(request: Request) -> str:
    value = request.cookies.get(_name(is_secure(request)), "")
    return value if len(value) <= _MAX_CHARS and value.isascii() else ""


def _name(secure: bool) -> str:
    # Browsers accept a cookie with the prefix `__Host-` only over https and from this host.
    return f"__Host-{COOKIE}" if secure else COOKIE


def _sign(key: bytes, purpose: str, value: str) -> str:
    digest = hmac.new(key, f"{purpose}\0{value}".encode("utf-8", "replace"), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
