"""The command line as scripts and people meet it: what takes a process of its own is run as one."""

import json
import os
import subprocess
import sys

import pytest

from service.cli.app import run
from tasks.metadata import CATEGORIES
from tests.support.commands import KERNELWRIGHT, OP, ROOT, environment

COMMANDS = [
    [],
    ["optimize"],
    ["evaluate"],
    ["leaderboard"],
    ["doctor"],
    ["mcp"],
    ["platforms"],
    ["tasks"],
    ["tasks", "list"],
    ["tasks", "show"],
    ["tasks", "check"],
    ["jobs"],
    ["jobs", "list"],
    ["jobs", "show"],
    ["jobs", "cancel"],
    ["jobs", "resume"],
    ["jobs", "export"],
    ["jobs", "retract"],
    ["jobs", "restore"],
    ["sandbox"],
    ["sandbox", "build"],
    ["sandbox", "check"],
    ["db"],
    ["db", "upgrade"],
    ["db", "check"],
    ["db", "backup"],
]


@pytest.fixture
def kernelwright(tmp_path):
    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", *KERNELWRIGHT[1:], *map(str, arguments)],
            cwd=tmp_path,
            env=environment(tmp_path, COLUMNS="80", **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def here(tmp_path, monkeypatch, capfd):
    """Runs a command in this process, as its own process would: in its folder, with nothing but its environment."""

    def call(*arguments, **variables):
        whole = environment(tmp_path, **{"COLUMNS": "80", **variables})
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for name in list(os.environ):
                patch.delenv(name)
            for name, value in whole.items():
                patch.setenv(name, value)
            capfd.readouterr()
            status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, status, out, err)

    return call


def one_line(stderr):
    lines = [line for line in stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, stderr
    assert "Traceback" not in stderr
    return lines[0]


# Help


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_an_example_that_begins_with_the_command(kernelwright, command):
    done = kernelwright(*command, "--help")
    assert done.returncode == 0
    assert f"Example: kernelwright {' '.join(command)}".rstrip() in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_help_is_quick_for_what_a_command_alone_needs_is_not_imported_for_all():
    script = "import sys, service.cli.app, web.cli; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {"asyncio", "docker", "langgraph", "pydantic", "rich", "sqlalchemy", "torch"}.isdisjoint(imported)
    assert len(imported) < 250  # of 170: another library is seen


def test_the_version_is_printed(kernelwright):
    done = kernelwright("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kernelwright ")


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "nonsense"),
        (["optimize"], "OP"),
        (["optimize", "missing.py"], "missing.py: no such file"),
        (["optimize", "op.py", "--rounds", "0"], "--rounds 0"),
        (["optimize", "op.py", "--rounds", "few"], "--rounds"),
        (["optimize", "op.py", "--platform", "abacus"], "platform 'abacus' is unknown; there is: cpu"),
        (["optimize", "op.py", "--sandbox", "cardboard"], "--sandbox cardboard"),
        (["optimize", "op.py", "--strategy", "hope", "--sandbox", "process"], "strategy 'hope'"),
        (["optimize", "op.py", "--out", "kernel.txt"], "ends in .py"),
        (["optimize", "op.py", "--out", "nowhere/best.py"], "nowhere"),
        (["optimize", "op.py", "--out", "op.py"], "the op itself"),
        (["optimize", "op.py", "--out", "mine.py"], "not written by Kernelwright"),
        (["optimize", "starter/nonsense"], "starter/nonsense"),
        (["optimize", "bad.py"], "bad.py"),
        (["evaluate", "op.py", "missing.py"], "missing.py: No such file"),
        (["evaluate", "op.py", "."], "not a regular file"),
        (["evaluate", "op.py", "latin.py"], "not UTF-8"),
        (["tasks", "show", "missing.py"], "missing.py"),
        (["tasks", "list", "--suite", "nonsense"], "nonsense"),
        (["jobs", "show", "7"], "job 7 is not in the store"),
        (["jobs", "resume", "7"], "job 7"),
        (["jobs", "cancel", "7"], "job 7"),
        (["jobs", "export", "7"], "job 7"),
        (["jobs", "show", "seven"], "ID"),
        (["sandbox", "build", "--base", "thin air"], "thin air"),
    ],
)
def test_bad_usage_and_invalid_ops_are_status_2_and_one_line(here, tmp_path, arguments, words):
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "bad.py").write_text("def oops(")
    (tmp_path / "mine.py").write_text("precious = 1\n")
    (tmp_path / "latin.py").write_bytes("é".encode("latin-1"))
    done = here(*arguments)
    assert words in one_line(done.stderr)
    assert done.returncode == 2
    assert done.stdout == ""
    assert (tmp_path / "mine.py").read_text() == "precious = 1\n"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"KERNELWRIGHT_DATABASE_URL": "nonsense"}, "database URL"),
        ({"KERNELWRIGHT_DATABASE_URL": "sqlite:////proc/store.db"}, "/proc/store.db"),
        ({"KERNELWRIGHT_DATA_DIR": "/proc/nowhere"}, "KERNELWRIGHT_DATA_DIR"),
    ],
)
def test_no_store_to_work_with_is_status_3_and_one_line(here, variables, words):
    done = here("jobs", "list", **variables)
    assert words in one_line(done.stderr)
    assert done.returncode == 3


def test_no_docker_is_status_3_with_what_to_do(here, tmp_path):
    (tmp_path / "op.py").write_text(OP)
    done = here("optimize", "op.py", "--sandbox", "docker", DOCKER_HOST="unix:///nowhere.sock")
    assert "--sandbox process" in one_line(done.stderr)
    assert done.returncode == 3


def test_errors_are_one_json_object_too(kernelwright):
    done = kernelwright("optimize", "missing.py", "--json")
    value = json.loads(done.stdout)
    assert value["schema"] == "kernelwright.error/1"
    assert value["error"]["kind"] == "invalid_op"
    assert done.returncode == 2
    usage = kernelwright("optimize", "--json")
    assert json.loads(usage.stdout)["error"]["kind"] == "usage"


def test_an_unexpected_error_says_what_to_report_and_debug_shows_it(kernelwright, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import service.tasks\ndef fail(*_): raise ZeroDivisionError('by design')\nservice.tasks.list_tasks = fail\n"
    )
    path = f"{tmp_path}:{ROOT}"
    done = kernelwright("tasks", "list", PYTHONPATH=path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in one_line(done.stderr)
    assert "--debug" in done.stderr
    debug = kernelwright("tasks", "list", "--debug", PYTHONPATH=path)
    assert "Traceback" in debug.stderr
    assert debug.returncode == 1


def test_a_reader_that_leaves_early_is_no_error(kernelwright, tmp_path):
    command = f"{sys.executable} -m service.cli tasks show starter/rmsnorm_gelu | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert done.stdout.strip() == "0"


# Commands that need neither model nor sandbox


@pytest.mark.parametrize(
    "arguments",
    [
        ["tasks", "list"],
        ["tasks", "show", "starter/rmsnorm_gelu"],
        ["jobs", "list"],
        ["leaderboard"],
        ["platforms"],
        ["doctor"],
        ["db", "upgrade"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("every_core")  # one is too few for doctor
def test_json_is_exactly_one_object_on_stdout(here, arguments):
    done = here(*arguments, "--json")
    value = json.loads(done.stdout)
    assert value["schema"].startswith("kernelwright.")
    assert done.returncode == 0, done.stderr


def test_platforms_say_what_a_verdict_is_and_whether_they_are_ready(here):
    told = {each["platform"]: each for each in json.loads(here("platforms", "--json").stdout)["platforms"]}
    assert {name: each["proves"] for name, each in told.items()} == {
        "cpu": "timed",
        "simulated": "counted: cycles",
        "riscv": "counted: instructions",
        "arm64": "counted: instructions",
        "cuda": "screened, not timed",
        "opencl": "timed",
        "triton": "screened, not timed",
        "hip": "screened, not timed",
    }
    assert told["simulated"]["ready"] is True and told["simulated"]["programs"] == []
    assert [each["name"] for each in told["riscv"]["programs"]] == ["clang-19", "ld.lld-19", "qemu-riscv64"]
    every = {name for name in CATEGORIES if name != "other"}
    for each in told.values():
        assert set(each["exemplars"]) | set(each["without_exemplar"]) == every and each["exemplars"]
    shown = here("platforms", COLUMNS="200").stdout
    assert "ready here" in shown and "counted: instructions" in shown
    assert "simulated: exemplars for 1 of 16 categories; none for activation, arch," in shown
    assert "cpu: exemplars" not in shown and "riscv: exemplars" not in shown


def test_tasks_of_the_starter_suite_are_listed(here):
    tasks = json.loads(here("tasks", "list", "--json").stdout)["tasks"]
    assert len(tasks) >= 14
    assert {"task", "suite", "name", "category", "dtype", "source_hash"} == set(tasks[0])
    assert tasks[0]["task"] in here("tasks", "list").stdout


def test_control_characters_of_an_op_never_reach_the_terminal(here, tmp_path):
    (tmp_path / "op.py").write_text(OP + "\n# \x1b[2J\x1b]0;owned\x07\n")
    done = here("tasks", "show", "op.py")
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.usefixtures("every_core")
def test_doctor_names_what_it_looked_at(kernelwright):
    done = kernelwright("doctor")
    assert done.returncode == 0, done.stdout
    for word in ("python", "docker", "store", "platform cpu"):
        assert word in done.stdout


def test_nothing_is_coloured_when_nobody_watches(kernelwright):
    for command in (["doctor"], ["tasks", "list"], ["optimize", "missing.py"]):
        done = kernelwright(*command)
        assert "\x1b" not in done.stdout + done.stderr


def test_the_store_is_checked_upgraded_and_copied(here, tmp_path):
    missing = here("db", "check")
    assert "db upgrade" in one_line(missing.stderr)
    assert missing.returncode == 3
    assert here("db", "upgrade").returncode == 0
    assert here("db", "check").returncode == 0
    assert here("db", "backup", "copy.db").returncode == 0
    again = here("db", "backup", "copy.db")
    assert "copy.db exists" in one_line(again.stderr)
    copy = here("db", "check", "--json", KERNELWRIGHT_DATABASE_URL=f"sqlite:///{tmp_path}/copy.db")
    assert json.loads(copy.stdout)["ok"] is True


def test_the_data_folder_is_for_its_user_only(here, tmp_path):
    here("db", "upgrade", KERNELWRIGHT_DATA_DIR=str(tmp_path / "fresh"))
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o700
