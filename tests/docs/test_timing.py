"""The tables of docs/timing.md say what the code does."""

import re
from pathlib import Path

import pytest

from evaluator.evaluate import Effort
from evaluator.referee.pool.runner_pool import Request
from evaluator.referee.timing.call_times import Plan
from service.settings import Settings
from tasks.outcomes import CODE_TEXTS, TAGS, Verdict
from tests.support.doc_tables import constant, quantities, table

PAGE = (Path(__file__).parents[2] / "docs" / "timing.md").read_text()
CONSTANTS = table(PAGE, "name")


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_table_of_constants_is_the_codes(name: str) -> None:
    assert quantities(CONSTANTS[name][0]) == pytest.approx(constant(name))


def test_the_text_uses_constants_of_the_table_only() -> None:
    used = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bPlan\.\w+", PAGE.partition("## Constants")[0]))
    shown = {"Plan." + name.rpartition(".")[2] if ".Plan." in name else name.rpartition(".")[2] for name in CONSTANTS}
    assert {name for name in used if not name.startswith("KERNELWRIGHT_")} <= shown


def test_the_defaults_are_the_same_everywhere() -> None:
    plan = Plan()
    assert plan.budget_s == Settings().measure_s == Effort().measure_budget_s
    assert plan.precision == Settings().precision == Effort().precision == Request("", "").precision


def test_the_wanted_widths_are_the_plans() -> None:
    widths = table(PAGE, "speedup")
    assert len(widths) == 4
    for speedup, [within] in widths.items():
        assert quantities(within) == pytest.approx([Plan().wanted_width(float(speedup)) / 2], abs=0.0005)


def test_results_have_the_verdicts_codes_and_ranks_that_the_page_says() -> None:
    results = table(PAGE, "result")
    for row in results:
        kind, *names = row.replace("`", "").replace(",", "").split(" ")
        if kind == "tag":
            assert TAGS[names[0]].ranked == (names[1:] == ["ranked"])
        else:
            assert kind == "verdict" and names[0] in set(Verdict)
            assert set(names[1:]) <= set(CODE_TEXTS[names[0]])
    assert all(any(row.startswith(f"tag `{name}`") for row in results) for name, tag in TAGS.items() if not tag.ranked)
