"""Bounded collection of a command's output and how it ended, shared by the sandboxes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

_LONGEST_LINE_BYTES = 64 * 1024


class EndReason(Enum):
    """Why a conversation ended."""

    CLOSED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()
    TOO_MUCH_OUTPUT = auto()


@dataclass
class OutputCapture:
    """Standard output and error so far, never more than `limit_bytes` in all."""

    limit_bytes: int
    on_stderr: Callable[[bytes], None] | None = None
    truncated: bool = False
    _stdout: bytearray = field(default_factory=bytearray)
    _stderr: bytearray = field(default_factory=bytearray)
    _line: bytearray = field(default_factory=bytearray)

    def add_stdout(self, data: bytes) -> None:
        """Keep `data` as far as the limit allows."""
        self._stdout += self._within_limit(data)

    def add_stderr(self, data: bytes) -> None:
        """Keep `data` as far as the limit allows, and hand every line that it completes to `on_stderr`."""
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
        """Hand over a last line that has no end."""
        if self._line and self.on_stderr is not None:
            line, self._line = bytes(self._line), bytearray()
            self.on_stderr(line)

    @property
    def stdout(self) -> bytes:
        """What was kept of standard output."""
        return bytes(self._stdout)

    @property
    def stderr(self) -> bytes:
        """What was kept of standard error."""
        return bytes(self._stderr)

    def _within_limit(self, data: bytes) -> bytes:
        room = self.limit_bytes - len(self._stdout) - len(self._stderr)
        if len(data) > room:
            self.truncated = True
        return data[: max(room, 0)]
