"""What the routes depend on, handed to them by FastAPI."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from db.store import Store
from service.settings import Settings


@dataclass(frozen=True)
class Dependencies:
    """What the routes of one application share; `app.state.dependencies` holds it.

    Attributes:
        settings: The server's settings.
        store: The opened store.
        login: False if the server is bound to a loopback address; everyone who reaches it is then the local user.
        session_key: Signs session cookies and CSRF tokens.
        stopping: Whether the server was told to stop. Event streams end then.
    """

    settings: Settings
    store: Store
    login: bool = False
    session_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    stopping: Callable[[], bool] = field(default=lambda: False)


def dependencies_of(request: Request) -> Dependencies:
    """The dependencies of the application that received this request."""
    deps: Dependencies = request.app.state.dependencies
    return deps


Deps = Annotated[Dependencies, Depends(dependencies_of)]
"""The type of a route's parameter `deps`: FastAPI fills it in."""
