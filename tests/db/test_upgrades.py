"""Stores of older versions: they are brought to the newest revision with all that is in them."""

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, MetaData, Table, insert, select, text

from db.engine import (
    alembic_config,
    integrity_problems,
    make_engine,
    migration_transaction,
    open_store,
    revision_of,
    schema_differences,
)
from db.errors import StoreError
from db.jobs import model_runs
from db.leaderboard.standings import standings_problems
from db.records import JobStatus
from tests.support.boards import Board

VERSIONS = Path(__file__).parents[2] / "db" / "migrations" / "versions"
NOW = datetime(2026, 1, 2, tzinfo=UTC)
MEANT = {"status": "done", "verdict": "passed", "tags": [], "kind": "optimize", "tool_calls": []}
PLAIN: dict[type, Any] = {bool: False, int: 1, float: 1.5, datetime: NOW, dict: {}, str: "x"}


def at_revision(engine: Engine, revision: str) -> None:
    with migration_transaction(engine) as connection:
        command.upgrade(alembic_config(connection), revision)


def value_of(column: Any) -> Any:
    kind = dict if str(column.type) == "JSON" else column.type.python_type
    return MEANT.get(column.name, PLAIN[kind])


def fill(engine: Engine) -> dict[str, dict[str, Any]]:
    """Put a row into every table, each of which refers to the others' rows; what then is in them."""
    metadata = MetaData()
    metadata.reflect(engine)
    rows: dict[str, dict[str, Any]] = {}
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            if table.name == "alembic_version":
                continue
            refers = {
                column.name: rows[key.column.table.name]["id"]
                for column in table.columns
                for key in column.foreign_keys
            }
            row = {column.name: value_of(column) for column in table.columns} | refers
            connection.execute(insert(table).values(row))
            rows[table.name] = row
    return {name: row_of(engine, name, list(row)) for name, row in rows.items()}


def row_of(engine: Engine, name: str, columns: list[str]) -> dict[str, Any]:
    table = Table(name, MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        return dict(connection.execute(select(*(table.c[column] for column in columns))).one()._mapping)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005", "0006"])
def test_an_upgrade_keeps_every_row_of_every_table(empty_url: str, revision: str) -> None:
    engine = make_engine(empty_url)
    at_revision(engine, revision)
    before = fill(engine)
    before.pop("standings", None)  # follows from the evaluations, by the rules of the newest version
    assert {"tasks", "jobs", "candidates", "evaluations", "rounds", "events", "llm_calls"} <= set(before)
    engine.dispose()
    store = open_store(empty_url)
    assert {name: row_of(store.engine, name, list(row)) for name, row in before.items()} == before
    assert schema_differences(store.engine) == integrity_problems(store.engine) == []
    with store.read() as session:
        assert standings_problems(session) == []
    store.close()


@pytest.mark.parametrize("revision", ["0003", "0006"])
def test_an_upgrade_computes_the_leaderboard_by_the_present_rules(empty_url: str, revision: str) -> None:
    """An older version kept the best of several evaluations, and ranked what was refused once."""
    store = open_store(empty_url)
    board = Board(store)
    for speedup in (2.0, 2.2, 2.1):
        board.add("a", speedup, candidate="p")
    board.add("b", 3.0, candidate="q")
    board.add("b", None, candidate="q", verdict="wrong_output")
    good = board.entries()
    with migration_transaction(store.engine) as connection:
        command.downgrade(alembic_config(connection), revision)
        if revision == "0006":
            connection.execute(text("UPDATE standings SET speedup = 2.2 WHERE model = 'a'"))
    store.close()
    board.store = open_store(empty_url)
    assert board.entries() == good
    assert [(entry.model, entry.rank, entry.pooled, entry.passed) for entry in good] == [
        ("a", 1, 3, 3),
        ("b", None, 0, 0),
    ]
    assert good[0].speedup == pytest.approx(2.1, rel=0.01)
    assert board.problems() == []
    board.store.close()


def test_runs_over_models_become_jobs_and_go_back(empty_url: str) -> None:
    """An earlier version kept who ran them, and how they ended, beside the jobs."""
    engine = make_engine(empty_url)
    at_revision(engine, "0010")
    metadata = MetaData()
    metadata.reflect(engine)
    table = metadata.tables
    task = {"id": 1, "suite": "s", "name": "net", "source": "x", "source_hash": "h", "category": "c", "dtype": "f"}
    run = {"task_id": 1, "user": "ann", "platform": "cpu", "model": "m", "plan": {"eager_ms": 2.0}, "created_at": NOW}
    run |= {"options": {"rounds": 2, "strategy": "tree"}, "trials": [{"name": "r01"}], "batch_id": None}
    ended = {
        "status": "done",
        "stage": "done",
        "error": None,
        "kept": ["r01"],
        "evaluation_id": "e",
        "finished_at": NOW,
    }
    begun = {"status": "running", "stage": "prove", "error": None, "kept": None, "evaluation_id": None}
    region = {"name": "r01", "position": 0, "kind": "k", "occurrences": 2, "eager_ms": 1.0, "share": 0.5, "task_id": 1}
    with engine.begin() as connection:
        connection.execute(insert(table["tasks"]).values(task | {"created_at": NOW}))
        connection.execute(insert(table["model_runs"]).values(run | ended | {"id": 5}))
        connection.execute(insert(table["model_runs"]).values(run | begun | {"id": 6, "finished_at": None}))
        for run_id in (5, 6):
            connection.execute(insert(table["model_regions"]).values(region | {"run_id": run_id, "job_id": None}))
    engine.dispose()
    store = open_store(empty_url)
    assert schema_differences(store.engine) == integrity_problems(store.engine) == []
    with store.read() as session:
        newest, oldest = (model_runs.get_run(session, each.id) for each in model_runs.list_runs(session))
    assert (oldest.status, oldest.stage, oldest.kept, oldest.evaluation_id) == (JobStatus.DONE, "done", ("r01",), "e")
    assert (newest.status, newest.kept, newest.error) == (JobStatus.INTERRUPTED, None, None)
    assert (newest.user, newest.model, newest.options, newest.plan) == ("ann", "m", {"rounds": 2}, {"eager_ms": 2.0})
    assert [each.name for each in newest.regions] == [each.name for each in oldest.regions] == ["r01"]
    with migration_transaction(store.engine) as connection:
        command.downgrade(alembic_config(connection), "0010")
        left = connection.execute(text("SELECT status, stage, evaluation_id FROM model_runs ORDER BY id")).all()
    assert [tuple(row) for row in left] == [("done", "done", "e"), ("interrupted", "prove", None)]
    store.close()


def test_foreign_keys_hold_again_after_an_upgrade(tmp_path: Any) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    with store.read() as session:
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
    store.close()


def test_a_store_with_rows_that_refer_to_nothing_is_left_as_it_is(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    engine = make_engine(url)
    at_revision(engine, "0002")
    fill(engine)
    connection: Any = engine.raw_connection().driver_connection
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute("DELETE FROM candidates")
    connection.close()
    engine.dispose()
    with pytest.raises(
        StoreError, match=r"1 rows refer .* of table evaluations \(to candidates\); nothing was changed"
    ):
        open_store(url)
    assert revision_of(engine) == "0002"
    engine.dispose()


@pytest.mark.parametrize("path", sorted(VERSIONS.glob("v*.py")), ids=lambda path: path.stem)
def test_a_migration_runs_no_code_that_may_change_after_it(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {"tasks", "sandbox", "evaluator", "agents", "db", "service", "web"}
    assert {name.split(".")[0] for name in imported} & ours == set()
