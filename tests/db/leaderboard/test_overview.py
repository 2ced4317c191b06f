"""What an overview reads: entries of one target under conditions, and the candidates of one task."""

from datetime import UTC, datetime

import pytest

from db.leaderboard import overview as read
from db.leaderboard.overview import OverviewFilters, Target, list_entries, list_targets, list_task_candidates
from db.leaderboard.rules import Tier
from db.tables import CandidateRow
from tests.support.boards import Board

CPU = Target("cpu", "CPU A", "docker", 0, 0)


@pytest.fixture
def board(store):
    return Board(store)


def entries(board, target=CPU, **filters):
    with board.store.read() as session:
        return list_entries(session, target, OverviewFilters(**filters))


def candidates(board, task="starter/op", source="s1"):
    with board.store.read() as session:
        return list_task_candidates(session, *task.split("/"), source).found


def is_cut(board):
    with board.store.read() as session:
        return list_task_candidates(session, "starter", "op", "s1").cut


def test_targets_are_listed_by_what_is_ranked_on_them(board):
    board.add("m", 2.0, device="CPU B")
    board.add("m", 2.0, task="starter/other", device="CPU B")
    board.add("m", 2.0)
    board.add("m", verdict="wrong_output", sandbox="process")
    with board.store.read() as session:
        found = list_targets(session)
    assert [(each.device, each.sandbox, each.entries, each.ranked) for each in found] == [
        ("CPU B", "docker", 2, 2), ("CPU A", "docker", 1, 1), ("CPU A", "process", 1, 0)
    ]  # fmt: skip


def test_an_entry_tells_when_its_kernel_was_written_and_how_far_it_counts(board):
    job = board.add("ranked", 2.0, figures={"speedup_compile_low": 1.0})
    board.add("busy", 3.0, tags=["noisy"])
    board.add("tried", 3.0, tags=["trial"])
    board.add("failed", verdict="wrong_output")
    at = datetime(2026, 3, 1, tzinfo=UTC)
    with board.store.write() as session:
        session.query(CandidateRow).filter(CandidateRow.job_id == job).update({"created_at": at})
    found = {each.model: each for each in entries(board)}
    assert {model: each.tier for model, each in found.items()} == {
        "ranked": Tier.RANKED, "busy": Tier.UNRANKED, "tried": Tier.TRIED, "failed": Tier.NONE_PASSED
    }  # fmt: skip
    ranked = found["ranked"]
    assert (ranked.written_at, ranked.rank, ranked.speedup, ranked.speedup_compile_low) == (at, 1, 2.0, 1.0)
    assert (ranked.task, ranked.suite, ranked.job_id, ranked.pooled) == ("starter/op", "starter", job, 1)
    assert (found["failed"].written_at, found["failed"].job_id, found["failed"].speedup) == (None, None, None)


def test_entries_of_other_targets_are_left_out(board):
    board.add("m", 2.0)
    board.add("m", 3.0, device="CPU B")
    board.add("m", 4.0, sandbox="process")
    assert [each.speedup for each in entries(board)] == [2.0]


@pytest.mark.parametrize(
    ("filters", "tasks"),
    [
        ({}, ["a/gelu_tanh", "a/softmax", "b/100%_sure"]),
        ({"suite": "a"}, ["a/gelu_tanh", "a/softmax"]),
        ({"dtype": "float16"}, ["a/softmax"]),
        ({"model": "vendor/big"}, ["a/softmax"]),
        ({"category": "nothing"}, []),
        ({"text": "GELU"}, ["a/gelu_tanh"]),
        ({"text": "big"}, ["a/softmax"]),
        ({"text": "0%_s"}, ["b/100%_sure"]),
        ({"text": "u%x"}, []),
        ({"text": "gelu_tanh", "suite": "b"}, []),
    ],
)
def test_conditions_and_a_text_choose_entries(board, filters, tasks):
    board.add("vendor/small", 2.0, task="a/gelu_tanh")
    board.add("vendor/big", 2.0, task="a/softmax", source="s2", dtype="float16")
    board.add("vendor/small", 2.0, task="b/100%_sure", source="s3")
    assert [each.task for each in entries(board, **filters)] == tasks


def test_an_overview_is_bounded(board, monkeypatch):
    for number in range(4):
        board.add("m", 2.0, task=f"starter/op{number}")
    monkeypatch.setattr(read, "MOST_ENTRIES", 3)
    assert [each.task for each in entries(board)] == ["starter/op0", "starter/op1", "starter/op2"]


def test_a_tasks_candidates_are_all_there_pooled_and_in_order(board):
    board.add("a", 2.0, candidate="slow")
    board.add("b", 3.0, candidate="fast")
    board.add("b", 3.2, candidate="fast")
    board.add("b", 9.0, candidate="busy", tags=["noisy"])
    board.add("c", 4.0, candidate="sometimes")
    board.add("c", candidate="sometimes", verdict="wrong_output")
    board.add("c", 1.5, candidate="elsewhere", device="CPU B")
    board.add("d", 8.0, task="starter/other")
    board.add("d", candidate="unjudged", verdict="sandbox_error")
    found = candidates(board)
    assert [(each.device, each.hash.strip("x"), each.tier) for each in found] == [
        ("CPU A", "fast", Tier.RANKED),
        ("CPU A", "slow", Tier.RANKED),
        ("CPU A", "busy", Tier.UNRANKED),
        ("CPU A", "sometimes", Tier.NONE_PASSED),
        ("CPU B", "elsewhere", Tier.RANKED),
    ]
    fast, wrong = found[0], found[3]
    assert (fast.evaluations, fast.model, 3.0 < fast.measurements.speedup < 3.2) == (2, "b", True)
    assert (wrong.disqualified, wrong.measurements.speedup, wrong.verdict) == (True, None, "wrong_output")


def test_what_a_task_lists_of_a_candidate_is_what_stands_on_the_leaderboard(board):
    for speedup in (2.0, 2.2, 1.9):
        board.add("m", speedup, candidate="same")
    (entry,) = board.entries()
    (found,) = candidates(board)
    assert (found.measurements.speedup, found.evaluation_id) == (entry.speedup, entry.evaluation_id)
    assert (found.measurements.speedup_low, found.tags) == (entry.speedup_low, entry.tags)


def test_of_many_candidates_the_newest_are_listed_with_all_their_evaluations(board, monkeypatch):
    board.add("m", 5.0, candidate="best")
    board.add("m", 4.0, candidate="old")
    board.add("m", 2.0, candidate="new")
    board.add("m", verdict="wrong_output", candidate="newest")
    monkeypatch.setattr(read, "MOST_CANDIDATES", 2)
    assert [each.hash.strip("x") for each in candidates(board)] == ["best", "new", "newest"]
    assert is_cut(board)
    monkeypatch.setattr(read, "MOST_CANDIDATES", 4)
    assert [each.hash.strip("x") for each in candidates(board)] == ["best", "old", "new", "newest"]
    assert not is_cut(board)


def test_a_candidate_that_many_jobs_wrote_is_counted_once(board, monkeypatch):
    board.add("m", 1.5, candidate="old")
    for _ in range(5):
        board.add("m", 2.0, candidate="same")
    monkeypatch.setattr(read, "MOST_CANDIDATES", 2)
    assert [(each.hash.strip("x"), each.evaluations) for each in candidates(board)] == [("same", 5), ("old", 1)]
    assert not is_cut(board)


def test_of_many_evaluations_the_newest_of_each_candidate_count(board, monkeypatch):
    first = board.add("a", 4.0, candidate="best")
    for number in range(6):
        board.add("b", 2.0 + number / 100, candidate="often")
    board.add("c", candidate="wrong once", verdict="wrong_output")
    for _ in range(6):
        board.add("c", 8.0, candidate="wrong once")
    board.add("a", 4.0, candidate="best")
    monkeypatch.setattr(read, "MOST_EVALUATIONS", 5)
    found = {each.hash.strip("x"): each for each in candidates(board)}
    assert {name: each.evaluations for name, each in found.items()} == {"best": 2, "often": 6, "wrong once": 7}
    assert (found["best"].job_id, found["best"].model, found["wrong once"].disqualified) == (first, "a", True)
    assert found["often"].measurements.speedup == 2.05
    assert is_cut(board)


def test_sources_of_one_name_have_their_own_candidates(board):
    board.add("m", 5.0, source="s1")
    board.add("m", 2.0, source="s2")
    assert [each.measurements.speedup for each in candidates(board, source="s2")] == [2.0]
    assert candidates(board, source="s3") == []
