"""The questions to a GPU: what is written of answers, and that a host without one writes nothing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import probe
from benchmarks.gpu.inside.__main__ import QUESTIONS
from evaluator.platforms.gpu.driver import gpu_at
from evaluator.referee_process import REFEREE
from sandbox.base import Command, Limits
from sandbox.process.sandbox import ProcessSandbox

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(gpu_at(0) is not None, reason="there is a GPU here")
def test_without_a_gpu_nothing_is_asked_and_nothing_written() -> None:
    before = sorted((ROOT / "benchmarks" / "results").glob("gpu*"))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.probe"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == probe.NO_GPU
    assert "nothing was asked, nothing was written" in done.stderr and not done.stdout
    assert sorted((ROOT / "benchmarks" / "results").glob("gpu*")) == before


def test_each_question_inside_is_asked_once() -> None:
    names = [question.name for question in probe.QUESTIONS]
    assert len(set(names)) == len(names)
    assert set(QUESTIONS) <= set(names)
    assert [question.name for question in probe.chosen(["idle", "nvml"])] == ["idle", "nvml"]
    assert len(probe.chosen(None)) == len(names)
    with pytest.raises(ValueError, match="no question 'weather'"):
        probe.chosen(["weather"])


def test_an_answer_is_the_last_line_and_its_absence_is_told() -> None:
    assert probe.read('noise\n{"us": 3}\n', "") == {"us": 3}
    assert probe.read("", "it broke") == {"error": "no answer", "says": "it broke"}
    question = probe.Question("weather", "How is the weather?", 1.0, lambda _: {})
    assert probe.row(question, {"us": 3}, 1.234) == {
        "question": "How is the weather?", "name": "weather", "answer": {"us": 3}, "seconds": 1.23
    }  # fmt: skip


def test_a_question_runs_in_the_sandbox_with_the_referee_beside_it(
    process_sandbox: ProcessSandbox, tmp_path: Path
) -> None:
    package = tmp_path / "inside"
    shutil.copytree(ROOT / "benchmarks" / "gpu" / "inside", package)
    shutil.copytree(REFEREE, package / "referee")
    done = process_sandbox.run(Command(package, args=("tools", "cpu"), limits=Limits(wall_s=60.0)))
    assert done.exit_code == 0, done.stderr.decode()[-2000:]
    told = json.loads(done.stdout)
    assert told["gcc"] and isinstance(told["Python.h"], bool) and told["import_torch_s"] > 0
    if gpu_at(0) is None:
        done = process_sandbox.run(Command(package, args=("starts", "cpu"), limits=Limits(wall_s=60.0)))
        assert done.exit_code == 1 and b"DriverError: libcuda.so.1" in done.stderr
