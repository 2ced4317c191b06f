"""What g++ makes of a candidate's sources is kept for the next process set, if it depends on nothing else."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.referee.runner.platforms.cpu import compiler_cache

SOURCE = '#include <vector>\nextern "C" int answer() { return std::vector<int>{TERM, 2}.size() + 40; }\n'
OPTIONS = ("-O2", "-shared", "-fPIC", "-fopenmp", "-march=native", "-D", "TERM=1")
UNPRIVILEGED = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


class Runner:
    """A process that compiles as a candidate does: by name, under a uid that cannot change the image's files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept, self._folder = folder / "kept", folder
        self.log = folder / "log"
        real = folder / "real"
        for made in (self.kept, real):
            made.mkdir(exist_ok=True)
        counting = real / "g++"
        counting.write_text(f'#!/bin/sh\necho "$@" >> {self.log}\nexec /usr/bin/g++ "$@"\n')
        counting.chmod(0o755)
        monkeypatch.setenv("PATH", f"{real}:{os.environ['PATH']}")
        if UNPRIVILEGED:  # the repository may be closed to others
            shutil.copy(compiler_cache.__file__, folder / "cache.py")
            spec = importlib.util.spec_from_file_location("cache", folder / "cache.py")
            assert spec is not None and spec.loader is not None
            program = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, "cache", program)
            spec.loader.exec_module(program)
            monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
            program.install(self.kept, folder / "scripts")
        else:
            compiler_cache.install(self.kept, folder / "scripts")
        self._open_to_all(folder)

    def compile(self, folder: str, *words: str, source: str = SOURCE) -> "subprocess.CompletedProcess[str]":
        """Write the source into a folder and call g++ there; `{}` in words stands for the folder."""
        place = self._folder / folder
        place.mkdir(exist_ok=True)
        (place / "k.cpp").write_text(source)
        self._open_to_all(self._folder)
        command = ["g++", *(word.format(place) for word in words or (*OPTIONS, "-o", "{}/k.so", "{}/k.cpp"))]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, **UNPRIVILEGED)  # type: ignore[call-overload,no-any-return]

    def runs(self) -> int:
        """How often the real compiler has run."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def _open_to_all(self, folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() or os.access(path, os.X_OK) else 0o666)
        for parent in folder.parents:
            if parent.owner() == folder.owner() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    return Runner(tmp_path, monkeypatch)


def test_the_same_source_in_another_folder_is_not_compiled_again(runner: Runner, tmp_path: Path) -> None:
    assert runner.compile("first").returncode == 0
    assert runner.runs() == 1
    assert runner.compile("second").returncode == 0
    assert runner.runs() == 1
    first, second = (tmp_path / folder / "k.so" for folder in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert os.access(second, os.X_OK)


@pytest.mark.parametrize(
    ("words", "source"),
    [
        ((*OPTIONS, "-o", "{}/k.so", "{}/k.cpp"), SOURCE.replace("40", "41")),
        ((*OPTIONS, "-O3", "-o", "{}/k.so", "{}/k.cpp"), SOURCE),
        ((*OPTIONS[:-1], "TERM=3", "-o", "{}/k.so", "{}/k.cpp"), SOURCE),
        (("-c", "-DTERM=1", "-o", "{}/k.o", "{}/k.cpp"), SOURCE),
    ],
)
def test_another_source_or_option_is(runner: Runner, words: tuple[str, ...], source: str) -> None:
    runner.compile("first")
    assert runner.compile("second", *words, source=source).returncode == 0
    assert runner.runs() == 2


def test_what_includes_a_file_of_the_candidates_is_compiled_each_time(runner: Runner, tmp_path: Path) -> None:
    source = SOURCE.replace("<vector>", '"mine.h"')
    for number, folder in enumerate(("first", "second"), start=1):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.h").write_text(f"#include <vector>\n#define HOW {number}\n")
        assert runner.compile(folder, source=source).returncode == 0
        assert runner.runs() == number
    assert not list(runner.kept.iterdir())


def test_what_the_assembler_reads_from_a_file_is_compiled_each_time(runner: Runner) -> None:
    source = SOURCE + 'asm(".incbin \\"/etc/hostname\\"");\n'
    for number in (1, 2):
        assert runner.compile(f"folder{number}", source=source).returncode == 0
        assert runner.runs() == number


def test_an_error_is_the_compilers_own_and_is_not_kept(runner: Runner) -> None:
    for number in (1, 2):
        done = runner.compile(f"folder{number}", source="int x = nothing;\n")
        assert done.returncode == 1
        assert "was not declared" in done.stderr
        assert runner.runs() == number


def test_a_missing_source_is_the_compilers_to_report(runner: Runner) -> None:
    done = runner.compile("first", "-c", "-o", "{}/k.o", "{}/none.cpp")
    assert done.returncode == 1
    assert "none.cpp: No such file" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "-E -o out k.cpp",
        "-c k.cpp",
        "-o k.so k.cpp other.o",
        "-o k.so k.cpp -L. -lmine",
        "-o k.so k.cpp libmine.a",
        "-o k.so -x c++ k.txt",
        "-o k.so -include mine.h k.cpp",
        "-o k.so @words",
        "-o k.so k.cpp -fplugin=mine.so",
        "-o k.so k.cpp -fprofile-use=mine",
        "-o k.so k.cpp -Wp,-include,mine.h",
        "-o k.so k.cpp -Wa,mine.s",
        "-o k.so k.cpp -MMD -MF k.d",
        "-o k.so k.cpp -B.",
        "-o k.so -",
    ],
)
def test_a_command_that_may_read_more_is_passed_on_as_it_is(command: str) -> None:
    assert compiler_cache.read(shlex.split(command)) is None


def test_a_usual_command_is_read() -> None:
    words = "-O3 -march=native -ffast-math -fopenmp -std=c++17 -shared -fPIC -I /usr/include a.cpp b.cc -o k.so -lm"
    command = compiler_cache.read(words.split())
    assert command is not None
    assert command.sources == ("a.cpp", "b.cc")
    assert command.output == "k.so"
    assert "-lm" in command.words and "-I" in command.words and "k.so" not in command.words
