"""The files of `manual/DIR`: prompts are numbered and appear whole, replies count once they are whole."""

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
STABLE_S = 0.5  # a reply file counts as whole once its size and time have not changed for so long
KINDS = ("md", "py", "json")

_PROMPT = re.compile(r"(?P<stem>(?P<number>\d{3,9})-[a-z0-9-]{1,40})\.prompt\.md")
_DIGEST_LINE = "<!-- kernelwright prompt sha256:{digest} -->"


@dataclass(frozen=True)
class ReplyFile:
    """A whole reply file; `kind` is its suffix (md, py or json)."""

    text: str
    kind: str
    truncated: bool


def known_prompts(folder: Path, digest: str) -> list[str]:
    """The stems (`003-repair`) of the files in a folder that hold the prompt with this digest, in order.

    Raises:
        OSError: the folder cannot be read.
    """
    first_line = _DIGEST_LINE.format(digest=digest)
    return [stem for stem in _prompts(folder) if _first_line(folder / f"{stem}.prompt.md") == first_line]


def write_prompt(folder: Path, digest: str, request: str, text: Callable[[str], str]) -> str:
    """Write a prompt into a new file, which appears whole.

    Args:
        folder: where to write it.
        digest: the digest of the prompt.
        request: what it asks for; part of the file's name.
        text: the text of the file, given its stem.

    Returns:
        The stem of the file.

    Raises:
        OSError: the folder cannot be read or written.
    """
    while True:
        number = 1 + max((int(stem.partition("-")[0]) for stem in _prompts(folder)), default=0)
        stem = f"{number:03}-{request}"
        if _write_new(folder / f"{stem}.prompt.md", f"{_DIGEST_LINE.format(digest=digest)}\n{text(stem)}"):
            return stem


def reply_names(stem: str) -> tuple[str, ...]:
    """The names that the reply to a prompt may have, in the order in which they count."""
    return tuple(f"{stem}.reply.{kind}" for kind in KINDS)


def find_reply(folder: Path, stem: str) -> ReplyFile | None:
    """The reply to a prompt as it is now, whole or not; None: there is none."""
    for kind, name in zip(KINDS, reply_names(stem), strict=True):
        with contextlib.suppress(OSError):
            return _read(folder / name, kind)[0]
    return None


class ReplyWatch:
    """Watches for the reply to one prompt."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._seen: dict[str, tuple[tuple[int, ...], float]] = {}  # state of a file, and since when

    def poll(self, now: float) -> ReplyFile | str | None:
        """Look for the reply; `now` is a monotonic time in seconds.

        Returns:
            The reply, or why an existing file cannot be it, or None: there is none yet.

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
            state = _file_state(status)
            before, since = self._seen.get(name, (None, now))
            if state != before:
                self._seen[name] = (state, now)
            elif now - since >= STABLE_S and status.st_size > 0:
                try:
                    found, as_read = _read(self._folder / name, kind)
                except OSError as error:
                    problem = f"{self._folder / name} cannot be read: {error.strerror}"
                    continue
                if as_read == state:
                    return found
        return problem


def _read(path: Path, kind: str) -> tuple[ReplyFile, tuple[int, ...]]:
    """A reply file, and its state when it was read.

    Raises:
        OSError: it does not exist, is a link, or cannot be read.
    """
    with _open_regular(path) as file:
        data = file.read(MAX_REPLY_BYTES + 1)
        state = _file_state(os.fstat(file.fileno()))
    text = data[:MAX_REPLY_BYTES].decode("utf-8-sig", errors="replace")
    return ReplyFile(text, kind, len(data) > MAX_REPLY_BYTES), state


def _prompts(folder: Path) -> list[str]:
    """The stems of the prompts in a folder, in the order of their numbers."""
    found = [match for entry in os.scandir(folder) if (match := _PROMPT.fullmatch(entry.name))]
    return [match["stem"] for match in sorted(found, key=lambda match: int(match["number"]))]


def _first_line(path: Path) -> str:
    """The first line of a prompt file; empty if it cannot be read or is no regular file."""
    try:
        with _open_regular(path) as file:
            return file.readline(200).decode("utf-8", errors="replace").rstrip("\n")
    except OSError:
        return ""


def _open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Links are refused, and pipes do not block.

    Raises:
        OSError: it does not exist, is not a regular file, or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _write_new(path: Path, text: str) -> bool:
    """Write a new file that appears whole; False: a file of this name exists."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o644)
        try:
            os.link(name, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            return False
        except OSError:  # the file system has no links
            Path(name).rename(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return True


def _file_state(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)
