"""What is asked often is answered from an index, on both databases: nothing reads a whole table or sorts one."""

import contextlib
import re
from types import SimpleNamespace

import pytest
from sqlalchemy import event

from db.accounts.audit import list_audit
from db.errors import NotInStore
from db.evaluations.results import (
    count_llm_calls,
    find_evaluation,
    get_evaluation,
    get_llm_calls,
    list_evaluations,
    list_events,
    list_llm_call_heads,
    list_llm_calls,
)
from db.evaluations.tasks import list_current, list_current_heads, list_source_hashes, list_task_counts, list_tasks
from db.jobs.job_queue import count_open, list_jobs_of_worker, list_queued
from db.jobs.jobs import list_jobs
from db.jobs.model_runs import list_runs
from db.leaderboard.query import leaderboard
from db.leaderboard.standings import candidate_figure
from db.records import JobStatus, LeaderboardFilters, LeaderboardSort


def evaluation_if_any(session):
    with contextlib.suppress(NotInStore):
        get_evaluation(session, "e1")


EVALUATED = SimpleNamespace(job_id=1, platform="cpu", device="CPU A", sandbox="docker", candidate_hash="h")
ASKED = {
    "a user's newest jobs": lambda session: list_jobs(session, user="ada", limit=50),
    "a user's jobs before one": lambda session: list_jobs(session, user="ada", before=70, limit=50),
    "jobs that run": lambda session: list_jobs(session, status=JobStatus.RUNNING, limit=50),
    "a batch's jobs": lambda session: list_jobs(session, batch_id=3, limit=50),
    "all newest jobs": lambda session: list_jobs(session, limit=50),
    "newest runs over models": lambda session: list_runs(session, limit=50),
    "runs over models before one": lambda session: list_runs(session, before=70, limit=50),
    "jobs that wait": lambda session: list_queued(session),
    "a lost worker's jobs": lambda session: list_jobs_of_worker(session, "w"),
    "a user's open jobs": lambda session: count_open(session, "ada"),
    "a job's evaluations": lambda session: list_evaluations(session, 1),
    "an evaluation": lambda session: evaluation_if_any(session),
    "a candidate's evaluation": lambda session: find_evaluation(session, 1, "h"),
    "a candidate's pooled figure": lambda session: candidate_figure(session, EVALUATED),
    "a job's newest events": lambda session: list_events(session, 1, after=10),
    "a job's calls": lambda session: list_llm_calls(session, 1),
    "a job's calls without their texts": lambda session: list_llm_call_heads(session, 1),
    "the number of a job's calls": lambda session: count_llm_calls(session, 1),
    "calls": lambda session: get_llm_calls(session, [1, 2]),
    "what was done to something": lambda session: list_audit(session, subject="evaluation/e1", limit=50),
    "the leaderboard board by board": lambda session: leaderboard(session, limit=50),
    "a model's entries": lambda session: leaderboard(session, LeaderboardFilters(model="m"), limit=50),
    "a task's boards": lambda session: leaderboard(session, LeaderboardFilters(task="starter/op"), limit=50),
    "a model's cheapest": lambda session: leaderboard(
        session, LeaderboardFilters(model="m"), sort=LeaderboardSort.COST, limit=50
    ),
    "a task's fastest": lambda session: leaderboard(
        session, LeaderboardFilters(task="s/op"), sort=LeaderboardSort.SPEEDUP, limit=50
    ),
}
BY_FIGURE = [
    sort for sort in LeaderboardSort if sort not in (LeaderboardSort.BOARD, LeaderboardSort.TASK, LeaderboardSort.MODEL)
]
MAY_SORT_FEW = {
    *(
        "a job's evaluations",
        "a candidate's evaluation",
        "a candidate's pooled figure",
        "jobs that wait",
        "a lost worker's jobs",
    ),
    *("the leaderboard board by board", "a task's boards", "a model's entries"),
    *("a model's cheapest", "a task's fastest"),
}
"""What is sorted is of one job, or what the queue holds at the time, or a page."""
IN_ORDER_OF_ID = {"all newest jobs", "newest runs over models"}
"""SQLite calls it a scan; it ends with the page."""


def statements(store, ask):
    """What the database is asked, with the parameters."""
    asked = []
    with store.read() as session:
        connection = session.connection()

        def note(_connection, _cursor, statement, parameters, _context, _many):
            if statement.lstrip().startswith("SELECT"):
                asked.append((statement, parameters))

        event.listen(connection, "before_cursor_execute", note)
        ask(session)
        event.remove(connection, "before_cursor_execute", note)
    return asked


def plans(store, ask):
    """How the database means to answer each statement."""
    asked = statements(store, ask)
    with store.read() as session:
        connection = session.connection()
        sqlite = store.engine.dialect.name == "sqlite"
        if not sqlite:  # on tables this small it would rather read them whole
            for costly in ("enable_seqscan", "enable_sort", "enable_incremental_sort", "enable_bitmapscan"):
                connection.exec_driver_sql(f"SET LOCAL {costly} = off")
        prefix = "EXPLAIN QUERY PLAN " if sqlite else "EXPLAIN "
        answers = [connection.exec_driver_sql(prefix + statement, parameters) for statement, parameters in asked]
        return [" | ".join(str(row[-1]) for row in answer) for answer in answers]


def reads_a_whole_table(plan):
    parts = plan.split(" | ")
    sqlite = any(part.startswith("SCAN") and "USING" not in part and part != "SCAN anon_1" for part in parts)
    return sqlite or "Seq Scan" in plan


@pytest.mark.parametrize("what", ASKED)
def test_what_is_asked_often_is_answered_from_an_index(store, what):
    found = plans(store, ASKED[what])
    assert found
    for plan in found:
        assert what in IN_ORDER_OF_ID or not reads_a_whole_table(plan), plan
        if what not in MAY_SORT_FEW:
            assert "TEMP B-TREE FOR ORDER BY" not in plan, plan
            assert "Sort" not in plan, plan


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", BY_FIGURE)
def test_a_page_of_the_leaderboard_is_read_from_the_index_of_its_figure(store, sort, descending):
    found = plans(store, lambda session: leaderboard(session, sort=sort, descending=descending, limit=50, offset=5))
    pages = [plan for plan in found if "ix_standings_by_" in plan]
    assert pages
    for plan in found:
        assert not reads_a_whole_table(plan), plan
        # What is sorted are the lines of one page, once more after they were looked up by their keys.
        assert plan.count("TEMP B-TREE FOR ORDER BY") + plan.count("Sort  (cost") <= 1, plan


def test_what_has_no_index_would_be_noticed(store):
    (plan,) = plans(store, lambda session: list(session.execute(unindexed())))
    assert reads_a_whole_table(plan)
    assert "TEMP B-TREE FOR ORDER BY" in plan or "Sort" in plan


def unindexed():
    from sqlalchemy import select

    from db.tables import LlmCallRow

    return select(LlmCallRow.id).where(LlmCallRow.latency_s > 3).order_by(LlmCallRow.latency_s)


LISTS = {
    "jobs": lambda session: list_jobs(session, limit=50),
    "jobs that run": lambda session: list_jobs(session, status=JobStatus.RUNNING),
    "jobs on a task": lambda session: list_jobs(session, task="starter/op", source_hash="s", limit=50),
    "tasks that jobs were for": lambda session: list_tasks(session, limit=50),
    "present tasks": lambda session: list_current_heads(session, excluding=("starter",)),
    "tasks with their jobs": lambda session: list_task_counts(session, suite=None, limit=101, offset=0),
    "the sources of a name": lambda session: list_source_hashes(session, "starter", "op"),
}
SOURCE = re.compile(r"tasks\w*\.source\b")


@pytest.mark.parametrize("what", LISTS)
def test_lists_leave_sources_in_the_database(store, what):
    asked = statements(store, LISTS[what])
    assert asked
    assert [statement for statement, _ in asked if SOURCE.search(statement)] == []


def test_a_list_that_read_sources_would_be_noticed(store):
    asked = statements(store, lambda session: list_current(session))
    assert [statement for statement, _ in asked if SOURCE.search(statement)] != []
