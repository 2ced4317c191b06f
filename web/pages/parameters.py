"""Parameters of pages, and the CSRF check of their forms."""

from typing import Annotated

from fastapi import Depends, Form, Path, Query, Request

from service.submissions.access import NotAllowed
from web.api.parameters import MAX_ID
from web.dependencies import Deps
from web.security.sessions import csrf_matches

JobId = Annotated[int, Path(ge=1, le=MAX_ID)]
BatchId = Annotated[int, Path(ge=1, le=MAX_ID)]
RunId = Annotated[int, Path(ge=1, le=MAX_ID)]
Before = Annotated[int | None, Query(ge=1, le=MAX_ID)]
CandidateHash = Annotated[str, Path(max_length=64)]
Name = Annotated[str, Path(max_length=255)]


def _check_csrf(request: Request, deps: Deps, csrf_token: Annotated[str, Form(max_length=100)] = "") -> None:
    if not csrf_matches(request, deps.session_key, csrf_token):
        raise NotAllowed("the form is of another session, or of a server that was started anew; load the page again")


CsrfChecked = Depends(_check_csrf)
"""A route's dependency that refuses forms of other sites and other sessions."""
