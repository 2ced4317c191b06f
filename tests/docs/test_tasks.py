"""docs/tasks.md says what importing and scaling down do."""

from pathlib import Path

from tasks import shape_cases
from tasks.fit import LEAST, LEAST_BATCH, LEAST_LARGE, half
from tasks.metadata import CATEGORIES
from tasks.text import MAX_SOURCE_BYTES
from tests.support.doc_tables import table

PAGE = (Path(__file__).parents[2] / "docs/tasks.md").read_text()


def test_the_steps_of_the_rule_go_down_to_what_the_code_says():
    least = [cells[-1] for cells in table(PAGE, "step").values()]
    assert least == [str(each) for each in (LEAST, LEAST_LARGE, LEAST, LEAST_BATCH, LEAST)]
    assert half(4095) == 2047


def test_the_categories_of_the_page_are_there():
    named = {name for cell in table(PAGE, "category") for name in cell.split(", ") if name != "the others"}
    assert named <= set(CATEGORIES)


def test_the_bounds_of_cases_are_those_of_the_code():
    told = f"at most {MAX_SOURCE_BYTES // 1024} KiB, {shape_cases.MAX_CASES:,} cases, {shape_cases.MAX_INPUTS}\ninputs"
    assert f"{told} a case, {shape_cases.MAX_DIMENSIONS} dimensions" in PAGE
