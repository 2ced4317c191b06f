"""How a runner fails, whoever it is: one exception, which names the runner's role."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])


class RunnerFailed(Exception):
    """A runner did not do what it was told: `kind` says how, `detail` carries what it printed or raised (claims).

    `role` is that of the runner; its handle fills it in.
    """

    def __init__(self, kind: str, message: str, detail: str = "", *, role: str = "") -> None:
        super().__init__(message)
        self.kind = kind  # error, output, out_of_memory, timed_out, died, protocol, unreadable, no_room
        self.message = message
        self.detail = detail
        self.role = role


def names_role(method: _Method) -> _Method:
    """A method of something with a `role`, whose RunnerFailed shall name it."""

    @functools.wraps(method)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except RunnerFailed as failure:
            failure.role = failure.role or self.role
            raise

    return cast("_Method", named)
