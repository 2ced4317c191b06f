import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.failed_tests import MOST, failed_tests, main

SUITE = """
import pytest

@pytest.mark.parametrize("name", [pytest.param("cpu", marks=pytest.mark.xdist_group("cpu")), "a@b"])
@pytest.mark.parametrize("right", [True, False])
def test_one(name, right):
    assert right

@pytest.mark.xdist_group("alone")
def test_two():
    assert False
"""
FAILED = ["test_suite.py::test_one[False-a@b]", "test_suite.py::test_one[False-cpu]", "test_suite.py::test_two"]


def test_what_failed_side_by_side_can_be_asked_again(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-o", "cache_dir=cache"]
    side_by_side = [*pytest_here, "-n", "2", "--dist", "loadgroup"]
    done = subprocess.run(side_by_side, cwd=tmp_path, capture_output=True, text=True)
    assert "3 failed, 2 passed" in done.stdout
    assert failed_tests(tmp_path / "cache") == FAILED
    assert main(["--cache", str(tmp_path / "cache"), str(tmp_path / "failed")]) == 0
    again = subprocess.run([*pytest_here, "@failed"], cwd=tmp_path, capture_output=True, text=True)
    assert "3 failed" in again.stdout and "passed" not in again.stdout


@pytest.mark.parametrize("count", [None, 0, MOST + 1])
def test_none_or_many_are_not_asked_again(tmp_path: Path, count: int | None) -> None:
    kept = tmp_path / "v" / "cache" / "lastfailed"
    if count is not None:
        kept.parent.mkdir(parents=True)
        kept.write_text(json.dumps({f"test_a.py::test_{number}": True for number in range(count)}))
    assert main(["--cache", str(tmp_path), str(tmp_path / "failed")]) == 1
