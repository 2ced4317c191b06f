"""The starter ops have screened candidates in CUDA C++ and Triton, and faults are planted in texts that are there."""

import ast

import pytest

from benchmarks.screened_ops import FAULTS, FOLDER, PLATFORMS, RESULTS, kept_results, page
from tasks.outcomes import RIGHT, SHOWN_UNTIMED
from tasks.suites import load_suite

NOT_FOUND = {"fault/cuda/atomic_between_blocks_left_out"}
"""Faults that no order of blocks shows; the page says so."""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_starter_op_has_a_candidate_that_parses(platform: str) -> None:
    files = sorted((FOLDER / platform).glob("*.py"))
    assert [path.stem for path in files] == sorted(task.name for task in load_suite("starter").tasks)
    for path in files:
        classes = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        assert classes == ["ModelNew"], path


def test_every_fault_is_a_change_of_a_candidate_that_parses() -> None:
    assert {fault.platform for fault in FAULTS.values()} == set(PLATFORMS) and len(FAULTS) >= 12
    for fault in FAULTS.values():
        right = (FOLDER / fault.platform / f"{fault.op}.py").read_text()
        assert ast.dump(ast.parse(fault.source(FOLDER))) != ast.dump(ast.parse(right))


def test_all_is_shown_of_each_candidate_and_each_fault_but_one_is_refused() -> None:
    for name, found in kept_results().items():
        if name.startswith("fault/"):
            assert (found["verdict"] in RIGHT) == (name in NOT_FOUND), name
        else:
            assert (found["verdict"], set(found["tags"])) == ("screened", SHOWN_UNTIMED), name


def test_the_page_holds_what_is_kept() -> None:
    assert (RESULTS / "screening.md").read_text() == page(kept_results())
