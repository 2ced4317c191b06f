"""Logs of processes that run for long: one line an event on stderr, for people or for machines."""

import json
import logging
from datetime import UTC, datetime
from typing import Literal

Format = Literal["text", "json"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logs(form: Format, *, level: str = "INFO") -> None:
    """Send the logs of this process to stderr. What a caller adds by `extra` (job, worker, user) goes with the line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # of libraries
    for name in ("service", "web"):
        logging.getLogger(name).setLevel(level)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then what was added, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """Time, level and message, then what was added as `name=value`; on one line but for tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        message = "".join(char if char.isprintable() else "?" for char in record.getMessage())
        added = "".join(f" {name}={value}" for name, value in _added(record).items())
        line = f"{_moment(record)} {record.levelname.lower():7} {message}{added}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _added(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _OWN and value is not None}
