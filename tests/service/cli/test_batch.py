"""`kernelwright batch` as a user meets it: what is printed, in how many columns, and with which exit status."""

import contextlib
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.cli.app import run
from tests.support.commands import OP
from tests.support.fast_batches import coder, quick, write_ops


@pytest.fixture(scope="module")
def data_of_two_batches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches with two models each, run by the command itself; the data folder."""
    folder = tmp_path_factory.mktemp("batches")
    ops = write_ops(folder, 3)
    with (
        pytest.MonkeyPatch.context() as patch,
        quick(patch, folder, coder([4.0, 2.0, 0.0, 1.5])) as (settings, _),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        patch.setenv("KERNELWRIGHT_DATA_DIR", str(settings.data_dir))
        tasks = [word for op in ops for word in ("--tasks", op)]
        common = ["--api-base", str(settings.api_base), "--price", "1.5,6", "--rounds", "1", "--budget-usd", "5"]
        models = ["--models", "openai/one", "--models", "openai/two"]
        for name in ("first", "second"):
            assert run(["batch", "run", *tasks, *models, "--samples", "2", "--name", name, *common]) == 0
        return settings.data_dir


@pytest.fixture
def two_batches(data_of_two_batches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with two batches, which tests only read."""
    monkeypatch.setenv("KERNELWRIGHT_DATA_DIR", str(data_of_two_batches))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["batch", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.xdist_group("two_batches")
@pytest.mark.usefixtures("two_batches")
def test_a_batch_is_shown_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "show", "1", "--jobs")
    assert shown.startswith("batch 1 (first): 12 of 12 jobs ended (12 done); $")
    assert "of $5.00" in shown
    for word in ("openai/one", "openai/two", "geomean", "of passed", "median", "fast_p", "> 0.5", "@1 ", "@2 "):
        assert word in shown
    assert "count a failure as 1.0" in shown and "failed" in shown and "wrong_output" in shown
    assert max(map(len, shown.splitlines())) <= 80
    listed = printed(capsys, "list")
    assert "second" in listed and "12/12" in listed
    assert max(map(len, listed.splitlines())) <= 80


@pytest.mark.xdist_group("two_batches")
@pytest.mark.usefixtures("two_batches")
def test_each_form_of_a_batch_is_what_its_reader_expects(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "show", "1", "--format", "csv"))))
    assert len(rows) == 12 and {row["model"] for row in rows} == {"openai/one", "openai/two"}
    whole = json.loads(printed(capsys, "show", "1", "--json"))
    assert whole == json.loads(printed(capsys, "show", "1", "--format", "json"))
    assert whole["schema"] == "kernelwright.batch/1" and whole["batch"]["name"] == "first"
    form = ("show", "1", "--format", "kernelbench")
    results = json.loads(printed(capsys, *form, "--model", "openai/one"))
    assert set(results) == {"1", "2", "3"} and [each["sample_id"] for each in results["1"]] == [0, 1]
    assert run(["batch", *form]) == 2
    assert "choose --model: openai/one, openai/two" in capsys.readouterr().err


@pytest.mark.xdist_group("two_batches")
@pytest.mark.usefixtures("two_batches")
def test_a_comparison_says_its_tests_and_over_how_many_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "compare", "1", "2")
    assert shown.count("Wilcoxon") == 2 and shown.count("McNemar") == 2
    assert "3 tasks" in shown
    found = json.loads(
        printed(capsys, "compare", "1", "1", "--model-a", "openai/one", "--model-b", "openai/two", "--json")
    )
    assert found["schema"] == "kernelwright.batch_comparison/1"
    assert found["comparisons"][0]["comparison"]["n"] == 3
    assert run(["batch", "compare", "1", "2", "--model-a", "openai/three"]) == 2
    assert "there is: openai/one, openai/two" in capsys.readouterr().err


@pytest.mark.xdist_group("two_batches")
@pytest.mark.usefixtures("two_batches")
def test_a_report_is_written_for_a_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "paper"
    shown = printed(capsys, "report", "1", "--out", str(out))
    assert shown == f"batch 1: {len([path for path in out.rglob('*') if path.is_file()])} files in {out}; " + (
        f"begin with {out / 'report.md'}\n"
    )
    assert "openai/two" in (out / "report.md").read_text()
    assert json.loads((out / "report.json").read_text())["about"]["settings"]["rounds"] == [1]
    told = json.loads(printed(capsys, "report", "1", "--out", str(out), "--k", "2", "--over", "compile", "--json"))
    assert (told["schema"], told["batch"], told["folder"]) == ("kernelwright.batch_report/1", 1, str(out))
    assert "Pass@2" in (out / "overall.tex").read_text() and "fast_p.svg" in told["files"]
    assert "over torch.compile" in (out / "report.md").read_text()


def test_detached_jobs_wait_for_workers_and_can_be_cancelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "week.toml"
    path.write_text('name = "week"\ntasks = ["starter/g*"]\nsamples = 2\n[job]\nrounds = 1\n')
    assert run(["batch", "run", str(path), "--detach"]) == 0
    assert capsys.readouterr().out == "batch 1: 6 jobs queued for `kernelwright worker`\n"
    assert run(["batch", "cancel", "1"]) == 0
    assert capsys.readouterr().out == "batch 1: 6 jobs cancelled or told to stop\n"
    assert run(["batch", "resume", "1", "--detach", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"queued": 6}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["run"],
            "no tasks; give a suite, suite/name, a pattern or a .py file, or a batch's file: kernelwright batch run --",
        ),
        (["run", "--tasks", "starter", "--samples", "0"], "samples: "),
        (["run", "--tasks", "nothing/here"], "none can be used"),
        (["run", "missing.toml"], "missing.toml: cannot be read"),
        (["show", "9"], "batch 9 is not in the store"),
        (["cancel", "9"], "batch 9 is not in the store"),
        (["resume", "9", "--detach"], "batch 9 is not in the store"),
        (["compare", "9", "10"], "batch 9 is not in the store"),
        (["report", "9", "--out", "paper"], "batch 9 is not in the store"),
        (["report", "9", "--out", "paper", "--k", "0"], "--k 0: must be from 1 to 1000"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["batch", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_server_is_not_silently_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELWRIGHT_SERVER", "http://127.0.0.1:9")
    assert run(["batch", "list"]) == 3
    assert "http://127.0.0.1:9: does not answer" in capsys.readouterr().err


def test_no_batches_yet_is_said_with_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["batch", "list"]) == 0
    assert "no batches yet; try: kernelwright batch run" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "show", "list", "cancel", "resume", "compare", "report"])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["batch", command, "--help"]) == 0
    assert f"kernelwright batch {command}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.timeout(300)
def test_the_built_in_compiler_runs_a_batch_that_ctrl_c_stops_and_resume_ends(tmp_path: Path) -> None:
    environment = {
        **os.environ, "COLUMNS": "80", "KERNELWRIGHT_MEASURE_S": "0.2", "KERNELWRIGHT_BASELINES": "eager",
    }  # fmt: skip
    command = [sys.executable, "-m", "service.cli", "batch"]
    here = Path(__file__).parents[3]
    options = ["--sandbox", "process", "--json"]
    (tmp_path / "first.py").write_text(OP.replace("128, 128", "64, 64"))
    (tmp_path / "second.py").write_text(OP.replace("128, 128", "64, 64").replace("relu", "tanh"))
    ops = ["--tasks", str(tmp_path / "first.py"), "--tasks", str(tmp_path / "second.py"), "--rounds", "1"]
    process = subprocess.Popen(
        [*command, "run", *ops, *options], cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"[2/2]" in line:
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert [job["outcome"] for job in json.loads(out)["jobs"]] == ["passed", "open"]
    done = subprocess.run(
        [*command, "resume", "1", *options], cwd=here, env=environment, capture_output=True, timeout=240, check=True
    )
    whole = json.loads(done.stdout)
    assert whole["complete"]
    assert [(job["outcome"], job["sandbox"]) for job in whole["jobs"]] == [("passed", "process")] * 2
    assert whole["spent_usd"] == 0
