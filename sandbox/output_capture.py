"""Bounded capture of a command's output, and how the command's streams ended; shared by the sandboxes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

_LONGEST_LINE_BYTES = 64 * 1024


class EndReason(Enum):
    """Why the exchange with a command ended."""

    CLOSED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()
    TOO_MUCH_OUTPUT = auto()


@dataclass
class OutputCapture:
    """Standard output and error so far, at most `limit_bytes` in total."""

    limit_bytes: int
    on_stderr: Callable[[bytes], None] | None = None
    truncated: bool = False
    _stdout: bytearray = field(default_factory=bytearray)
    _stderr: bytearray = field(default_factory=bytearray)
    _line: bytearray = field(default_factory=bytearray)

    def add_stdout(self, data: bytes) -> None:
        """Append `data` as far as the limit allows."""
        self._stdout += self._within_limit(data)

    def add_stderr(self, data: bytes) -> None:
        """Append `data` as far as the limit allows, and pass each completed line to `on_stderr`."""
        data = self._within_limit(data)
        self._stderr += data
        if self.on_stderr is None:
            return
        self._line += data
        *lines, rest = bytes(self._line).split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            self.on_stderr(line)
        if len(self._line) > _LONGEST_LINE_BYTES:
            self.finish_line()

    def finish_line(self) -> None:
        """Pass on a last line that has no line end."""
        if self._line and self.on_stderr is not None:
            line, self._line = bytes(self._line), bytearray()
            self.on_stderr(line)

    @property
    def stdout(self) -> bytes:
        """The captured standard output."""
        return bytes(self._stdout)

    @property
    def stderr(self) -> bytes:
        """The captured standard error."""
        return bytes(self._stderr)

    def _within_limit(self, data: bytes) -> bytes:
        room = self.limit_bytes - len(self._stdout) - len(self._stderr)
        if len(data) > room:
            self.truncated = True
        return data[: max(room, 0)]
