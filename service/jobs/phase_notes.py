"""What an evaluation is doing, as events of its job: for those who watch it, whichever process evaluates."""

import contextlib
import hashlib
import socket
from collections.abc import Callable, Mapping
from typing import Any

from db.errors import StoreError
from evaluator.phases import phase_of_line
from service.errors import JobLost
from service.evaluation_context import EvaluationContext

PHASE = "phase"
"""The kind of these events."""


class PhaseNotes:
    """Stores each phase when it begins. A note that cannot be stored is left out: no evaluation depends on it.

    Args:
        write: stores the data of an event; it may raise StoreError and JobLost.
        where: what each event says of the place (`place_of`).
    """

    def __init__(self, write: Callable[[Mapping[str, Any]], None], where: Mapping[str, Any]) -> None:
        self._write = write
        self._where = where
        self._last: str | None = None

    def begin(self) -> None:
        """Forget the last phase: another evaluation begins."""
        self._last = None

    def read_line(self, line: str) -> None:
        """Note the phase that a line of progress tells of."""
        phase = phase_of_line(line)
        if phase is not None:
            self.note(phase)

    def note(self, phase: str) -> None:
        """Note a phase, unless it was the last one, too."""
        if phase == self._last:
            return
        self._last = phase
        with contextlib.suppress(StoreError, JobLost):
            self._write({"phase": phase, **self._where})


def place_of(context: EvaluationContext) -> dict[str, Any]:
    """The device of a context by name, and digests of its locks on this host: others that share one wait for it."""
    places = [hashlib.sha256(f"{socket.gethostname()}\n{path}".encode()).hexdigest()[:12] for path in context.locks]
    return {"device": context.device.name, "places": places}
