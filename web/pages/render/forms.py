"""Dependencies of addresses."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Form, Path, Request
from markupsafe import Markup, escape

from service.submissions.access import NotAllowed
from web.dependencies import Deps
from web.security.sessions import csrf_matches

JobId = Annotated[int, Path(ge=1, le=2**31 - 1)]
BatchId = Annotated[int, Path(ge=1, le=2**31 - 1)]
Digest = Annotated[str, Path(max_length=64)]
Name = Annotated[str, Path(max_length=255)]


def with_query(path: str, query: Mapping[str, object], **changes: object) -> Markup:
    """`path` with the given query after `changes`; what is None or empty is left out."""
    values = {key: value for key, value in {**query, **changes}.items() if value not in (None, "")}
    return escape(f"{path}?{urlencode(values, errors='replace')}" if values else path)


def _checked(request: Request, deps: Deps, csrf_token: Annotated[str, Form(max_length=100)] = "") -> None:
    if not csrf_matches(request, deps.session_key, csrf_token):
        raise NotAllowed("the form is of another session, or of a server that was started anew; load the page again")


OwnForm = Depends(_checked)
"""Refuses what another site's page, or a page of another session, sends."""
