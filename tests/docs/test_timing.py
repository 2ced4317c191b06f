"""docs/timing.md says what the code does."""

import re
from pathlib import Path

from evaluator.evaluate import Effort
from evaluator.referee.pool.input_supply import _AT_ONCE_BYTES
from evaluator.referee.pool.runner_pool import Request
from evaluator.referee.timing import roofline, spot_checks
from evaluator.referee.timing.call_times import (
    HANDOVERS_AT_LEAST,
    READY_EXTRA,
    RESOLUTION,
    UNTIMED_EXTRA,
    WAKING_A_THREAD_S,
    Plan,
)
from evaluator.referee.timing.outliers import CREDIT, SURE, UNCLEAR, UNEVEN
from evaluator.referee.timing.rounds import CHECKED
from evaluator.referee.timing.stage import _FRESH_BYTES, _LATE_SHARE, _SPOT_CHECKS_SHARE
from service.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "timing.md").read_text()


def test_the_pages_constants_are_the_plans() -> None:
    plan = Plan()
    text = re.sub(r"\s+", " ", PAGE)
    assert f"At least {plan.sets} sets of freshly forked processes" in text
    assert f"At least {plan.rounds_min} rounds a set" in text
    assert f"{plan.calls // 2} timed ones (1, where four inputs take more than {_FRESH_BYTES >> 20} MB)" in text
    assert f"up to {_AT_ONCE_BYTES >> 20} MB of them" in text
    assert f"by more than {UNTIMED_EXTRA:.0%}".replace("%", " %") in text and CHECKED == 1 / 8
    assert f"a quarter more than a baseline, {READY_EXTRA:.0%} of the turn's timed calls".replace("%", " %") in text
    assert f"{WAKING_A_THREAD_S * 1e6:g} µs a call for each thread that it has and no baseline has" in text
    assert f"up to {plan.retries} times a set" in text
    for cut, most in UNEVEN:
        assert f"{most:g} times without the slowest {cut:.0%}".replace("%", " %") in text
    assert f"at least {SURE:.0%}".replace("%", " %") + " of resampled measurements" in text
    assert f"in {UNCLEAR:.0%}".replace("%", " %") + " of resampled measurements only" in text
    assert "up to a quarter of its middle" in text and CREDIT == 1 / 4
    assert f"less than {HANDOVERS_AT_LEAST:g} such questions in half of the sets" in text
    assert f"at most {plan.set_s:g} s ({plan.rounds_min} rounds in any case)" in text
    assert f"{plan.budget_s:g} s unless set" in text
    assert plan.budget_s == Settings().measure_s == Effort().measure_budget_s
    assert f"To either side {RESOLUTION * 100:g} % is added" in text
    assert f"narrower than {plan.target_width * 100:g} % of the value" in text
    assert f"than {plan.target_effect * 100:g} % of its logarithm" in text
    assert f"wider than {plan.precision * 100:g} % (`KERNELWRIGHT_PRECISION`, {plan.precision:g} unless set" in text
    assert plan.precision == Settings().precision == Effort().precision == Request("cpu", "").precision
    assert f"1.1 is wanted to within {plan.wanted_width(1.1) / 2 * 100:g} %," in text
    for speedup, within in ((1.1, 1.2), (1.5, 5.1), (2.3, 10), (3, 10)):
        assert round(plan.wanted_width(speedup) / 2 * 100, 1) == within
    assert f"{_LATE_SHARE:.0%}".replace("%", " %") + " of the time" in text
    assert f"more than {_SPOT_CHECKS_SHARE:.0%}".replace("%", " %") + " of the time" in text
    assert "one or two with a chance of a half" in text and spot_checks.SHARE == 1 / 2
    assert "with a chance of a quarter" in text and spot_checks.SHARE_IF_DEAR == 1 / 4


def test_the_pages_limits_are_those_that_times_are_held_to() -> None:
    words = " ".join(PAGE.split())
    assert f"A time below {roofline._MARGIN} of what writing the outputs alone takes" in words
    assert f"{1 - roofline._NOISE:.0%}".replace("%", " %") + " left for noise" in words
    assert f"within {roofline._NEAR} times of it" in words
