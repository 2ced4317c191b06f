"""What tests of whole evaluations and profiles on a stand-in for a GPU share."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the referee beside it."""
    folder = tmp_path_factory.mktemp("package") / "whole"
    shutil.copytree(ROOT / "evaluator" / "referee", folder / "evaluator" / "referee")
    shutil.copy(ROOT / "evaluator" / "__init__.py", folder / "evaluator")
    shutil.copy(Path(__file__).with_name("whole.py"), folder / "__main__.py")
    return folder
