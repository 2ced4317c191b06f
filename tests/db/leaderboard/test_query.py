"""The leaderboard: only what passed is ranked, only against its like, and ties are said to be ties."""

import itertools

import pytest
from sqlalchemy import select

from db.evaluations.results import add_llm_call
from db.evaluations.retractions import restore, retract
from db.jobs.jobs import set_spent, update_options
from db.leaderboard.rules import SUBMITTED
from db.records import LeaderboardSort, LlmCall
from db.tables import StandingRow
from service.jobs.journal import is_better_record
from tests.support.boards import Board


@pytest.fixture
def board(store):
    return Board(store)


def test_an_empty_store_has_an_empty_leaderboard(board):
    assert board.entries() == []


def test_each_model_enters_once_with_its_best_passed_candidate(board):
    board.add("m", 1.5)
    best = board.add("m", 2.5)
    board.add("m", 2.0)
    board.add("m", 9.0, verdict="wrong_output")
    (entry,) = board.entries()
    assert (entry.speedup, entry.job_id, entry.rank, entry.evaluations, entry.passed) == (2.5, best, 1, 4, 3)
    assert (entry.speedup_low, entry.speedup_high, entry.speedup_compile) == (2.49, 2.51, 1.1)
    assert entry.tags == ("custom_kernel",)


def over_best(name, value):
    spread = {"speedup_best_low": value - 0.01, "speedup_best_high": value + 0.01}
    return {"speedup_compile": 1.5, "speedup_best": value, "best_baseline": name, **spread}


def test_the_fastest_baseline_is_told_and_sorted_by(board):
    board.add("a", 3.0, figures=over_best("onnxruntime", 1.2))
    board.add("b", 2.0, figures=over_best("compile", 1.5))
    board.add("c", 9.0)
    found = board.entries(sort=LeaderboardSort.SPEEDUP_BEST)
    assert [(entry.model, entry.best_baseline, entry.speedup_best) for entry in found] == [
        ("b", "compile", 1.5), ("a", "onnxruntime", 1.2), ("c", "compile", 1.1)
    ]  # fmt: skip
    assert board.problems() == []


def test_pooled_figures_are_over_the_baseline_that_is_hardest_to_beat(board):
    board.add("m", 2.0, candidate="p", figures=over_best("compile", 1.5))
    for value in (1.21, 1.19):
        board.add("m", 2.0, candidate="p", figures=over_best("onnxruntime", value))
    (entry,) = board.entries()
    assert (entry.pooled, entry.best_baseline) == (3, "onnxruntime")
    assert entry.speedup_best == pytest.approx(1.2, abs=0.005)
    assert board.problems() == []


def test_an_entry_says_what_its_job_was_told_of_earlier_ones(board):
    told = board.add("told", 2.0)
    board.add("alone", 1.5)
    with board.store.write() as session:
        update_options(session, told, memory="all")
    assert {entry.model: entry.memory for entry in board.entries()} == {"told": "all", "alone": ""}


def test_a_candidate_that_is_measured_again_has_one_figure(board):
    first = board.add("m", 2.0, candidate="p")
    for speedup in (2.2, 2.1, 2.1):
        board.add("m", speedup, candidate="p")
    board.add("m", 2.15)
    (entry,) = board.entries()
    assert (entry.speedup, entry.pooled, entry.evaluations, entry.passed) == (2.15, 1, 5, 5)
    board.add("m", 2.14, candidate="q", evaluation_id="again")
    with board.store.write() as session:
        retract(session, "e5", actor="me", reason="why", is_better=is_better_record)
    board.add("m", 2.6, candidate="p")
    (entry,) = board.entries()
    assert 2.0 < entry.speedup < 2.6
    assert (entry.pooled, entry.job_id, entry.evaluation_id) == (5, first, "e7")
    assert entry.speedup_low < entry.speedup < entry.speedup_high
    assert board.problems() == []


def test_asking_again_until_it_is_lucky_gains_less_than_the_luck(board):
    board.add("honest", 2.05, candidate="p")
    for speedup in (2.0, 1.99, 2.01, 2.1):
        board.add("fisher", speedup, candidate="q")
    assert [entry.model for entry in board.entries()] == ["honest", "fisher"]


def test_the_same_candidate_has_the_same_figure_whoever_wrote_it(board):
    jobs = {model: board.add(model, speedup, candidate="p") for model, speedup in (("a", 2.0), ("b", 2.2), (None, 2.1))}
    entries = board.entries()
    assert {entry.model: entry.job_id for entry in entries} == {model or SUBMITTED: jobs[model] for model in jobs}
    assert len({(entry.speedup, entry.speedup_low, entry.speedup_high, entry.pooled) for entry in entries}) == 1
    assert [(entry.rank, entry.pooled, entry.evaluations) for entry in entries] == [(1, 3, 1)] * 3
    board.add("a", 1.5, candidate="p", device="CPU B")
    board.add("a", 1.5, candidate="p", sandbox="process")
    board.add("a", 1.5, candidate="p", source="s2")
    assert {entry.pooled for entry in board.entries(device="CPU A") if entry.source_hash == "s1"} == {3, 1}


def test_a_candidate_that_was_found_wrong_once_has_no_rank_until_that_is_retracted(board):
    board.add("a", 3.0, candidate="p")
    board.add("a", 2.0, candidate="q")
    board.add("b", 2.5, candidate="p")
    board.add(None, None, candidate="p", verdict="wrong_output", evaluation_id="refusal")
    assert [(entry.model, entry.rank, entry.speedup, entry.passed) for entry in board.entries()] == [
        ("a", 1, 2.0, 1),
        ("b", None, None, 0),
        (SUBMITTED, None, None, 0),
    ]
    board.add("b", 2.6, candidate="p")  # asking again does not help
    assert board.entries()[1].rank is None
    with board.store.write() as session:
        assert retract(session, "refusal", actor="me", reason="why", is_better=is_better_record)
    assert [(entry.model, entry.rank, entry.pooled) for entry in board.entries()] == [("a", 1, 3), ("b", 1, 3)]
    with board.store.write() as session:
        assert restore(session, "refusal", actor="me", reason="why", is_better=is_better_record)
    assert board.ranks() == [("a", 1), ("b", None), (SUBMITTED, None)]
    assert board.problems() == []


def test_a_noisy_proof_stands_for_its_model_and_above_everything_that_was_only_tried(board):
    job = board.add("m", 3.0, candidate="p", tags=["trial"])
    board.add("m", 9.0, candidate="loser", tags=["trial"], job_id=job)
    board.add("m", 2.0, candidate="p", tags=["noisy"], job_id=job, evaluation_id="proof")
    board.add("cancelled", 9.0, tags=["trial"])
    board.add("failed", None, verdict="crashed")
    assert [(entry.model, entry.speedup, entry.rank, entry.pooled) for entry in board.entries()] == [
        ("m", 2.0, None, 1),
        ("cancelled", 9.0, None, 1),
        ("failed", None, None, 0),
    ]
    assert board.entries(model="m")[0].evaluation_id == "proof"
    by_speedup = board.entries(sort=LeaderboardSort.SPEEDUP)
    assert [entry.model for entry in by_speedup] == ["m", "cancelled", "failed"]
    with board.store.write() as session:
        retract(session, "proof", actor="me", reason="why", is_better=is_better_record)
    assert [(entry.model, entry.speedup) for entry in board.entries()][:2] == [("cancelled", 9.0), ("m", 9.0)]
    assert board.problems() == []


def test_models_are_ranked_by_speedup_over_eager(board):
    board.add("slow", 1.2)
    board.add("fast", 3.0)
    board.add("middle", 2.0)
    assert board.ranks() == [("fast", 1), ("middle", 2), ("slow", 3)]


def test_entries_whose_intervals_overlap_share_a_rank(board):
    board.add("a", 2.00, 0.05)
    board.add("b", 1.96, 0.05)
    board.add("c", 1.50, 0.05)
    assert board.ranks() == [("a", 1), ("b", 1), ("c", 3)]


def test_a_chain_of_overlaps_does_not_lift_the_last_to_the_first(board):
    board.add("a", 2.00, 0.05)
    board.add("b", 1.92, 0.05)
    board.add("c", 1.84, 0.05)
    assert board.ranks() == [("a", 1), ("b", 1), ("c", 3)]


def test_without_an_interval_only_the_value_counts(board):
    board.add("a", 2.0, None)
    board.add("b", 1.9, None)
    board.add("c", 1.9, None)
    assert board.ranks() == [("a", 1), ("b", 2), ("c", 2)]


def test_of_equal_candidates_the_earliest_counts(board):
    first = board.add("m", 2.0)
    board.add("m", 2.0)
    (entry,) = board.entries()
    assert entry.job_id == first


def test_a_model_that_passed_nothing_stands_last_without_rank(board):
    board.add("loser", None, verdict="crashed")
    board.add("liar", 50.0, verdict="integrity")
    board.add("winner", 1.1)
    entries = board.entries()
    assert [(entry.model, entry.rank, entry.speedup) for entry in entries] == [
        ("winner", 1, 1.1),
        ("liar", None, None),
        ("loser", None, None),
    ]
    assert entries[1].job_id is None
    assert (entries[1].evaluations, entries[1].passed) == (1, 0)


@pytest.mark.parametrize("tag", ["noisy", "beyond_roofline"])
def test_what_cannot_be_relied_on_is_shown_without_a_rank(board, tag):
    board.add("a", 9.0, tags=[tag])
    board.add("b", 2.0)
    board.add("c", 5.0, tags=[tag])
    board.add("c", 3.0)
    board.add("d", verdict="crashed")
    assert board.ranks() == [("c", 1), ("b", 2), ("a", None), ("d", None)]
    assert [entry.speedup for entry in board.entries()] == [3.0, 2.0, 9.0, None]


def test_a_pass_without_a_measured_speedup_is_no_pass_here(board):
    board.add("m", None, verdict="passed")
    (entry,) = board.entries()
    assert (entry.rank, entry.passed) == (None, 0)


@pytest.mark.parametrize("verdict", ["task_invalid", "sandbox_error"])
def test_what_is_not_the_models_fault_is_not_held_against_it(board, verdict):
    board.add("m", None, verdict=verdict)
    assert board.entries() == []


@pytest.mark.parametrize(
    "other",
    [{"device": "CPU B"}, {"sandbox": "process"}, {"platform": "cuda"}, {"source": "s2"}, {"task": "starter/b"}],
)
def test_unlike_results_are_never_ranked_against_each_other(board, other):
    board.add("a", 2.0)
    board.add("b", 9.0, **other)
    board.add("a", 1.0, **other)
    assert sorted(board.ranks()) == [("a", 1), ("a", 2), ("b", 1)]
    assert len({entry.board for entry in board.entries()}) == 2


def test_a_candidate_that_a_user_evaluated_himself_is_shown_as_submitted(board):
    board.add(None, 2.0)
    assert board.ranks() == [(SUBMITTED, 1)]


def test_filters(board):
    board.add("a", 2.0)
    board.add("b", 2.0, task="local/mine")
    board.add("c", 2.0, platform="cuda")
    assert {entry.model for entry in board.entries(suite="local")} == {"b"}
    assert {entry.model for entry in board.entries(platform="cuda")} == {"c"}
    assert {entry.model for entry in board.entries(task="local/mine")} == {"b"}
    assert board.entries(task="starter/none") == []


def test_more_filters(board):
    board.add("a", 2.0)
    board.add("b", 3.0, task="starter/half", dtype="float16")
    board.add("b", 3.0, device="CPU B")
    assert {entry.task for entry in board.entries(model="b")} == {"starter/half", "starter/op"}
    assert [entry.model for entry in board.entries(dtype="float16")] == ["b"]
    assert [entry.model for entry in board.entries(device="CPU B")] == ["b"]
    assert board.entries(model="a", dtype="float16") == []
    assert board.entries(model="a' OR ''='\x00") == []


# Pages and orders


def test_pages_are_cut_from_one_order_and_counted(board):
    for number in range(7):
        board.add(f"m{number}", 1.0 + number, task=f"starter/t{number % 3}")
    whole = board.entries()
    assert [entry for offset in range(0, 9, 3) for entry in board.entries(limit=3, offset=offset)] == whole
    assert board.entries(offset=5) == whole[5:]
    assert board.entries(limit=3, offset=99) == []
    assert (board.counted(), board.counted(task="starter/t0"), board.counted(model="none")) == (7, 3, 0)


def test_an_entry_says_what_its_job_cost(board):
    job_id = board.add("m", 2.0)
    board.add("loser", verdict="crashed")
    with board.store.write() as session:
        set_spent(session, job_id, cost_usd=1.25, tokens=10)
    assert [entry.cost_usd for entry in board.entries()] == [1.25, None]


def call(cost_usd):
    return LlmCall(1, "m", "coder", "write", [], "", 10, 10, cost_usd, 1.0)


def test_a_cost_goes_on_growing_with_the_job_whose_candidate_stands(board):
    job_id, other = board.add("m", 2.0), board.add("m", 1.0)
    for number, spent in ((job_id, 0.5), (other, 7.0), (job_id, 1.5)):
        with board.store.write() as session:
            set_spent(session, number, cost_usd=spent, tokens=10)
    assert [entry.cost_usd for entry in board.entries()] == [1.5]
    board.add("m", 3.0, job_id=other)
    assert [entry.cost_usd for entry in board.entries()] == [7.0]
    assert board.problems() == []


def test_a_free_model_costs_nothing_and_what_nobody_knows_is_not_nothing(board):
    free, unpriced = board.add("builtin/compiler", 4.0), board.add("vendor/unpriced", 3.0)
    board.add(None, 2.0)  # a user's own candidate: no job wrote it
    with board.store.write() as session:
        add_llm_call(session, free, call(0.0))
        add_llm_call(session, unpriced, call(0.25))
        add_llm_call(session, unpriced, call(None))
        set_spent(session, free, cost_usd=0.0, tokens=20)
        set_spent(session, unpriced, cost_usd=0.25, tokens=40)
    assert [(entry.model, entry.cost_usd) for entry in board.entries(sort=LeaderboardSort.COST)] == [
        ("builtin/compiler", 0.0),
        *sorted([("vendor/unpriced", None), (SUBMITTED, None)], key=lambda pair: keys(board)[pair[0]]),
    ]
    assert board.problems() == []


def keys(board):
    with board.store.read() as session:
        return dict(session.execute(select(StandingRow.model, StandingRow.key)).all())


def test_a_cost_that_was_unknown_when_the_candidate_came_is_unknown_with_the_next_one_too(board):
    job_id = board.add("m", 2.0)
    with board.store.write() as session:
        add_llm_call(session, job_id, call(None))
        set_spent(session, job_id, cost_usd=0.0, tokens=20)
    board.add("m", 3.0, job_id=job_id)
    assert [entry.cost_usd for entry in board.entries()] == [None]
    assert board.problems() == []


def test_a_model_whose_best_was_taken_back_has_the_cost_of_the_next_best(board):
    for speedup, spent in ((3.0, 0.5), (2.0, 7.0)):
        job_id = board.add("m", speedup)
        with board.store.write() as session:
            set_spent(session, job_id, cost_usd=spent, tokens=10)
    with board.store.write() as session:
        retract(session, "e1", actor="me", reason="why", is_better=is_better_record)
    assert [(entry.speedup, entry.cost_usd) for entry in board.entries()] == [(2.0, 7.0)]
    assert board.problems() == []


ORDERED = {
    "a": {"speedup": 2.0, "speedup_compile": 1.5, "candidate_ms": 3.0, "roofline_fraction": 0.9},
    "b": {"speedup": 3.0, "speedup_compile": 1.2, "candidate_ms": 1.0, "roofline_fraction": None},
    "c": {"speedup": 1.5, "speedup_compile": None, "candidate_ms": 2.0, "roofline_fraction": 0.3},
}
COSTS = {"a": 0.5, "b": None, "c": 0.0}


IN_ORDER = [
    (LeaderboardSort.SPEEDUP, None, "bacNL"),
    (LeaderboardSort.SPEEDUP, False, "cabNL"),
    (LeaderboardSort.SPEEDUP_COMPILE, None, "abcNL"),
    (LeaderboardSort.LATENCY, None, "bcaNL"),
    (LeaderboardSort.LATENCY, True, "acbNL"),
    (LeaderboardSort.ROOFLINE, None, "acbNL"),
    (LeaderboardSort.ROOFLINE, False, "cabNL"),
    (LeaderboardSort.COST, None, "cabNL"),
    (LeaderboardSort.COST, True, "acbNL"),
    (LeaderboardSort.EVALUATED_AT, None, "cbaNL"),
    (LeaderboardSort.EVALUATED_AT, False, "abcNL"),
    (LeaderboardSort.MODEL, None, "LNabc"),
    (LeaderboardSort.MODEL, True, "cbaNL"),
    (LeaderboardSort.BOARD, None, "bacNL"),
]
"""Each order, and the models of `ORDERED` in it."""


def test_entries_can_be_ordered_and_those_without_a_figure_or_a_rank_stand_last(board):
    board.add("N", 99.0, tags=["noisy"], figures={"candidate_ms": 0.1, "roofline_fraction": 1.0})
    for model, figures in ORDERED.items():
        job_id = board.add(model, figures["speedup"], figures=figures)
        with board.store.write() as session:
            add_llm_call(session, job_id, call(COSTS[model]))
            set_spent(session, job_id, cost_usd=COSTS[model] or 0.0, tokens=1)
    board.add("L", verdict="wrong_output")
    for sort, descending, models in IN_ORDER:
        whole = board.entries(sort=sort, descending=descending)
        assert "".join(entry.model for entry in whole) == models, (sort, descending)
        pages = [board.entries(sort=sort, descending=descending, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
        assert [entry for page in pages for entry in page] == whole, (sort, descending)


def test_pages_of_any_order_hold_each_entry_once_also_where_all_are_equal(board):
    for number in range(7):
        board.add(f"m{number}", 2.0, tags=["noisy"] if number > 4 else [])
    board.add("loser", verdict="crashed")
    for sort, descending in itertools.product(LeaderboardSort, (True, False)):
        order = {"sort": sort, "descending": descending}
        whole = board.entries(**order)
        for size in (1, 3, 8):
            pages = [board.entries(**order, limit=size, offset=offset) for offset in range(0, 9, size)]
            assert [entry for page in pages for entry in page] == whole, order
        assert len({entry.model for entry in whole}) == 8, order
        assert board.entries(**order, offset=3, task="starter/op") == whole[3:], order
        assert board.entries(**order, offset=3, dtype="float32", limit=4) == whole[3:7], order


def test_ranks_are_those_of_the_speedup_in_whatever_order_entries_are_shown(board):
    for model, figures in ORDERED.items():
        board.add(model, figures["speedup"], figures=figures)
    assert {(entry.model, entry.rank) for entry in board.entries(sort=LeaderboardSort.LATENCY)} == {
        ("b", 1),
        ("a", 2),
        ("c", 3),
    }


def test_tasks_can_be_ordered_backwards_and_boards_stay_in_order(board):
    board.add("slow", 1.0)
    board.add("fast", 2.0)
    board.add("m", 1.0, task="starter/zeta")
    found = [(entry.task, entry.model) for entry in board.entries(sort=LeaderboardSort.TASK, descending=True)]
    assert found == [("starter/zeta", "m"), ("starter/op", "fast"), ("starter/op", "slow")]


def test_names_sort_by_code_points_on_every_database(board):
    for model in ("b", "B", "a", "A", "ä", "_"):
        board.add(model, None, verdict="crashed")
    assert [entry.model for entry in board.entries(sort=LeaderboardSort.MODEL)] == ["A", "B", "_", "a", "b", "ä"]
    assert [entry.model for entry in board.entries()] == ["A", "B", "_", "a", "b", "ä"]


def test_names_of_any_length_stand_on_the_leaderboard(board):
    board.add("m" * 9000, 2.0, device="d" * 2000)
    board.add("m" * 9000 + "x", 1.0, device="d" * 2000)
    assert [entry.rank for entry in board.entries()] == [1, 2]


# Kept with the evaluations


def test_an_evaluation_that_comes_in_twice_changes_nothing(board):
    job_id = board.add("m", 2.0)
    before = board.entries()
    board.add("m", 5.0, job_id=job_id, evaluation_id="e1")
    assert board.entries() == before
    assert board.problems() == []


def test_an_evaluation_that_is_not_kept_leaves_no_trace(board):
    with pytest.raises(RuntimeError), board.store.write() as session:
        board.add_in(session, "m", 2.0)
        raise RuntimeError
    assert board.entries() == []
