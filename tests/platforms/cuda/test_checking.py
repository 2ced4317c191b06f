"""Programs that make launches again: how long they may take, and their reports as they are told."""

import time
from pathlib import Path

from evaluator.referee.runner.main import failure
from evaluator.referee.runner.platforms.cuda.checking import _run, readable
from evaluator.referee.runner.platforms.gpu.runs import RunLimit, cpu_seconds

RACE = """
WARNING: ThreadSanitizer: data race (pid=50)
  Read of size 4 at 0x7bc000000000 by thread T2:
    #0 void k<4>(float const*) /x/cuda_sources:19 (thread+0x3af9)
    #1 main /x/launches:3 (thread+0x3750)
"""


def program(folder: Path, script: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def found(folder: Path, script: str, cpu_s: float, *, until_s: float = 60.0) -> str:
    limit = RunLimit(cpu_s, time.monotonic() + until_s)
    return _run(program(folder, script), folder / "record", folder / "outputs", "forward", limit, 1).found


def test_a_run_is_ended_by_the_processor_time_that_it_takes_and_not_by_that_of_others(tmp_path: Path) -> None:
    assert found(tmp_path, "while :; do :; done", 0.2) == "timed_out"
    assert found(tmp_path, "sleep 1.2", 1.0) == "died"  # it ended by itself, without a word


def test_a_run_is_ended_when_all_of_them_have_to_be(tmp_path: Path) -> None:
    assert found(tmp_path, "exec sleep 60", 60.0, until_s=0.0) == "timed_out"


def test_a_process_that_is_not_there_has_used_nothing() -> None:
    assert cpu_seconds(1 << 30) == 0.0


def test_a_report_names_function_and_line_of_the_candidate_alone(tmp_path: Path) -> None:
    told = ["ThreadSanitizer: data race", "  Read of size 4 by thread T2:", "    k<4>, cuda_sources line 19"]
    assert readable(RACE, tmp_path / "none").splitlines() == told


def test_a_traceback_leaves_out_frames_that_its_author_has_not_written() -> None:
    source = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise ValueError("too long")

def run():
    ModelNew()(torch.zeros(1))
"""
    names: dict[str, object] = {}
    exec(compile(source, "/somewhere/candidate.py", "exec"), names)
    try:
        names["run"]()  # type: ignore[operator]
    except ValueError as error:
        trace = failure(error)["trace"]
    assert 'candidate.py", line 6, in forward' in trace and "too long" in trace
    assert "module.py" not in trace
