"""Which kernels go back together: those that share no operator and save most in all."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Comparison, Evaluation, Interval
from service.whole_models.assemble import ALL, Assembler, Kernel, Trial, disjoint
from service.whole_models.plan import WHOLE, Plan
from tasks.outcomes import Verdict
from whole_models.graph import Captured
from whole_models.regions import Occurrence, Region


def kernel(name: str, nodes: str, saved_ms: float, kind: str = "element-wise") -> Kernel:
    occurrence = Occurrence(tuple(nodes), (), (), ())
    return Kernel(name, Region(name, kind, "", tuple(nodes), (occurrence,), 10.0), f"# {name}", 2.0, saved_ms)


def together(*kernels: Kernel, fit: bool = True) -> list[str]:
    ordered = sorted(kernels, key=lambda each: -each.saved_ms)
    return [each.name for each in disjoint(ordered, lambda chosen: fit or len(chosen) < 2)]


def test_a_kernel_for_a_layer_is_weighed_against_those_for_its_parts() -> None:
    layer, first, second = kernel("layer", "abcd", 5.0), kernel("first", "ab", 3.0), kernel("second", "cd", 2.5)
    assert together(layer, first, second) == ["first", "second"]
    assert together(kernel("layer", "abcd", 6.0), first, second) == ["layer"]


def test_kernels_elsewhere_are_taken_too() -> None:
    assert together(kernel("a", "ab", 1.0), kernel("b", "bc", 0.9), kernel("c", "de", 0.1)) == ["a", "c"]


def test_a_kernel_whose_places_are_taken_in_part_is_put_into_the_others() -> None:
    norm = kernel("norm", "ab", 1.0)
    places = tuple(Occurrence(tuple(nodes), (), (), ()) for nodes in ("ab", "xy", "zw"))
    norm = replace(norm, region=replace(norm.region, occurrences=places, eager_ms=9.0), saved_ms=3.0)
    layer, rest = disjoint([kernel("layer", "abcd", 5.0), norm], lambda chosen: True)
    assert (layer.name, rest.name, rest.saved_ms, rest.region.eager_ms) == ("layer", "norm", 2.0, 6.0)
    assert [each.nodes for each in rest.region.occurrences] == [("x", "y"), ("z", "w")]


def test_the_kernel_of_a_whole_graph_is_no_part() -> None:
    assert together(kernel("all", "abcd", 9.0, kind=WHOLE), kernel("part", "ab", 1.0)) == ["part"]


def test_kernels_that_would_wait_for_each_other_do_not_go_together() -> None:
    assert together(kernel("a", "ab", 2.0), kernel("b", "cd", 1.0), fit=False) == ["a"]


def assembled(
    kernels: Sequence[Kernel],
    wrong: Callable[[set[str]], bool],
    monkeypatch: pytest.MonkeyPatch,
    record: Callable[[Trial], None] = lambda trial: None,
    verdict: Verdict = Verdict.WRONG_OUTPUT,
    compared: Callable[[str], Comparison] = lambda source: Comparison("c", "worse", Interval(0.8, 0.8, 0.8), 1),
) -> tuple[list[str], list[tuple[str, str | None]]]:
    """The names of the kernels that stay where each pays, and the sources that were tried.

    The model is wrong with those names, and a source beside a champion is `compared` so.
    """
    tried = []

    def evaluate(source: str, champion: str | None) -> Evaluation:
        tried.append((source, champion))
        found = verdict if wrong(set(source.split())) else Verdict.PASSED
        beside = None if champion is None else compared(source)
        return Evaluation(found, "", champion=beside)

    monkeypatch.setattr(Assembler, "_fit", lambda self, kernels: True)
    plan = Plan(Captured("", 1, (), (), 1.0, None, None, "", (), ()), (), (), {})
    source_of = lambda some: " ".join(each.name for each in some)  # noqa: E731
    assembler = Assembler(plan, source_of, evaluate, [], record, lambda text: None)
    ordered = sorted(kernels, key=lambda each: -each.saved_ms)
    return [each.name for each in assembler.assemble(ordered).kernels], tried


def test_where_a_model_is_wrong_with_a_kernel_those_for_its_parts_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, first, second = kernel("layer", "abcd", 9.0), kernel("first", "ab", 3.0), kernel("second", "cd", 2.5)
    other = kernel("other", "xy", 1.0)
    kept, tried = assembled([layer, first, second, other], lambda names: "layer" in names, monkeypatch)
    assert set(kept) == {"first", "second", "other"}
    assert len(set(tried)) == len(tried), "nothing is measured twice"
    kept, _ = assembled(
        [layer, first, second, other], lambda names: not names.isdisjoint({"layer", "second"}), monkeypatch
    )
    assert set(kept) == {"first", "other"}
    kept, _ = assembled([layer, first, second], lambda names: True, monkeypatch)
    assert kept == []
    kept, tried = assembled([layer, first], lambda names: False, monkeypatch)
    assert kept == ["layer"] and "first" not in {source for source, _ in tried}


def test_what_passed_is_not_lost_where_nothing_better_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    good = kernel("good", "ab", 8.0)
    bad = [kernel("w1", "cd", 3.0), kernel("w2", "abc", 10.0), kernel("w3", "abcd", 9.5), kernel("w4", "bd", 9.0)]
    assert assembled([good, *bad], lambda names: names != {"good"}, monkeypatch)[0] == ["good"]


def test_each_kernel_with_which_the_model_is_wrong_is_told_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Trial] = []
    kernels = [kernel("a", "ab", 6.0), kernel("b", "cd", 5.0)]
    assert assembled(kernels, lambda names: "b" in names, monkeypatch, told.append)[0] == ["a"]
    assert [(each.name, each.taken_out) for each in told if each.question == "passes"] == [
        (ALL, True), ("a", False), ("b", True)
    ]  # fmt: skip


def test_what_was_not_judged_is_no_reason_to_try_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [kernel("layer", "abcd", 9.0), kernel("first", "ab", 3.0), kernel("second", "cd", 2.5)]
    kept, tried = assembled(kernels, lambda names: True, monkeypatch, verdict=Verdict.TIMED_OUT)
    assert (kept, tried) == ([], [("layer", None)])


@pytest.mark.parametrize(
    ("decision", "ratio", "stays"),
    [
        *(("better", 1.3, True), ("open", 1.3, True), ("open", 0.9, True), ("alike", 1.01, True)),
        *(("alike", 0.99, False), ("worse", 0.7, False)),
    ],
)
def test_without_kernels_for_parts_one_for_the_whole_is_held_against_the_model_itself(
    monkeypatch: pytest.MonkeyPatch, decision: str, ratio: float, stays: bool
) -> None:
    """A trial that is left open takes nothing out: the proof decides."""
    told: list[Trial] = []
    kept, tried = assembled(
        [kernel("all", "abcd", 9.0, kind=WHOLE)],
        lambda names: False,
        monkeypatch,
        told.append,
        compared=lambda source: Comparison("c", decision, Interval(ratio, ratio, ratio), 1),
    )
    assert (kept, tried) == (["all"] if stays else [], [("all", "")])
    assert [(each.question, each.taken_out) for each in told] == [("whole alone", not stays)]


@pytest.mark.parametrize(("decision", "kept"), [("better", ["all"]), ("open", ["part"]), ("alike", ["part"])])
def test_one_kernel_for_the_whole_stands_for_those_of_its_parts_only_where_it_is_better(
    monkeypatch: pytest.MonkeyPatch, decision: str, kept: list[str]
) -> None:
    def compared(source: str) -> Comparison:
        return Comparison("c", decision if source == "all" else "worse", Interval(1.3, 1.3, 1.3), 1)

    kernels = [kernel("all", "abcd", 9.0, kind=WHOLE), kernel("part", "ab", 3.0)]
    assert assembled(kernels, lambda names: False, monkeypatch, compared=compared)[0] == kept


def test_nothing_comes_of_nothing() -> None:
    assert together() == []


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4), st.integers(1, 20)),
        min_size=1,
        max_size=9,
    )
)
def test_no_other_set_saves_more(regions: Sequence[tuple[set[str], int]]) -> None:
    kernels = [kernel(f"k{n}", "".join(sorted(nodes)), float(ms)) for n, (nodes, ms) in enumerate(regions)]
    kernels.sort(key=lambda each: -each.saved_ms)
    found = disjoint(kernels, lambda chosen: True)
    taken = [node for each in found for node in each.region.nodes]
    assert len(taken) == len(set(taken))
    best = 0.0
    for chosen in range(1 << len(kernels)):
        some = [each for place, each in enumerate(kernels) if chosen >> place & 1]
        nodes = [node for each in some for node in each.region.nodes]
        if len(nodes) == len(set(nodes)):
            best = max(best, sum(each.saved_ms for each in some))
    assert sum(each.saved_ms for each in found) == best
