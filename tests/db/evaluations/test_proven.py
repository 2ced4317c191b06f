"""What jobs may be told of earlier ones, as both databases answer: what counts now, with its owner, and no more."""

import pytest

from db.evaluations.proven import list_judged, list_ranked, list_sources, list_task_sources
from tests.support.boards import Board

CHAMPION = {"candidate": "c" * 64, "decision": "better", "speedup": {"value": 1.2, "low": 1.1, "high": 1.3}, "sets": 3}


@pytest.fixture
def board(store):
    return Board(store)


def read(board, query, *args, **options):
    with board.store.read() as session:
        return query(session, *args, **options)


def test_ranked_kernels_come_with_their_jobs_user_and_only_for_the_platform(board):
    board.add("m", 2.0, user="ada")
    board.add("n", 3.0, task="local/mine", user="bob")
    board.add("m", 2.0, platform="triton")
    board.add("slow", 1.0)
    found = {each.evaluation_id: each for each in read(board, list_ranked, "cpu")}
    assert {name: (each.user, each.suite, each.task, each.speedup) for name, each in found.items()} == {
        "e1": ("ada", "starter", "starter/op", 2.0),
        "e2": ("bob", "local", "local/mine", 3.0),
    }
    assert len(read(board, list_ranked, "cpu", limit=1)) == 1


def test_judged_candidates_come_with_what_was_found_beside_the_champion(board):
    board.add("m", 2.0, result={"champion": CHAMPION, "roofline": {"bound": "memory"}})
    board.add("m", None, verdict="crashed", result={"champion": None, "roofline": None})
    board.add("m", None, verdict="sandbox_error")
    board.add("m", 2.0, device="another")
    found = {each.evaluation_id: each for each in read(board, list_judged, "cpu", "CPU A")}
    assert found.keys() == {"e1", "e2"}
    assert (found["e1"].champion, found["e1"].bound) == (CHAMPION, "memory")
    assert (found["e2"].champion, found["e2"].bound, found["e2"].verdict) == (None, None, "crashed")


def test_a_candidate_that_one_evaluation_found_wrong_counts_as_wrong_alone(board):
    board.add("m", 2.0, candidate="k")
    board.add("m", None, candidate="k", verdict="wrong_output")
    assert [each.evaluation_id for each in read(board, list_judged, "cpu", "CPU A")] == ["e2"]
    assert read(board, list_ranked, "cpu") == []


def test_sources_are_read_whole_or_by_their_head(board):
    job = board.add("m", 2.0, text="# first\n" + "x" * 5000)
    key = (job, f"{1:064}")
    assert len(read(board, list_sources, {key})[key]) == 5008
    assert read(board, list_sources, {key}, head=True)[key].startswith("# first\n")
    assert len(read(board, list_sources, {key}, head=True)[key]) == 400
    assert read(board, list_sources, {(99, "x")}) == {}
    (found,) = read(board, list_task_sources, {1, 99}).values()
    assert (found.suite, found.name, found.source, found.dtype) == ("starter", "op", "s1", "float32")
