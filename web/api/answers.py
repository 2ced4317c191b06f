"""How routes say which problems they may answer with."""

from typing import Any

from web.problems import MEDIA_TYPE

_WHY = {
    400: "The request cannot be read.",
    401: "No token, or one that opens nothing.",
    403: "The role, the quota or the page that sent it does not allow this.",
    404: "There is no such thing.",
    408: "The body did not arrive.",
    409: "Not as things stand.",
    413: "The body is too large.",
    415: "The body is of another kind.",
    421: "The name of the host is not one that this server answers to.",
    422: "A value cannot be accepted; `errors` names each.",
    429: "Too many requests; Retry-After says when to try again.",
    500: "A fault of the server; `request_id` names it in the log.",
    503: "The store does not answer.",
}
_ALWAYS = (400, 401, 403, 408, 413, 415, 421, 422, 429, 500, 503)


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """The problems that any route may answer with, and `more`."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _WHY[status], "content": content} for status in sorted({*_ALWAYS, *more})}
