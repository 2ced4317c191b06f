"""What is left to gain by the regions that wait, given what others have found."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.whole_models import budget
from service.whole_models.budget import Saving, left_to_gain, most_saved
from service.whole_models.plan import WHOLE
from whole_models.regions import Occurrence, Region

TOTAL_MS = 100.0


def region(nodes: str, ms: float, kind: str = "element-wise", *more: str) -> Region:
    places = tuple(Occurrence(tuple(each), (), (), ()) for each in (nodes, *more))
    return Region(nodes, kind, "", tuple(nodes), places, ms)


def waits(nodes: str, ms: float, kind: str = "element-wise", *more: str) -> Saving:
    """A region whose job has not run, if its kernel took no time."""
    return Saving(region(nodes, ms, kind, *more), ms)


def test_a_region_alone_can_gain_its_share() -> None:
    assert left_to_gain([], [waits("ab", 30.0)], TOTAL_MS) == pytest.approx(0.3)


def test_what_was_saved_makes_the_rest_a_larger_share() -> None:
    assert left_to_gain([Saving(region("ab", 60.0), 50.0)], [waits("cd", 20.0)], TOTAL_MS) == pytest.approx(20 / 50)


def test_parts_that_take_less_than_a_kernel_for_all_of_them_saves_have_nothing_to_gain() -> None:
    block = Saving(region("abcd", 60.0), 40.0)
    assert left_to_gain([block], [waits("ab", 25.0), waits("cd", 14.0)], TOTAL_MS) == 0
    assert left_to_gain([block], [waits("ab", 25.0), waits("cd", 25.0)], TOTAL_MS) == pytest.approx(10 / 60)
    assert left_to_gain([Saving(region("abcd", 90.0, WHOLE), 70.0)], [waits("ab", 60.0)], TOTAL_MS) == 0


def test_a_region_around_a_kernel_can_gain_what_the_kernel_left() -> None:
    assert left_to_gain([Saving(region("ab", 30.0), 20.0)], [waits("abc", 40.0)], TOTAL_MS) == pytest.approx(20 / 80)


def test_a_region_may_gain_in_the_places_that_others_leave_free() -> None:
    found = [Saving(region("abcd", 50.0), 49.0)]
    assert left_to_gain(found, [waits("ab", 30.0, "reduction", "xy", "zw")], TOTAL_MS) == pytest.approx(20 / 51)


def test_nothing_waits_and_nothing_is_left() -> None:
    assert left_to_gain([Saving(region("ab", 60.0), 50.0)], [], TOTAL_MS) == 0
    assert left_to_gain([Saving(region("ab", 100.0), 100.0)], [waits("ab", 100.0)], TOTAL_MS) == 0
    assert left_to_gain([], [], 0.0) == 0


NODES = {name: 1.0 + number for number, name in enumerate("abcdefgh")}
REGIONS = st.lists(
    st.tuples(
        st.frozensets(st.sampled_from(sorted(NODES)), min_size=1, max_size=5),
        st.none() | st.floats(1.0, 50.0, allow_nan=False),
    ),
    max_size=8,
)


def split(specs: Sequence[tuple[frozenset[str], float | None]]) -> tuple[list[Saving], list[Saving]]:
    found, waiting = [], []
    for nodes, speedup in specs:
        ms = sum(NODES[name] for name in nodes)
        each = region("".join(sorted(nodes)), ms)
        if speedup is None:
            waiting.append(Saving(each, ms))
        else:
            found.append(Saving(each, ms * (1 - 1 / speedup)))
    return found, waiting


def by_trying_all(savings: Sequence[Saving]) -> float:
    best = 0.0
    for chosen in range(1 << len(savings)):
        some = [each for number, each in enumerate(savings) if chosen >> number & 1]
        nodes = [node for each in some for node in each.region.nodes]
        if len(nodes) == len(set(nodes)):
            best = max(best, sum(each.ms for each in some))
    return best


@given(REGIONS)
def test_the_bound_is_what_the_best_choice_would_save(specs: Sequence[tuple[frozenset[str], float | None]]) -> None:
    found, waiting = split(specs)
    total = sum(NODES.values())
    now = by_trying_all(found)
    most = by_trying_all([*found, *waiting])
    left = left_to_gain(found, waiting, total)
    assert left == pytest.approx((most - now) / (total - now) if total > now else 0.0, abs=1e-9)
    assert 0 <= left <= 1


@given(REGIONS)
def test_each_region_that_waits_less_leaves_no_more_to_gain(
    specs: Sequence[tuple[frozenset[str], float | None]],
) -> None:
    found, waiting = split(specs)
    total = sum(NODES.values())
    for number in range(len(waiting)):
        fewer = waiting[:number] + waiting[number + 1 :]
        assert left_to_gain(found, fewer, total) <= left_to_gain(found, waiting, total) + 1e-9


@given(REGIONS)
def test_where_choices_are_too_many_the_bounds_still_hold(
    specs: Sequence[tuple[frozenset[str], float | None]],
) -> None:
    found, waiting = split(specs)
    savings = [*found, *waiting]
    exact = by_trying_all(savings)
    for name, value in (("MAX_SETS", 1), ("MAX_PLACES", 1)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(budget, name, value)
            low, high = most_saved(savings)
            assert low - 1e-9 <= exact <= high + 1e-9
