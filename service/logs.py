"""Logs of long-running processes: one line for each event on stderr, as text or as JSON.

While a database is away, every thread of every process says so again and again. A warning that repeats another one is
counted instead of written, and the count is written once a period.
"""

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TextIO

Format = Literal["text", "json"]

REPEATED_S = 30.0
"""A warning or error is written at most once in so many seconds; then with the number of those left out."""

_MAX_KNOWN = 1000
_OF_ONE_REQUEST = frozenset({"request_id", "took_ms"})

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logs(form: Format, *, level: str = "INFO") -> None:
    """Send the logs of this process to stderr. Values that a caller passes as `extra` are part of the line."""
    handler = CountingHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # for libraries
    for name in ("service", "web"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("dbos").handlers[:] = [logging.NullHandler()]  # otherwise DBOS writes lines in a form of its own


@dataclass
class _Repeated:
    """The latest record of those that say the same, when one of them was written, and how many were not."""

    record: logging.LogRecord
    written_s: float
    left_out: int = 0


class CountingHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream. Of warnings and errors that say the same it writes one a period, with a count.

    Two records say the same if logger, level, text and `extra` values are the same, but for the ids of requests. The
    number of those left out is the value `repeated` of the next line, which is written with the first record, of any
    text, after the period; or when the process ends.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._known: dict[tuple[object, ...], _Repeated] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count a record. One that cannot be written is reported as `logging` does, and raises nothing."""
        try:
            self._emit(record)
        except Exception:
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        now = self._clock()
        self._write_counts(now)
        if record.levelno < logging.WARNING:
            super().emit(record)
            return
        added = {name: value for name, value in _added(record).items() if name not in _OF_ONE_REQUEST}
        key = (record.name, record.levelno, record.getMessage(), str(added))
        if (known := self._known.get(key)) is not None:
            known.record = record
            known.left_out += 1
            return
        if len(self._known) >= _MAX_KNOWN:
            self._write(self._known.pop(next(iter(self._known))))
        self._known[key] = _Repeated(record, now)
        super().emit(record)

    def close(self) -> None:
        """Write what was counted."""
        with contextlib.suppress(ValueError):  # the stream may be closed already
            self._write_counts(float("inf"))
        super().close()

    def _write_counts(self, now: float) -> None:
        """Write the counts of periods that are over; where something was left out another period begins."""
        for key, known in list(self._known.items()):
            if now - known.written_s < REPEATED_S:
                continue
            del self._known[key]
            if known.left_out:
                self._write(known)
                self._known[key] = _Repeated(known.record, now)

    def _write(self, known: _Repeated) -> None:
        if known.left_out:
            known.record.repeated = known.left_out
            super().emit(known.record)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the `extra` values, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        line = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_added(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Time, level, message, and the `extra` values as `name=value`, on one line. A traceback follows on more lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of text."""
        message = "".join(char if char.isprintable() else "?" for char in record.getMessage())
        added = "".join(f" {name}={value}" for name, value in _added(record).items())
        line = f"{_moment(record)} {record.levelname.lower():7} {message}{added}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _added(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN and value is not None}
