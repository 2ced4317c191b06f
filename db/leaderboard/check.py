"""Whether the leaderboard's lines say what the evaluations say, and mending them where they do not."""

from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from db.leaderboard.rebuild import standings_anew
from db.leaderboard.update import ALL_BOARDS, COLUMNS
from db.locks import lock_name
from db.tables import StandingRow

_WRITTEN_AT_ONCE = 1000


def standings_problems(session: Session) -> list[str]:
    """One line for each entry of the leaderboard that differs from what the evaluations say; reads all of them."""
    due, kept = _due(session), _kept(session)
    problems = []
    for key in sorted(due.keys() | kept.keys()):
        named = due.get(key) or kept[key]
        if due.get(key) == kept.get(key):
            continue
        if key not in kept:
            what = "is missing"
        elif key not in due:
            what = "has no evaluations"
        else:
            differing = [name for name in COLUMNS if due[key][name] != kept[key][name]]
            what = f"differs from the evaluations in {', '.join(differing)}"
        where = f"{named['task']} on {named['platform']}, {named['device']}, {named['sandbox']}"
        problems.append(f"leaderboard: {named['model']} for {where} {what}: run `kernelwright db upgrade`")
    return problems


def mend_standings(session: Session) -> int:
    """Compute every line anew; how many were wrong. Nobody else can keep an evaluation meanwhile."""
    lock_name(session, ALL_BOARDS)
    due, kept = _due(session), _kept(session)
    wrong = [key for key in due.keys() | kept.keys() if due.get(key) != kept.get(key)]
    for begin in range(0, len(wrong), _WRITTEN_AT_ONCE):
        keys = wrong[begin : begin + _WRITTEN_AT_ONCE]
        session.execute(delete(StandingRow).where(StandingRow.key.in_(keys)))
        lines = [due[key] for key in keys if key in due]
        if lines:
            session.execute(insert(StandingRow), lines)
    return len(wrong)


def _due(session: Session) -> dict[str, dict[str, Any]]:
    return {line["key"]: {name: line[name] for name in COLUMNS} for line in standings_anew(session)}


def _kept(session: Session) -> dict[str, dict[str, Any]]:
    query = select(*(getattr(StandingRow, name) for name in COLUMNS))
    return {row["key"]: dict(row) for row in session.execute(query).mappings()}
