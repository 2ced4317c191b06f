"""The leaderboard's lines: kept step by step, they say what all evaluations say; what does not is found and mended."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, text, update

from db.engine import alembic_config, migration_transaction, open_store, schema_differences
from db.evaluations.retractions import restore, retract
from db.leaderboard.pooling import Speedup, pool_speedups
from db.leaderboard.rules import Position, Score, Tier, rank_board
from db.leaderboard.standings import repair_standings
from db.tables import CandidateRow, EvaluationRow, JobRow, StandingRow
from service.jobs.journal import is_better_record
from tasks.outcomes import is_ranked
from tests.support.boards import Board
from tests.support.new_stores import open_new_store

ROOT = Path(__file__).parents[3]

speedups = st.one_of(st.none(), st.sampled_from([0.5, 1.0, 1.0, 1.02, 2.0, 2.01, 9.0]), st.floats(0.01, 100.0))
evaluations = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["a", "b", "c", None]),
        "speedup": speedups,
        "spread": st.sampled_from([None, 0.0, 0.02, 1.0]),
        "task": st.sampled_from(["starter/op", "local/op"]),
        "device": st.sampled_from(["CPU A", "CPU B"]),
        "verdict": st.sampled_from([*["passed"] * 6, "crashed", "wrong_output", "integrity", "sandbox_error"]),
        "tags": st.sampled_from([(), (), ("noisy",), ("cold", "torch_only"), ("trial",), ("trial", "noisy")]),
        "candidate": st.sampled_from([None, "p", "q"]),
    }
)
steps = st.lists(
    st.one_of(
        evaluations,
        st.tuples(st.sampled_from(["retract", "restore"]), st.integers(0, 30)),
    ),
    max_size=25,
)

database_numbers = itertools.count()


def by_the_rules(store):
    """What `standings` must say, worked out from every evaluation: by board and model, what stands for it and where."""
    with store.read() as session:
        rows = session.execute(
            select(JobRow.task_id, JobRow.model, CandidateRow.job_id, CandidateRow.hash, EvaluationRow)
            .join(CandidateRow, CandidateRow.job_id == JobRow.id)
            .join(EvaluationRow, EvaluationRow.candidate_id == CandidateRow.id)
            .order_by(EvaluationRow.created_at, EvaluationRow.id)
        ).all()
        boards = {}
        for task_id, model, job_id, digest, row in rows:
            if row.verdict != "sandbox_error" and row.retracted_at is None:
                boards.setdefault((task_id, row.device), []).append((model or "submitted", job_id, digest, row))
        return {key: ranked(board) for key, board in boards.items()}


def ranked(board):
    figures = {digest: figure([row for *_, each, row in board if each == digest]) for _, _, digest, _ in board}
    scores, stands = [], {}
    for model in dict.fromkeys(model for model, *_ in board):
        own = [(job_id, digest, row) for each, job_id, digest, row in board if each == model]
        passed = sum(
            row.verdict == "passed" and row.speedup is not None and figures[digest] is not None
            for _, digest, row in own
        )
        # `own` is in the order of time, and so are the candidates that `min` chooses the first of
        with_figures = [(figures[digest], job_id, digest) for job_id, digest, _ in own if figures[digest] is not None]
        if with_figures:
            best, job_id, digest = min(with_figures, key=lambda each: (each[0][0], -each[0][1].value))
            worth, speedup, used = best
            stands[model] = (digest, job_id, used[-1].id, len(used), speedup.value, len(own), passed)
            scores.append(Score(model, worth, speedup.value, speedup.low, speedup.high))
        else:
            stands[model] = (None, None, None, 0, None, len(own), passed)
            scores.append(Score(model, Tier.NONE_PASSED, None, None, None))
    return {
        score.model: (*stands[score.model], position)
        for score, position in zip(scores, rank_board(scores), strict=True)
    }


def figure(rows):
    """The tier of a candidate, its speedup and the evaluations that were pooled; None if it has none."""
    passed = [row for row in rows if row.verdict == "passed" and row.speedup is not None]
    if not passed or any(row.verdict in ("wrong_output", "integrity") for row in rows):
        return None
    reliable = [row for row in passed if is_ranked(row.tags)]
    unranked = reliable or [row for row in passed if "trial" not in row.tags] or passed
    chosen = [row for row in unranked if "cold" not in row.tags] or unranked
    with_interval = [row for row in chosen if row.speedup_low is not None and row.speedup_low > 0]
    used = with_interval or chosen
    speedup = pool_speedups([Speedup(row.speedup, row.speedup_low, row.speedup_high) for row in used])
    tier = Tier.RANKED if reliable else Tier.TRIED if "trial" in chosen[0].tags else Tier.UNRANKED
    return tier, speedup, used


def as_kept(store):
    with store.read() as session:
        boards = {}
        for row in session.scalars(select(StandingRow)):
            of_best = (row.candidate_hash, row.job_id, row.evaluation_id, row.pooled, row.speedup)
            stands = (*of_best, row.evaluations, row.passed, Position(row.place, row.rank))
            boards.setdefault((row.task_id, row.device), {})[row.model] = stands
        return boards


def take(board, plan):
    """Do what the plan says, evaluations stored or taken back, one transaction each."""
    for step in plan:
        if isinstance(step, dict):
            board.add(**step)
        elif board.count:
            action, number = step
            change = retract if action == "retract" else restore
            with board.store.write() as session:
                change(session, f"e{number % board.count + 1}", actor="me", reason="why", is_better=is_better_record)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=steps)
def test_lines_kept_step_by_step_are_those_that_all_evaluations_give_by_the_rules(tmp_path, plan):
    store = open_new_store(tmp_path / f"{next(database_numbers)}.db")
    try:
        board = Board(store)
        take(board, plan)
        assert board.problems() == []
        assert as_kept(store) == by_the_rules(store)
    finally:
        store.close()


@pytest.mark.postgres
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=steps)
def test_they_do_on_postgresql(postgres, postgres_template, plan):
    with postgres.database(postgres_template) as url:
        store = open_store(url)
        try:
            board = Board(store)
            take(board, plan)
            assert board.problems() == []
            assert as_kept(store) == by_the_rules(store)
        finally:
            store.close()


scores = st.builds(
    lambda model, worth, speedup, spread: Score(
        model,
        worth,
        None if worth == 2 else speedup,
        *((speedup - spread, speedup + spread) if spread else (None, None)),
    ),
    st.text("abc", max_size=3),
    st.integers(0, 2),
    st.floats(0.01, 100.0),
    st.sampled_from([0.0, 0.01, 1.0]),
)


@given(st.lists(scores, max_size=12, unique_by=lambda score: score.model), st.randoms())
def test_positions_do_not_depend_on_the_order_in_which_entries_are_read(board, random):
    found = dict(zip([score.model for score in board], rank_board(board), strict=True))
    assert sorted(each.position for each in found.values()) == list(range(len(board)))
    shuffled = random.sample(board, len(board))
    assert dict(zip([score.model for score in shuffled], rank_board(shuffled), strict=True)) == found
    ranks = [found[score.model].rank for score in sorted(board, key=lambda score: found[score.model].position)]
    given_out = [rank for rank in ranks if rank is not None]
    assert given_out == sorted(given_out)
    assert None not in ranks[: len(given_out)]
    assert all(rank <= position + 1 for position, rank in enumerate(given_out))


def test_the_fastest_reliable_one_is_first():
    board = [Score("noisy", 1, 9.0, None, None), Score("none", 2, None, None, None), Score("good", 0, 1.1, 1.0, 1.2)]
    assert rank_board(board) == [Position(1, None), Position(2, None), Position(0, 1)]


# Found and mended


@pytest.fixture
def board(store):
    filled = Board(store)
    filled.add("a", 2.0)
    filled.add("b", 1.0)
    filled.add("c", 3.0, tags=["noisy"])
    return filled


def mend(board):
    with board.store.write() as session:
        return repair_standings(session)


def test_what_differs_from_the_evaluations_is_named_and_mended(board):
    good = board.entries()
    with board.store.write() as session:
        session.execute(update(StandingRow).where(StandingRow.model == "a").values(speedup=50.0, rank=7))
        session.execute(text("DELETE FROM standings WHERE model = 'b'"))
        row = {column.key: None for column in StandingRow.__table__.columns}
        kept = session.execute(text("SELECT board, task_id FROM standings")).first()
        named = dict.fromkeys(
            ("suite", "task", "source_hash", "category", "dtype", "platform", "device", "sandbox"), "x"
        )
        counts = dict.fromkeys(("evaluations", "passed", "worth", "place", "pooled"), 0)
        row |= {
            "key": "k",
            "board": kept.board,
            "task_id": kept.task_id,
            "model": "ghost",
            "tags": [],
            **named,
            **counts,
        }
        session.execute(insert(StandingRow).values(row))
    problems = "\n".join(board.problems())
    assert "a for starter/op on cpu, CPU A, docker differs from the evaluations in rank, speedup" in problems
    assert "b for starter/op on cpu, CPU A, docker is missing" in problems
    assert "ghost for x on x, x, x has no evaluations" in problems
    assert problems.count("kernelwright db upgrade") == 3
    assert mend(board) == 3
    assert board.problems() == []
    assert board.entries() == good
    assert mend(board) == 0


def test_an_evaluation_that_is_in_the_store_alone_is_found(board):
    with board.store.write() as session:
        session.execute(text("UPDATE evaluations SET speedup = 4.5, speedup_low = 4.4 WHERE id = 'e2'"))
    where, remedy = (
        "for starter/op on cpu, CPU A, docker differs from the evaluations in",
        "run `kernelwright db upgrade`",
    )
    assert sorted(board.problems()) == [
        f"leaderboard: a {where} place, rank: {remedy}",
        f"leaderboard: b {where} place, rank, speedup, speedup_low: {remedy}",
    ]


# Migration


def at_revision(store, revision):
    with migration_transaction(store.engine) as connection:
        step = command.downgrade if revision != "head" else command.upgrade
        step(alembic_config(connection), revision)


def test_a_store_from_before_the_table_has_its_leaderboard_after_the_upgrade(board):
    board.add(None, 1.5)
    board.add("b", 9.0, verdict="integrity", task="local/other")
    for model, speedup, spread, tags in (
        ("a", 2.0, 0.01, ()),  # as fast as its first one, which stays
        ("b", 1.2, 0.3, ()),  # its better one, which overlaps with that of the next model
        ("d", 1.5, None, ("custom_kernel",)),
        ("e", 9.0, 0.1, ("uneven",)),
        ("e", 0.5, 0.1, ()),  # what has a rank stands for its model
        ("f", None, None, ()),
    ):
        board.add(model, speedup, spread, tags=tags)
    board.add("g", 3.0, verdict="sandbox_error")
    board.add("a", 3.0, device="CPU B")
    good = board.entries()
    assert len(good) == 9
    at_revision(board.store, "0003")
    at_revision(board.store, "head")
    assert board.entries() == good
    assert board.problems() == []
    assert schema_differences(board.store.engine) == []


def test_a_retracted_evaluation_stays_off_the_leaderboard_through_the_upgrade(board):
    with board.store.write() as session:
        retract(session, "e1", actor="me", reason="why", is_better=is_better_record)
    at_revision(board.store, "0003")
    at_revision(board.store, "head")
    assert [entry.model for entry in board.entries()] == ["b", "c"]


def test_a_trial_that_stood_above_a_proof_makes_way_for_it_when_the_store_is_opened(board):
    board.add("d", 3.0, candidate="p", tags=["trial"])
    board.add("d", 2.0, candidate="p", tags=["noisy"])
    board.add("e", None, verdict="crashed")
    good = board.entries()
    at_revision(board.store, "0008")
    with board.store.write() as session:
        as_it_was = {"speedup": 2.45, "pooled": 2, "evaluation_id": "e4"}
        session.execute(update(StandingRow).where(StandingRow.model == "d").values(**as_it_was))
        assert session.scalar(select(StandingRow.worth).where(StandingRow.model == "e")) == 2
    url = board.store.engine.url.render_as_string(hide_password=False)
    open_store(url).close()
    assert board.entries() == good
    assert board.problems() == []


# Crowds


def test_processes_that_fill_one_board_at_once_leave_it_right(store):
    code = """
import sys
from db.engine import open_store
from tests.support.boards import Board
board = Board(open_store(sys.argv[1]))
board.count = 1000 * int(sys.argv[2])
for number in range(25):
    board.add(f"m{number % 5}", 1.0 + (number * 7 + int(sys.argv[2])) % 13, 0.3)
"""
    url = store.engine.url.render_as_string(hide_password=False)
    children = [
        subprocess.Popen([sys.executable, "-c", code, url, str(who)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for who in range(1, 4)
    ]
    for child in children:
        _, err = child.communicate(timeout=100)
        assert child.returncode == 0, err
    board = Board(store)
    assert board.problems() == []
    assert sum(entry.evaluations for entry in board.entries()) == 75


def test_mending_waits_for_evaluations_that_are_being_kept(store):
    code = """
import sys
from db.engine import open_store
from db.leaderboard.standings import repair_standings
store = open_store(sys.argv[1])
for _ in range(20):
    with store.write() as session:
        assert repair_standings(session) == 0
"""
    url = store.engine.url.render_as_string(hide_password=False)
    child = subprocess.Popen([sys.executable, "-c", code, url], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    board = Board(store)
    while child.poll() is None:
        board.add(f"m{board.count % 3}", 1.0 + board.count % 7, 0.3)
    _, err = child.communicate()
    assert child.returncode == 0, err
    assert board.problems() == []


def test_costs_that_grow_while_evaluations_come_in_are_those_of_the_jobs(store):
    code = """
import sys
from db.engine import open_store
from db.jobs.jobs import set_spent
store, job = open_store(sys.argv[1]), int(sys.argv[2])
for number in range(60):
    with store.write() as session:
        set_spent(session, job, cost_usd=float(number), tokens=1)
"""
    board = Board(store)
    job = board.add("a", 2.0)
    url = store.engine.url.render_as_string(hide_password=False)
    child = subprocess.Popen([sys.executable, "-c", code, url, str(job)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while child.poll() is None:
        board.add("a", 1.0, job_id=job)
        board.add("b", 1.0 + board.count % 3, 0.3)
    _, err = child.communicate()
    assert child.returncode == 0, err
    assert [entry.cost_usd for entry in board.entries() if entry.model == "a"] == [59.0]
    assert board.problems() == []
