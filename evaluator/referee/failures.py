"""How a runner fails, whoever it is: one exception, which names the runner's role."""

import functools
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])


class RunnerFailed(Exception):
    """A runner did not do what it was told: `kind` says how, `detail` carries what it printed or raised (claims).

    `role` is that of the runner; its handle fills it in.
    """

    def __init__(self, kind: str, message: str, detail: str = "", *, role: str = "") -> None:
        super().__init__(message)
        self.kind = kind  # error, output, out_of_memory, timed_out, died, protocol, out_of_turn, unreadable, no_room
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


def of_refusal(reply: Mapping[str, Any], log: str) -> RunnerFailed:
    """What a runner's answer says that tells of a failure: its own words, bounded."""
    kind = str(reply.get("kind", "error"))
    detail = f"{str(reply.get('trace', ''))[:4000]}\n{log}".strip()
    known = kind in ("error", "output", "out_of_memory")
    return RunnerFailed(kind if known else "protocol", str(reply.get("error", "no reason given"))[:600], detail)


def of_end(status: int | None, log: str) -> RunnerFailed:
    """What a runner's end says: `status` as waitpid gives it, None if it lives and has only closed its connection."""
    if status is None:
        return RunnerFailed("protocol", "the runner closed its connection without ending", log)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return RunnerFailed("died", f"the process ended by {name} without an answer", log)
    return RunnerFailed("died", f"the process exited with status {os.WEXITSTATUS(status)} without an answer", log)
