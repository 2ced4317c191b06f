"""What the routes work with."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from db.store import Store
from service.settings import Settings


@dataclass(frozen=True)
class Parts:
    """What the routes work with; `request.app.state.parts` holds it.

    `login` False: the server is bound to loopback, and whoever reaches it is the user of this machine. `session_key`
    signs session cookies and CSRF tokens. `stopping` holds once the server is told to end: streams end then.
    """

    settings: Settings
    store: Store
    login: bool = False
    session_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    stopping: Callable[[], bool] = field(default=lambda: False)


def parts_of(request: Request) -> Parts:
    """The parts of the application that answers this request."""
    parts: Parts = request.app.state.parts
    return parts


TheParts = Annotated[Parts, Depends(parts_of)]
