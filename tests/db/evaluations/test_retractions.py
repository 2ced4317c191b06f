"""Results that were taken back stand nowhere, can be brought back, and someone answers for both."""

import pytest
from sqlalchemy import text

from db.accounts.audit import list_audit
from db.errors import NotInStore
from db.evaluations.results import get_evaluation
from db.jobs.jobs import get_job, set_best
from service.audit import list_audit as list_audit_lines
from service.audit import restore_evaluation, retract_evaluation
from service.errors import BadRequest
from tests.support.boards import Board


@pytest.fixture
def board(store):
    return Board(store)


def retract(board, evaluation_id, reason="a fan had failed"):
    return retract_evaluation(board.store, evaluation_id, actor="ada", reason=reason)


def restore(board, evaluation_id, reason="it had not"):
    return restore_evaluation(board.store, evaluation_id, actor="ada", reason=reason)


def best_of(board, job_id):
    with board.store.read() as session:
        return get_job(session, job_id).best_evaluation_id


def with_best(board, *speedups, **values):
    """A job with a candidate for each speedup, and the fastest as its best."""
    job_id = None
    for speedup in speedups:
        job_id = board.add("m", speedup, job_id=job_id, **values)
    with board.store.write() as session:
        set_best(session, job_id, f"e{1 + max(range(len(speedups)), key=lambda index: speedups[index])}")
    return job_id


def test_a_retracted_evaluation_leaves_the_leaderboard_and_the_next_best_stands(board):
    board.add("m", 3.0)
    board.add("m", 2.0)
    board.add("other", 2.5)
    assert retract(board, "e1").retracted_at is not None
    assert [(entry.model, entry.rank, entry.speedup) for entry in board.entries()] == [
        ("other", 1, 2.5),
        ("m", 2, 2.0),
    ]
    assert [entry.evaluations for entry in board.entries()] == [1, 1]
    assert board.problems() == []


def test_a_model_whose_only_evaluation_was_retracted_leaves_the_leaderboard(board):
    board.add("m", 3.0)
    retract(board, "e1")
    assert board.entries() == []
    restore(board, "e1")
    assert board.ranks() == [("m", 1)]


def test_a_job_whose_best_is_retracted_has_its_next_best_that_passed(board):
    job_id = with_best(board, 1.5, 3.0, 2.0)
    board.add("m", 9.0, job_id=job_id, verdict="wrong_output")
    retract(board, "e2")
    assert best_of(board, job_id) == "e3"
    retract(board, "e3")
    assert best_of(board, job_id) == "e1"
    retract(board, "e1")
    assert best_of(board, job_id) is None
    restore(board, "e3")
    assert best_of(board, job_id) == "e3"
    restore(board, "e2")
    assert best_of(board, job_id) == "e2"


def test_the_next_best_is_chosen_as_the_agents_choose(board):
    job_id = board.add("m", 2.0, 0.1)
    board.add("m", 2.05, 0.1, job_id=job_id)  # inside the noise: the earlier one stays
    board.add("m", 9.0, 0.1, job_id=job_id, tags=["noisy"])  # cannot be relied on
    board.add("m", 4.0, 0.1, job_id=job_id)
    with board.store.write() as session:
        set_best(session, job_id, "e4")
    retract(board, "e4")
    assert best_of(board, job_id) == "e1"


def test_a_job_whose_best_is_another_one_keeps_it(board):
    job_id = with_best(board, 1.5, 3.0)
    retract(board, "e1")
    assert best_of(board, job_id) == "e2"


def test_a_retracted_evaluation_cannot_become_a_best_again(board):
    job_id = with_best(board, 1.5, 3.0)
    retract(board, "e2")
    with board.store.write() as session:
        assert not set_best(session, job_id, "e2")
        assert set_best(session, job_id, "e1")
    assert best_of(board, job_id) == "e1"


def test_each_change_is_in_the_audit_log_with_who_and_why(board):
    job_id = with_best(board, 1.5, 3.0)
    retract(board, "e2", "  a fan had failed \n")
    restore(board, "e2")
    newest, oldest = list_audit_lines(board.store)
    assert (oldest.actor, oldest.action, oldest.subject) == ("ada", "retract", "evaluation/e2")
    assert oldest.reason == "a fan had failed"
    assert oldest.data == {"job_id": job_id, "best_before": "e2", "best_after": "e1"}
    assert (newest.action, newest.data["best_after"]) == ("restore", "e2")
    assert list_audit_lines(board.store, subject="evaluation/e2", before=newest.id) == [oldest]
    assert list_audit_lines(board.store, limit=1) == [newest]
    assert list_audit_lines(board.store, subject="evaluation/e1") == []


def test_nothing_is_logged_of_what_is_refused(board):
    board.add("m", 3.0)
    with pytest.raises(BadRequest, match="e1 is not retracted"):
        restore(board, "e1")
    for reason in ("", " \n"):
        with pytest.raises(BadRequest, match="reason: empty"):
            retract(board, "e1", reason)
    with pytest.raises(BadRequest, match="reason: 2001 characters"):
        retract(board, "e1", "x" * 2001)
    with pytest.raises(NotInStore, match="evaluation e7"):
        retract(board, "e7")
    retract(board, "e1")
    with pytest.raises(BadRequest, match="retracted already"):
        retract(board, "e1")
    with board.store.read() as session:
        assert len(list_audit(session)) == 1


def test_the_log_and_the_change_are_kept_together_or_not_at_all(board):
    job_id = with_best(board, 1.5, 3.0)
    with board.store.write() as session:
        session.execute(text("ALTER TABLE audit_log RENAME TO hidden"))
    with pytest.raises(Exception, match="audit_log"):
        retract(board, "e2")
    with board.store.read() as session:
        assert get_evaluation(session, "e2").retracted_at is None
    assert best_of(board, job_id) == "e2"
    assert [entry.speedup for entry in board.entries()] == [3.0]


def test_what_is_not_the_models_fault_can_be_retracted_too(board):
    board.add("m", None, verdict="sandbox_error")
    retract(board, "e1")
    assert board.entries() == []
    assert board.problems() == []
