"""Keeps what g++ makes of a candidate's sources, so that the runners of the next process sets need not compile again.

A candidate compiles when it is imported, which is once in each process set, mostly in a fresh folder. Scripts of the
compilers' names come first on PATH. Each runs this file, which looks for the result of the same command on the same
sources, and else compiles and keeps the result. The folder travels from runner to runner with the other files of a
build (`runner/build_files.py`), among runners of one candidate on one device.

This file runs in the candidate's process and under its uid. A candidate that changes the kept results changes its own
kernel.

As a program this file is started by each build, and finding a kept result takes less time than importing much. So it
imports next to nothing, and what compiling needs only where something is compiled.
"""

import hashlib
import os
import sys

COMPILERS = ("g++", "c++", "gcc", "cc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-g++")
TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from pathlib import Path

_SOURCES = (".c", ".cc", ".cpp", ".cxx")
_MAX_BYTES = 8 << 20  # of one result
# Options whose effect is told by their own text and the image. All others (-x, -include, -L, @file, libraries by path)
# could bring in what the key does not hold, and such a command is passed on as it is.
_PLAIN_OPTIONS = ("-c", "-shared", "-pthread", "-pipe", "-w", "-static-libgcc", "-static-libstdc++")
_PLAIN_PREFIXES = ("-O", "-m", "-f", "-std=", "-W", "-g", "-D", "-U", "-I", "-l")
_OTHER_FILES = ("-fplugin", "-fprofile", "-fdump", "-fauto-profile", "-fopt-info", "-Wp,", "-Wa,", "-M")


class Compilation:
    """A command that makes one file of sources alone: its words without the names of sources and output, and these."""

    def __init__(self, words: list[str], sources: list[str], output: str) -> None:
        self.words, self.sources, self.output = tuple(words), tuple(sources), output

    def key(self, compiler: str) -> str:
        """What the result depends on, as a hash. Headers are not in it: those of the image do not change.

        Raises:
            OSError: a source cannot be read, or its text says that the assembler reads more files.
        """
        digest = hashlib.sha256()
        for part in (compiler, *self.words):
            digest.update(os.fsencode(part) + b"\0")
        for source in self.sources:
            text = _content(source)
            if b"incbin" in text:
                raise OSError(f"{source} reads files that nobody is told of")
            digest.update(os.fsencode(os.path.splitext(source)[1]) + b"\0" + hashlib.sha256(text).digest())
        return digest.hexdigest()


def install(folder: "Path", scripts: "Path") -> None:
    """Put the scripts first on this process's PATH. They keep results in `folder`.

    Nothing is kept where this user may not run Python or read this file.
    """
    import shutil

    program = os.path.realpath(__file__)
    if not (os.access(sys.executable, os.X_OK) and os.access(program, os.R_OK)):
        return
    found = {name: path for name in COMPILERS if (path := shutil.which(name)) is not None}
    folder.mkdir(parents=True, exist_ok=True)
    scripts.mkdir(parents=True, exist_ok=True)
    for name, compiler in found.items():
        script = scripts / name
        words = (sys.executable, "-IS", program, str(folder), compiler)
        script.write_text(f'#!/bin/sh\nexec {" ".join(map(_quoted, words))} "$@"\n')
        script.chmod(0o755)
    os.environ["PATH"] = f"{scripts}:{os.environ['PATH']}"


def read(words: list[str]) -> Compilation | None:
    """The command's parts; None if its result may depend on more than its options and sources."""
    left = list(words)
    kept: list[str] = []
    sources: list[str] = []
    output: str | None = None
    while left:
        word = left.pop(0)
        if word == "-o" and left and output is None:
            output = left.pop(0)
        elif word in ("-I", "-D", "-U") and left:
            kept += [word, left.pop(0)]
        elif not word.startswith(("-", "@")) and word.endswith(_SOURCES):
            sources.append(word)
        elif word in _PLAIN_OPTIONS or (word.startswith(_PLAIN_PREFIXES) and not word.startswith(_OTHER_FILES)):
            kept.append(word)
        else:
            return None
    return Compilation(kept, sources, output) if sources and output is not None else None


def main(words: list[str]) -> int:
    """Do what the compiler would do: `words` are the folder of results, the compiler, and its arguments."""
    folder, compiler, *arguments = words
    command = read(arguments)
    if command is None:
        os.execv(compiler, [compiler, *arguments])  # noqa: S606
    assert command is not None
    try:
        entry = os.path.join(folder, command.key(compiler))
    except OSError:
        os.execv(compiler, [compiler, *arguments])  # noqa: S606
    if os.path.isfile(entry):
        _copy(entry, command.output)
        return 0
    return _compile(command, compiler, arguments, entry)


def _compile(command: Compilation, compiler: str, arguments: list[str], entry: str) -> int:
    """Run the compiler, and keep the result as `entry` if all that it was made of is known."""
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        headers = os.path.join(scratch, "headers")
        status = subprocess.run([compiler, *arguments, "-MD", "-MF", headers], check=False).returncode
        if status == 0 and _unchanging(headers, command.sources):
            try:
                if os.stat(command.output).st_size <= _MAX_BYTES:
                    _copy(command.output, entry)
            except OSError:
                pass
    return status


def _unchanging(headers: str, sources: tuple[str, ...]) -> bool:
    """Whether all files that were read beside the sources are such that this user cannot write them."""
    try:
        _, _, listed = os.fsdecode(_content(headers)).replace("\\\n", " ").partition(":")
    except OSError:
        return False
    own = {os.path.realpath(source) for source in sources}
    names = (name.replace("\0", " ") for name in listed.replace("\\ ", "\0").split())
    read_too = {os.path.realpath(name) for name in names}
    return not any(os.access(path, os.W_OK) or not os.path.exists(path) for path in read_too - own)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _copy(source: str, target: str) -> None:
    """Copy with the permission to execute; whoever looks meanwhile finds the old file or the new one."""
    made = f"{target}.{os.urandom(8).hex()}"
    handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    with open(handle, "wb") as file:
        file.write(_content(source))
    os.chmod(made, 0o755)  # noqa: S103 - whatever the umask is
    os.replace(made, target)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
