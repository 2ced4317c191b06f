"""The leaderboard: only what passed is ranked, only against its like, and ties are said to be ties."""

import pytest

from db.jobs import add_job
from db.leaderboard import leaderboard
from db.ranking import SUBMITTED
from db.records import Measured, Owner
from db.results import add_candidate, add_evaluation
from db.tasks import add_task

DEFAULTS = {"sandbox": "docker", "platform": "cpu", "device": "CPU A", "verdict": "passed"}


@pytest.fixture
def board(store):
    return Board(store)


class Board:
    """Stores evaluations in few words."""

    def __init__(self, store):
        self.store = store
        self.count = 0

    def add(self, model, speedup=None, spread=0.01, *, task="starter/op", source="s1", tags=(), **values):
        self.count += 1
        suite, name = task.split("/")
        given = {**DEFAULTS, **values}
        low, high = (None, None) if speedup is None or spread is None else (speedup - spread, speedup + spread)
        with self.store.write() as session:
            task_id = add_task(
                session, suite=suite, name=name, source_hash=source, source=source, category="other", dtype="float32"
            )
            job_id = add_job(
                session,
                task_id=task_id,
                kind="optimize",
                platform=given["platform"],
                sandbox=given["sandbox"],
                owner=Owner("h", 1, "s"),
                model=model,
            )
            candidate_id = add_candidate(
                session, job_id, round_number=1, candidate_hash=f"{self.count:064}", source=str(self.count)
            )
            add_evaluation(
                session,
                f"e{self.count}",
                candidate_id=candidate_id,
                round_number=1,
                code=None,
                message="",
                tags=["custom_kernel", *tags],
                measured=Measured(speedup=speedup, speedup_low=low, speedup_high=high, speedup_compile=1.1),
                result={},
                **given,
            )
        return job_id

    def entries(self, **filters):
        with self.store.read() as session:
            return leaderboard(session, **filters)

    def ranks(self, **filters):
        return [(entry.model, entry.rank) for entry in self.entries(**filters)]


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
