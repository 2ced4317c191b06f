"""`db`, `leaderboard` and `jobs retract`, as scripts and people meet them, on both databases."""

import json

import pytest
from sqlalchemy import text

from db.engine import open_store
from db.jobs.jobs import set_spent
from tests.support.boards import Board
from tests.support.commands import environment
from tests.support.postgres import WITH_PASSWORD


class Shell:
    """Runs commands against one database."""

    def __init__(self, folder, url, commands):
        self.folder = folder
        self.commands = commands
        self.url = url

    def run(self, *arguments, url=None):
        variables = environment(self.folder, COLUMNS="200", KERNELWRIGHT_DATABASE_URL=url or self.url)
        return self.commands.run([str(argument) for argument in arguments], cwd=self.folder, env=variables)

    def json(self, *arguments):
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shell(empty_url, tmp_path, command_server):
    return Shell(tmp_path, empty_url, command_server)


@pytest.fixture
def board(shell):
    opened = open_store(shell.url)
    yield Board(opened)
    opened.close()


def test_the_store_is_made_checked_and_copied(shell, tmp_path):
    if shell.url.startswith("postgresql"):
        missing = shell.run("db", "check")
        assert "revision None" in missing.stderr
        assert missing.returncode == 3
    assert shell.json("db", "upgrade")["mended"] == 0
    assert shell.json("db", "check")["ok"] is True
    assert shell.json("db", "backup", "copy")["file"] == "copy"
    assert (tmp_path / "copy").stat().st_size > 1000
    again = shell.run("db", "backup", "copy")
    assert "copy exists" in again.stderr
    assert again.returncode == 3


def test_a_leaderboard_that_differs_is_found_by_check_and_mended_by_upgrade(shell, board):
    board.add("m", 2.0)
    with board.store.write() as session:
        session.execute(text("UPDATE standings SET speedup = 99"))
    found = shell.run("db", "check")
    assert found.returncode == 3
    assert "m for starter/op on cpu, CPU A, docker differs from the evaluations in speedup" in found.stderr
    assert "mended: 1" in shell.run("db", "upgrade").stdout
    assert shell.run("db", "check").returncode == 0
    assert [entry.speedup for entry in board.entries()] == [2.0]


def test_many_differences_are_counted_not_all_shown(shell, board):
    for number in range(23):
        board.add(f"m{number}", 2.0)
    with board.store.write() as session:
        session.execute(text("UPDATE standings SET speedup = 99"))
    problems = json.loads(shell.run("db", "check", "--json").stdout)["problems"]
    assert len(problems) == 21
    assert problems[-1] == "leaderboard: 3 more entries differ"


@pytest.mark.postgres
def test_no_command_shows_the_password_of_the_database(postgres_url, postgres, tmp_path, command_server):
    from sqlalchemy.engine import make_url

    url = make_url(postgres_url).set(username=WITH_PASSWORD, password="s3cret").render_as_string(hide_password=False)
    shell = Shell(tmp_path, url, command_server)
    for command in (["db", "upgrade"], ["db", "check"], ["db", "backup", "x"], ["leaderboard"], ["doctor"]):
        done = shell.run(*command)
        assert "s3cret" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert "password authentication failed" in shell.run("db", "check").stderr


# The leaderboard


@pytest.fixture
def filled(board):
    board.add("a", 2.0, figures={"roofline_fraction": 0.5})
    dear = board.add("b", 3.0, task="starter/half", dtype="float16")
    board.add("c", 1.0)
    board.add("loser", verdict="crashed")
    with board.store.write() as session:
        set_spent(session, dear, cost_usd=2.5, tokens=10)
    return board


def models(shell, *arguments):
    return [entry["model"] for entry in shell.json("leaderboard", *arguments)["entries"]]


def test_the_leaderboard_is_filtered_sorted_and_cut(shell, filled):
    assert models(shell) == ["b", "a", "c", "loser"]
    assert models(shell, "--sort", "speedup") == ["b", "a", "c", "loser"]
    assert models(shell, "--sort", "model", "--limit", "2") == ["a", "b"]
    assert models(shell, "--sort", "speedup", "--order", "asc") == ["c", "a", "b", "loser"]
    assert models(shell, "--sort", "cost", "--order", "desc", "--limit", "1") == ["b"]
    assert models(shell, "--dtype", "float16") == ["b"]
    assert models(shell, "--model", "c", "--suite", "starter") == ["c"]
    assert shell.json("leaderboard", "--limit", "1")["total"] == 4
    assert shell.json("leaderboard", "--limit", "1", "--model", "a")["total"] == 1


def test_people_are_told_what_was_left_out_and_what_does_not_exist(shell, filled):
    done = shell.run("leaderboard", "--sort", "speedup", "--limit", "3")
    assert "starter/half" in done.stdout
    assert "50%" in done.stdout
    assert "1 more; raise --limit" in done.stderr
    assert "no entries match" in shell.run("leaderboard", "--model", "nobody").stderr
    wrong = shell.run("leaderboard", "--sort", "beauty")
    assert wrong.returncode == 2
    assert "--sort beauty: unknown; there is: board, task" in wrong.stderr
    wrong = shell.run("leaderboard", "--order", "up")
    assert wrong.returncode == 2
    assert "--order up: unknown; there is: asc, desc" in wrong.stderr


# Taking results back


def test_a_result_is_retracted_and_restored_with_a_reason(shell, board):
    job_id = board.add("m", 3.0)
    board.add("m", 2.0, job_id=job_id)
    answer = shell.json("jobs", "retract", "e1", "--reason", "a fan had failed")
    assert answer["retracted_at"] is not None
    assert answer["job_id"] == job_id
    assert [entry.speedup for entry in board.entries()] == [2.0]
    again = shell.run("jobs", "retract", "e1", "--reason", "once more")
    assert again.returncode == 2
    assert "e1 was retracted already" in again.stderr
    done = shell.run("jobs", "restore", "e1", "--reason", "it had not")
    assert f"evaluation e1 is restored; best of job {job_id}: e1" in done.stdout
    assert [entry.speedup for entry in board.entries()] == [3.0]


def test_what_cannot_be_retracted_is_refused(shell, board):
    board.add("m", 3.0)
    assert "Missing option '--reason'" in shell.run("jobs", "retract", "e1").stderr
    for arguments, why in (
        (["e1", "--reason", " "], "reason: empty"),
        (["nothing", "--reason", "x"], "evaluation nothing is not in the store"),
    ):
        done = shell.run("jobs", "retract", *arguments)
        assert done.returncode == 2
        assert why in done.stderr
