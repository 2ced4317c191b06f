"""Logs of long-running processes: one line for each event on stderr, as text or as JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Literal

Format = Literal["text", "json"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logs(form: Format, *, level: str = "INFO") -> None:
    """Send the logs of this process to stderr. Values that a caller passes as `extra` are part of the line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # for libraries
    for name in ("service", "web"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("dbos").handlers[:] = [logging.NullHandler()]  # otherwise DBOS writes lines in a form of its own


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
