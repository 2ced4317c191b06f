"""What forms of our own pages send."""

from typing import Annotated

from fastapi import Depends, Form, Request

from service.access import NotAllowed
from web.parts import TheParts
from web.sessions import csrf_matches


def _checked(request: Request, parts: TheParts, csrf_token: Annotated[str, Form(max_length=100)] = "") -> None:
    if not csrf_matches(request, parts.session_key, csrf_token):
        raise NotAllowed("the form is of another session, or of a server that was started anew; load the page again")


OwnForm = Depends(_checked)
"""Refuses what another site's page, or a page of another session, sends."""
