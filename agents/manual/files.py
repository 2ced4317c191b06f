"""The files of `manual/DIR`: prompts are numbered and placed whole, replies count once they are whole."""

import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_REPLY_BYTES = 2 * 1024 * 1024
SETTLED_S = 0.5  # a reply whose size and time have not changed for so long is whole
KINDS = ("md", "py", "json")

_PROMPT = re.compile(r"(?P<stem>(?P<number>\d{3,9})-[a-z0-9-]{1,40})\.prompt\.md")
_MARK = "<!-- kernelwright prompt sha256:{digest} -->"


@dataclass(frozen=True)
class Found:
    """A whole reply file; `kind` is its suffix (md, py or json)."""

    text: str
    kind: str
    truncated: bool


def known_prompts(folder: Path, digest: str) -> list[str]:
    """The stems (`003-repair`) of the files in a folder that hold this prompt, in the order of their numbers.

    Raises:
        OSError: the folder cannot be read.
    """
    mark = _MARK.format(digest=digest)
    return [stem for stem in _prompts(folder) if _first_line(folder / f"{stem}.prompt.md") == mark]


def place_prompt(folder: Path, digest: str, request: str, text: Callable[[str], str]) -> str:
    """Write a prompt into a file of its own and give its stem; `text(stem)` is what it says.

    A file appears whole or not at all, and takes nobody else's name.

    Raises:
        OSError: the folder cannot be read or written.
    """
    while True:
        number = 1 + max((int(stem.partition("-")[0]) for stem in _prompts(folder)), default=0)
        stem = f"{number:03}-{request}"
        if _place(folder / f"{stem}.prompt.md", f"{_MARK.format(digest=digest)}\n{text(stem)}"):
            return stem


def reply_names(stem: str) -> tuple[str, ...]:
    """The names that the reply to a prompt may have; the first that is there and whole counts."""
    return tuple(f"{stem}.reply.{kind}" for kind in KINDS)


def reply_there(folder: Path, stem: str) -> Found | None:
    """The reply to a prompt as it is now, if there is one."""
    for kind, name in zip(KINDS, reply_names(stem), strict=True):
        with contextlib.suppress(OSError):
            return _read(folder / name, kind)[0]
    return None


class ReplyWatch:
    """Looks for the reply to one prompt, again and again."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._seen: dict[str, tuple[tuple[int, ...], float]] = {}  # what a file was like, and since when

    def look(self, now: float) -> Found | str | None:
        """The reply; or why a file that is there cannot be it; or None while there is none.

        Raises:
            OSError: the folder cannot be read.
        """
        problem = None
        for kind, name in zip(KINDS, reply_names(self._stem), strict=True):
            try:
                status = (self._folder / name).lstat()
            except FileNotFoundError:
                self._seen.pop(name, None)
                continue
            if not stat.S_ISREG(status.st_mode):
                problem = f"{self._folder / name} is not a regular file; write the reply itself there"
                continue
            state = _state(status)
            before, since = self._seen.get(name, (None, now))
            if state != before:
                self._seen[name] = (state, now)
            elif now - since >= SETTLED_S and status.st_size > 0:
                try:
                    found, as_read = _read(self._folder / name, kind)
                except OSError as error:
                    problem = f"{self._folder / name} cannot be read: {error.strerror}"
                    continue
                if as_read == state:
                    return found
        return problem


def _read(path: Path, kind: str) -> tuple[Found, tuple[int, ...]]:
    """A reply file, and what it was like when it was read.

    Raises:
        OSError: it is not there, a link, or cannot be read.
    """
    with _open_regular(path) as file:
        data = file.read(MAX_REPLY_BYTES + 1)
        state = _state(os.fstat(file.fileno()))
    text = data[:MAX_REPLY_BYTES].decode("utf-8-sig", errors="replace")
    return Found(text, kind, len(data) > MAX_REPLY_BYTES), state


def _prompts(folder: Path) -> list[str]:
    """Stems of the prompts that lie in a folder, in the order of their numbers."""
    found = [match for entry in os.scandir(folder) if (match := _PROMPT.fullmatch(entry.name))]
    return [match["stem"] for match in sorted(found, key=lambda match: int(match["number"]))]


def _first_line(path: Path) -> str:
    """The beginning of a prompt's file; empty where it cannot be read or is no file."""
    try:
        with _open_regular(path) as file:
            return file.readline(200).decode("utf-8", errors="replace").rstrip("\n")
    except OSError:
        return ""


def _open_regular(path: Path) -> BinaryIO:
    """A file opened for reading, never a link, and never waiting for a pipe.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _place(path: Path, text: str) -> bool:
    """Write a new file whole; False if one of this name is there."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o644)
        try:
            os.link(name, path)  # unlike a rename, it never replaces what another process has just placed
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            Path(name).rename(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return True


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)
