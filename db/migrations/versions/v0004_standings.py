"""The leaderboard's lines as a table, filled from the evaluations that are there; indexes for lists by user.

The rules by which it is filled are those of this revision. Where the program's rules have changed since, `kernelwright
db upgrade` computes the lines anew by them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_AT_ONCE = 1000

_FIGURES = (
    "speedup", "speedup_low", "speedup_high", "speedup_compile", "speedup_compile_low", "speedup_compile_high",
    "candidate_ms", "eager_ms", "compile_ms", "roofline_fraction",
)  # fmt: skip
_RANKED, _UNRANKED, _NOTHING = range(3)
_UNRANKED_TAGS = {"noisy", "beyond_roofline", "too_short", "cold", "uneven"}
_NOT_JUDGED = ("task_invalid", "sandbox_error")
_SUBMITTED = "submitted"

_tasks = sa.table("tasks", *map(sa.column, ("id", "suite", "name", "source_hash", "category", "dtype")))
_jobs = sa.table("jobs", *map(sa.column, ("id", "task_id", "model")))
_candidates = sa.table("candidates", *map(sa.column, ("id", "job_id", "hash")))
_evaluations = sa.table(
    "evaluations",
    *map(sa.column, ("id", "candidate_id", "platform", "device", "sandbox", "verdict", *_FIGURES)),
    sa.column("tags", sa.JSON()),
    *(sa.column(name, _MOMENT) for name in ("created_at", "retracted_at")),
)


def upgrade() -> None:
    """To this revision."""
    standings = op.create_table(
        "standings",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("board", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        *(sa.Column(name, _PLAIN, nullable=False) for name in ("suite", "task", "source_hash")),
        sa.Column("category", sa.String(length=64), nullable=False),
        sa.Column("dtype", sa.String(length=32), nullable=False),
        *(sa.Column(name, _PLAIN, nullable=False) for name in ("platform", "device", "sandbox", "model")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("evaluations", "passed", "worth", "place")),
        sa.Column("rank", sa.Integer(), nullable=True),
        *(sa.Column(name, sa.Double(), nullable=True) for name in _FIGURES),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("candidate_hash", sa.String(length=64), nullable=True),
        sa.Column("evaluation_id", sa.String(length=64), nullable=True),
        sa.Column("evaluated_at", _MOMENT, nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_standings_task_id_tasks")),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_standings")),
    )
    _fill(standings)
    op.create_index(op.f("ix_standings_board"), "standings", ["board"], unique=False)
    order = ["task", "source_hash", "platform", "device", "sandbox", "place", "key"]
    op.create_index("ix_standings_order", "standings", order, unique=False)
    op.create_index(op.f("ix_standings_model"), "standings", ["model"], unique=False, postgresql_using="hash")
    op.create_index(op.f("ix_jobs_user_id"), "jobs", ["user", "id"], unique=False)


def downgrade() -> None:
    """Back from it."""
    op.drop_index(op.f("ix_jobs_user_id"), table_name="jobs")
    op.drop_table("standings")


def _fill(standings: sa.Table) -> None:
    lines = sorted(_lines(op.get_bind()), key=lambda line: line["board"])
    for _, board in groupby(lines, lambda line: line["board"]):
        _rank(list(board))
    for begin in range(0, len(lines), _AT_ONCE):
        op.bulk_insert(standings, lines[begin : begin + _AT_ONCE])


def _lines(connection: sa.Connection) -> Sequence[dict[str, Any]]:
    """A line for each model on each board, without its place: its best evaluation, or nothing where none passed."""
    query = (
        sa.select(
            *(_tasks.c[name] for name in ("suite", "name", "source_hash", "category", "dtype")),
            *(_jobs.c[name] for name in ("task_id", "model")),
            *(_candidates.c[name] for name in ("job_id", "hash")),
            *(column for column in _evaluations.c if column.name not in ("candidate_id", "retracted_at")),
        )
        .select_from(_evaluations)
        .join(_candidates, _candidates.c.id == _evaluations.c.candidate_id)
        .join(_jobs, _jobs.c.id == _candidates.c.job_id)
        .join(_tasks, _tasks.c.id == _jobs.c.task_id)
        .where(_evaluations.c.verdict.not_in(_NOT_JUDGED), _evaluations.c.retracted_at.is_(None))
    )
    lines: dict[str, dict[str, Any]] = {}
    best: dict[str, tuple[Any, ...]] = {}
    for row in connection.execute(query, execution_options={"yield_per": _AT_ONCE}).mappings():
        board = [row["task_id"], row["platform"], row["device"], row["sandbox"]]
        model = _SUBMITTED if row["model"] is None else row["model"]
        key = _digest([*board, model])
        line = lines.setdefault(key, _empty_line(row, key, _digest(board), model))
        line["evaluations"] += 1
        if row["verdict"] != "passed" or row["speedup"] is None:
            continue
        line["passed"] += 1
        worth = _UNRANKED if _UNRANKED_TAGS & set(row["tags"]) else _RANKED
        merit = (worth, -row["speedup"], row["created_at"], row["id"])
        if key not in best or merit < best[key]:
            best[key] = merit
            line |= {name: row[name] for name in ("tags", "job_id", *_FIGURES)}
            line |= {"worth": worth, "candidate_hash": row["hash"]}
            line |= {"evaluation_id": row["id"], "evaluated_at": row["created_at"]}
    return list(lines.values())


def _empty_line(row: sa.RowMapping, key: str, board: str, model: str) -> dict[str, Any]:
    same = ("task_id", "suite", "source_hash", "category", "dtype", "platform", "device", "sandbox")
    return {
        **{name: row[name] for name in same},
        **dict.fromkeys(("job_id", "candidate_hash", "evaluation_id", "evaluated_at", *_FIGURES)),
        **{"key": key, "board": board, "model": model, "task": f"{row['suite']}/{row['name']}"},
        **{"evaluations": 0, "passed": 0, "worth": _NOTHING, "tags": []},
    }


def _rank(board: list[dict[str, Any]]) -> None:
    """Give each line of a board its place and rank; overlapping intervals share a rank."""
    board.sort(key=lambda line: (line["worth"], -(line["speedup"] or 0.0), line["model"]))
    first: dict[str, Any] | None = None  # of the lines that share the present rank
    rank = 0
    for place, line in enumerate(board):
        line |= {"place": place, "rank": None}
        if line["worth"] != _RANKED:
            continue
        if first is None or not _overlap(first, line):
            first, rank = line, place + 1
        line["rank"] = rank


def _overlap(faster: Mapping[str, Any], slower: Mapping[str, Any]) -> bool:
    low = faster["speedup"] if faster["speedup_low"] is None else faster["speedup_low"]
    high = slower["speedup"] if slower["speedup_high"] is None else slower["speedup_high"]
    return bool(high >= low)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
