"""Sessions of browsers: a signed cookie that names a token's row, and CSRF tokens that belong to one session."""

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
CSRF_FIELD = "csrf_token"
_MAX_CHARS = 200


def open_session(response: Response, key: bytes, token_id: int, *, secure: bool) -> None:
    """Have the browser keep a session of this token; it ends after twelve hours, or with the token."""
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
    """Have the browser forget its session."""
    response.delete_cookie(_name(secure), path="/", secure=secure, httponly=True, samesite="strict")


def session_token_id(request: Request, key: bytes) -> int | None:
    """The token whose session this is; None where there is none, or the cookie is not ours or too old."""
    value, _, signature = _cookie(request).rpartition(".")
    if not value or not hmac.compare_digest(signature.encode(), _sign(key, "session", value).encode()):
        return None
    token_id, expires, _nonce = value.split(".")
    return int(token_id) if time.time() < int(expires) else None


def csrf_token(request: Request, key: bytes) -> str:
    """What forms of this session carry as `csrf_token`, and scripts as the header X-CSRF-Token."""
    return _sign(key, "csrf", _cookie(request))


def csrf_matches(request: Request, key: bytes, given: str) -> bool:
    """Whether a form or script of this session's own pages sent this."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), csrf_token(request, key).encode())


def is_secure(request: Request) -> bool:
    """Whether the browser speaks https, here or to the proxy before us."""
    return request.url.scheme == "https"


def _cookie(request: Request) -> str:
    value = request.cookies.get(_name(is_secure(request)), "")
    return value if len(value) <= _MAX_CHARS and value.isascii() else ""


def _name(secure: bool) -> str:
    # With this prefix a browser takes the cookie over https and from this very host only.
    return f"__Host-{COOKIE}" if secure else COOKIE


def _sign(key: bytes, purpose: str, value: str) -> str:
    digest = hmac.new(key, f"{purpose}\0{value}".encode("utf-8", "replace"), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
