"""Keeps what g++ makes of a candidate's sources, so that the runners of the next process sets need not compile again.

A candidate compiles when it is imported, which is once in each process set, mostly in a fresh folder. Scripts of the
compilers' names come first on PATH. Each runs this file, which looks for the result of the same command on the same
sources, and else compiles and keeps the result. The folder travels from runner to runner with the other files of a
build (`runner/build_files.py`), among runners of one candidate on one device.

This file runs in the candidate's process and under its uid. A candidate that changes the kept results changes its own
kernel.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COMPILERS = ("g++", "c++", "gcc", "cc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-g++")
_SOURCES = (".c", ".cc", ".cpp", ".cxx")
_MAX_BYTES = 8 << 20  # of one result
# Options whose effect is told by their own text and the image. All others (-x, -include, -L, @file, libraries by path)
# could bring in what the key does not hold, and such a command is passed on as it is.
_PLAIN_OPTIONS = ("-c", "-shared", "-pthread", "-pipe", "-w", "-static-libgcc", "-static-libstdc++")
_PLAIN_PREFIXES = ("-O", "-m", "-f", "-std=", "-W", "-g", "-D", "-U", "-I", "-l")
_OTHER_FILES = ("-fplugin", "-fprofile", "-fdump", "-fauto-profile", "-fopt-info", "-Wp,", "-Wa,", "-M")


@dataclass(frozen=True)
class Compilation:
    """A command that makes one file of sources alone."""

    words: tuple[str, ...]  # without the names of sources and output
    sources: tuple[Path, ...]
    output: Path

    def key(self, compiler: str) -> str:
        """What the result depends on, as a hash. Headers are not in it: those of the image do not change.

        Raises:
            OSError: a source cannot be read, or its text says that the assembler reads more files.
        """
        digest = hashlib.sha256()
        for part in (compiler.encode(), *(word.encode() for word in self.words)):
            digest.update(part + b"\0")
        for source in self.sources:
            text = source.read_bytes()
            if b"incbin" in text:
                raise OSError(f"{source} reads files that nobody is told of")
            digest.update(source.suffix.encode() + b"\0" + hashlib.sha256(text).digest())
        return digest.hexdigest()


def install(folder: Path, scripts: Path) -> None:
    """Put the scripts first on this process's PATH. They keep results in `folder`.

    Nothing is kept where this user may not run Python or read this file.
    """
    program = Path(__file__).resolve()
    if not (os.access(sys.executable, os.X_OK) and os.access(program, os.R_OK)):
        return
    found = {name: path for name in COMPILERS if (path := shutil.which(name)) is not None}
    folder.mkdir(parents=True, exist_ok=True)
    scripts.mkdir(parents=True, exist_ok=True)
    for name, compiler in found.items():
        script = scripts / name
        words = (sys.executable, "-IS", str(program), str(folder), compiler)
        script.write_text(f'#!/bin/sh\nexec {" ".join(map(_quoted, words))} "$@"\n')
        script.chmod(0o755)
    os.environ["PATH"] = f"{scripts}:{os.environ['PATH']}"


def read(words: Sequence[str]) -> Compilation | None:
    """The command's parts; None if its result may depend on more than its options and sources."""
    left = list(words)
    kept: list[str] = []
    sources: list[Path] = []
    output: Path | None = None
    while left:
        word = left.pop(0)
        if word == "-o" and left and output is None:
            output = Path(left.pop(0))
        elif word in ("-I", "-D", "-U") and left:
            kept += [word, left.pop(0)]
        elif not word.startswith(("-", "@")) and word.endswith(_SOURCES):
            sources.append(Path(word))
        elif word in _PLAIN_OPTIONS or (word.startswith(_PLAIN_PREFIXES) and not word.startswith(_OTHER_FILES)):
            kept.append(word)
        else:
            return None
    return Compilation(tuple(kept), tuple(sources), output) if sources and output is not None else None


def main(words: Sequence[str]) -> int:
    """Do what the compiler would do: `words` are the folder of results, the compiler, and its arguments."""
    folder, compiler, *arguments = words
    command = read(arguments)
    if command is None:
        os.execv(compiler, [compiler, *arguments])  # noqa: S606
    assert command is not None
    try:
        entry = Path(folder) / command.key(compiler)
    except OSError:
        os.execv(compiler, [compiler, *arguments])  # noqa: S606
    if entry.is_file():
        _copy(entry, command.output)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        headers = Path(scratch) / "headers"
        status = subprocess.run([compiler, *arguments, "-MD", "-MF", str(headers)], check=False).returncode
        if status == 0 and _unchanging(headers, command.sources):
            with contextlib.suppress(OSError):
                if command.output.stat().st_size <= _MAX_BYTES:
                    _copy(command.output, entry)
    return status


def _unchanging(headers: Path, sources: Sequence[Path]) -> bool:
    """Whether all files that were read beside the sources are such that this user cannot write them."""
    try:
        _, _, listed = headers.read_text().replace("\\\n", " ").partition(":")
    except OSError:
        return False
    own = {source.resolve() for source in sources}
    names = (name.replace("\0", " ") for name in listed.replace("\\ ", "\0").split())
    read_too = {Path(name).resolve() for name in names}
    return not any(os.access(path, os.W_OK) or not path.exists() for path in read_too - own)


def _copy(source: Path, target: Path) -> None:
    """Copy with the permission to execute; whoever looks meanwhile finds the old file or the new one."""
    handle, name = tempfile.mkstemp(dir=target.parent)
    os.close(handle)
    shutil.copyfile(source, name)
    os.chmod(name, 0o755)  # noqa: PTH101, S103
    os.replace(name, target)  # noqa: PTH105


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
