"""CUDA C++ programs, rewritten and compiled for the host as the platform does it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from evaluator.referee.runner.platforms.cuda import source
from evaluator.referee.runner.platforms.cuda.building import CUDA, Dialect
from evaluator.referee.runner.platforms.cuda.library import prepare

_MAIN = """
int run();
int main(int count, char** words) {
    cuh::set_order(count > 1 ? words[1] : "forward");
    try { return run(); } catch (const cuh::Fault& fault) { printf("fault: %s\\n", fault.what()); return 66; }
}
#line 1 "kernel.cu"
"""


@dataclass(frozen=True)
class Ran:
    """How a program ended, and all that it printed."""

    status: int
    text: str


def build(text: str, folder: Path, kind: str = "plain", dialect: Dialect = CUDA) -> Path:
    """Compile a program whose `int run()` uses CUDA. The folder's parent keeps what all programs share."""
    written, program = folder / f"{kind}.cpp", folder / kind
    written.write_text(
        '#include "replay.h"\n' + dialect.of_programs + dialect.defines + _MAIN + source.rewrite(text).text
    )
    ready = folder.parent / "emulation" / kind
    objects = prepare.prepare_programs(kind, ready)
    places = [f"-I{each}" for each in (ready, *dialect.folders, prepare.INCLUDE)]
    command = ["g++", *prepare.PROGRAMS[kind], *places, str(written), *objects, "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def run(program: Path, order: str = "forward", seconds: float = 60.0) -> Ran:
    """Run it; status and output."""
    environment = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "exitcode=77"}
    done = subprocess.run(
        [str(program), order], capture_output=True, text=True, timeout=seconds, env=environment, check=False
    )
    return Ran(done.returncode, done.stdout + done.stderr)


def ran(text: str, folder: Path, kind: str = "plain", order: str = "forward", dialect: Dialect = CUDA) -> Ran:
    """Build and run."""
    return run(build(text, folder, kind, dialect), order)
