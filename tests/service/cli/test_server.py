"""The commands through a server: as on this machine, and refused in one line where they cannot be."""

import contextlib
import io
import json
import re
import signal
import struct
import threading
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from agents.protocols import Event
from db.evaluations import results
from db.jobs import job_queue, jobs, model_runs
from db.jobs.weights import list_weights
from db.records import JobStatus
from evaluator.evaluation import shape_group_of
from evaluator.referee.protocol.input_families import GIVEN_WEIGHTS
from service.audit import retract_evaluation
from service.cli.app import run
from service.cli.remote.models import read_archive
from service.errors import Unavailable
from service.jobs.liveness import this_process
from service.jobs.persistence import measurements_of
from tasks.weights_file import read_weights
from tests.support.commands import GOOD, OP, WRONG
from tests.support.seeded_store import (
    FILES,
    OWNER,
    Seeded,
    decide,
    end_model,
    evaluation,
    model_run,
    prove,
    seed,
    trial,
)
from tests.support.web_application import CANDIDATE, add_done_job, get, listening, opened
from tests.support.weights import state_file

NOWHERE = "http://127.0.0.1:9"
GROUPS = """
def get_input_groups():
    return [[torch.randn(3, 128)], [torch.randn(96, 64)]]
"""
SCALED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 128))
    def forward(self, x):
        return torch.relu(x) * self.scale
def get_inputs():
    return [torch.randn(128, 128)]
def get_init_inputs():
    return []
"""
SCALED_NEW = SCALED.partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
CLAMPED = SCALED_NEW.replace("self.scale\n", "self.scale.clamp(max=2.0)\n")  # no parameter that is drawn is as large


@pytest.fixture
def files(tmp_path):
    """An op, and a candidate for it."""
    for name, text in (("op", OP), ("good", GOOD), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server that asks for tokens, with no worker; shared by tests that leave nothing running."""
    with opened(tmp_path_factory.mktemp("server"), login=True) as web, listening(web) as address:
        yield web, address


@pytest.fixture
def operator(shared, monkeypatch):
    """The server, by an operator's token."""
    web, address = shared
    monkeypatch.setenv("KERNELWRIGHT_SERVER", address)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("operator"))
    return web


def one_line(capsys, *arguments, status):
    """What a command that is refused says; nothing else."""
    assert run([str(argument) for argument in arguments]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sandbox", "process"], "--sandbox: is the server's to set; leave it out with --server"),
        (["--image", "mine"], "--image: is the server's to set; leave it out with --server"),
        (["--tolerance", "lenient"], "--tolerance lenient: unknown; there is: kernelbench"),
        (["--platform", "abacus"], "platform 'abacus' is unknown; there is: cpu"),
        (["--shape-group", "1"], "shape group 1: local/op has no get_input_groups()"),
        (["--state", "none.safetensors"], "--state none.safetensors: cannot be read"),
    ],
)
def test_what_a_server_cannot_be_asked_of_an_evaluation_is_one_line(operator, files, options, words, capsys):
    said = one_line(capsys, "evaluate", files / "op.py", files / "good.py", *options, status=2)
    assert words in said


def test_files_are_looked_at_before_the_server_is_asked(files, capsys):
    there = ["--server", NOWHERE]
    assert (
        "no such file" in one_line(capsys, "evaluate", files / "none.py", files / "good.py", *there, status=2).lower()
    )
    assert "No such file" in one_line(capsys, "evaluate", files / "op.py", files / "none.py", *there, status=2)
    (files / "large.py").write_text("#" * (1024 * 1024 + 1))
    assert "larger than 1 MiB" in one_line(capsys, "evaluate", files / "op.py", files / "large.py", *there, status=2)
    assert "does not answer" in one_line(capsys, "evaluate", files / "op.py", files / "good.py", *there, status=3)


def test_a_body_that_escapes_make_too_large_is_refused_in_one_line(operator, files, capsys):
    (files / "quotes.py").write_text('"' * (1024 * 1024))
    assert "larger than 2048 KiB" in one_line(capsys, "evaluate", files / "op.py", files / "quotes.py", status=2)


def test_a_task_that_the_server_does_not_know_is_refused(operator, files, capsys):
    assert "starter/nothing" in one_line(capsys, "evaluate", "starter/nothing", files / "good.py", status=2)


def test_who_may_not_ask_is_told_what_is_needed(shared, files, monkeypatch, capsys):
    web, address = shared
    command = ["evaluate", files / "op.py", files / "good.py", "--server", address]
    assert "set KERNELWRIGHT_TOKEN" in one_line(capsys, *command, status=3)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", "kw_" + "x" * 43)
    assert "the token is not known" in one_line(capsys, *command, status=3)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    assert "this needs the role submitter" in one_line(capsys, *command, status=2)


def printed(capsys, *arguments):
    assert run([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "command", [["list"], ["list", "--json"], ["list", "--suite", "starter"], ["show", "starter/gelu_tanh"]]
)
def test_the_tasks_of_a_server_look_as_they_do_here(shared, command, monkeypatch, capsys):
    web, address = shared
    here = printed(capsys, "tasks", *command)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    assert printed(capsys, "tasks", *command, "--server", address) == here


def test_all_pages_of_a_servers_tasks_are_listed(shared, monkeypatch, capsys):
    monkeypatch.setattr("service.client.http.PAGE", 7)
    web, address = shared
    here = printed(capsys, "tasks", "list")
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    assert printed(capsys, "tasks", "list", "--server", address) == here


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["list", "--suite", "startr"], "did you mean starter?"),
        (["show", "starter/nothing"], "starter/nothing"),
        (["show", "starter/gelu_tanh/../../me"], "no such task or file"),
        (["show", "starter/.."], "starter/.."),
        (["show", "nothing"], "no such task or file"),
        (["check", "starter/nothing"], "starter/nothing"),
        (["check", "starter/gelu_tanh", "--sandbox", "process"], "--sandbox: is the server's to set"),
        (["import", "kernelbench", "."], "reads a clone beside the store; run it where http"),
    ],
)
def test_what_cannot_be_done_with_a_servers_tasks_is_one_line(operator, command, words, capsys):
    assert words in one_line(capsys, "tasks", *command, status=2)


def test_an_op_is_checked_by_the_server_which_runs_nothing_of_it(operator, files, capsys):
    mark = files / "run"
    (files / "op.py").write_text(f"open({str(mark)!r}, 'w')\n{OP}")
    (files / "none.py").write_text("x = 1\n")
    for known in ("starter/gelu_tanh", files / "op.py"):
        status = run(["tasks", "check", str(known)])
        out = capsys.readouterr().out
        assert status == (0 if "can be queued" in out else 2)
        assert "run nothing of it" in out
    assert not mark.exists()
    assert run(["tasks", "check", str(files / "none.py"), "--json"]) == 2
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["schema"], found["task"], found["ok"]) == ("kernelwright.task_check/1", "local/none", False)
    assert found["problems"][0]["code"] == "invalid_op"
    assert "get_inputs" in err


def test_who_may_not_have_ops_checked_is_told_so(shared, monkeypatch, capsys):
    web, address = shared
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    said = one_line(capsys, "tasks", "check", "starter/gelu_tanh", "--server", address, status=2)
    assert "this needs the role submitter" in said


@pytest.mark.parametrize("command", [["list"], ["show", "starter/gelu_tanh"], ["check", "starter/gelu_tanh"]])
def test_a_server_that_is_not_there_is_status_3(command, capsys):
    assert "does not answer" in one_line(capsys, "tasks", *command, "--server", NOWHERE, status=3)


def test_the_audit_log_says_who_did_what_and_why_here_and_through_a_server(shared, monkeypatch, capsys):
    web, address = shared
    token = web.token("operator")
    job = add_done_job(web.store)
    retract_evaluation(web.store, f"evaluation-{job}-1", actor="ada", reason="the fan was broken")
    monkeypatch.setenv("KERNELWRIGHT_DATABASE_URL", str(web.store.engine.url))
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", token)
    monkeypatch.setenv("COLUMNS", "200")
    here = printed(capsys, "audit")
    assert "the fan was broken" in here
    assert "token.create" in here
    assert printed(capsys, "audit", "--server", address) == here
    told = json.loads(printed(capsys, "audit", "--limit", "1", "--json", "--server", address))
    assert told["schema"] == "kernelwright.audit/1"
    (line,) = told["lines"]
    assert (line["actor"], line["action"]) == ("ada", "retract")
    assert (line["subject"], line["reason"]) == (f"evaluation/evaluation-{job}-1", "the fan was broken")
    assert token not in printed(capsys, "audit", "--json")


def test_the_audit_log_comes_in_pages(shared, monkeypatch, capsys):
    web, address = shared
    monkeypatch.setattr("service.client.http.PAGE", 2)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", [web.token("operator", f"user{number}") for number in range(5)][-1])
    told = json.loads(printed(capsys, "audit", "--limit", "5", "--json", "--server", address))["lines"]
    assert [line["data"]["user"] for line in told] == [f"user{number}" for number in (4, 3, 2, 1, 0)]


def test_the_audit_log_is_for_operators(shared, monkeypatch, capsys):
    web, address = shared
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("submitter", "bob"))
    said = one_line(capsys, "audit", "--server", address, status=2)
    assert "this needs the role operator" in said


def test_an_audit_log_without_lines_says_so(capsys):
    assert run(["audit"]) == 0
    assert "nothing was changed yet" in capsys.readouterr().err


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """A server with two batches that have results; its folder and its address."""
    folder = tmp_path_factory.mktemp("seeded")
    with opened(folder) as web, listening(web) as address:
        seed(web.store)
        yield folder, address


@pytest.fixture
def two_batches(seeded, monkeypatch):
    """A server's address, whose store is this machine's, too. Nothing may be changed in it."""
    folder, address = seeded
    monkeypatch.setenv("KERNELWRIGHT_DATABASE_URL", f"sqlite:///{folder}/web.db")
    return address


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["list", "--limit", "1"],
        ["show", "1"],
        ["show", "2", "--jobs", "--over", "compile"],
        ["show", "1", "--format", "csv"],
        ["show", "1", "--format", "kernelbench", "--model", "openai/some-model"],
        ["compare", "1", "2"],
        ["compare", "1", "1", "--model-a", "openai/some-model", "--model-b", "anthropic/other", "--over", "compile"],
        ["list", "--json"],
        ["show", "1", "--json"],
        ["show", "2", "--format", "json", "--over", "compile"],
        ["compare", "1", "2", "--json"],
    ],
)
def test_batches_of_a_server_look_as_they_do_here(two_batches, command, capsys):
    here = printed(capsys, "batch", *command)
    there = printed(capsys, "batch", *command, "--server", two_batches)
    if "json" in command[-3:] or "--json" in command:
        assert _comparable(json.loads(there)) == _comparable(json.loads(here))
    else:
        assert there == here


@pytest.mark.parametrize("over", ["eager", "compile"])
def test_a_report_through_a_server_and_by_the_api_is_that_of_here(two_batches, over, tmp_path, capsys):
    for name, more in (("here", []), ("there", ["--server", two_batches])):
        printed(capsys, "batch", "report", "1", "--out", str(tmp_path / name), "--over", over, *more)
    found = [
        {str(path.relative_to(tmp_path / name)): path.read_text() for path in (tmp_path / name).rglob("*.*")}
        for name in ("here", "there")
    ]
    for address in (f"{two_batches}/api/v1/batches/1/report.zip", f"{two_batches}/batches/1/report.zip"):
        answer = httpx.get(address, params={"over": over})
        assert answer.headers["content-type"] == "application/zip"
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            found.append({name: archive.read(name).decode() for name in archive.namelist()})
    here, *others = ({name: text for name, text in files.items() if name != "report.json"} for files in found)
    assert len(here) > 15 and all(other == here for other in others)
    whole = [_comparable(json.loads(files["report.json"])) for files in found]
    assert all(each == whole[0] for each in whole)


def _comparable(value):
    """What is printed but for what a batch was asked for, of which a server does not tell all."""
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items() if key != "spec"}
    return [_comparable(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["show", "9"], "batch 9 is not in the store"),
        (["cancel", "9"], "batch 9 is not in the store"),
        (["resume", "9", "--detach"], "batch 9 is not in the store"),
        (["compare", "1", "9"], "batch 9 is not in the store"),
        (["compare", "1", "2", "--model-a", "openai/three"], "there is: openai/some-model, anthropic/other"),
        (["show", "1", "--format", "kernelbench"], "choose --model"),
        (["run", "--tasks", "nothing/here"], "none can be used"),
        (["run", "--tasks", "my_op.py"], "tasks: my_op.py: is a file of this machine"),
        (["run", "--tasks", "ops/of/mine"], "is a file of this machine"),
        (["run", "--tasks", "starter", "--sandbox", "process"], "--sandbox: is the server's to set"),
        (["run", "--tasks", "starter", "--api-base", "http://x"], "--api-base: is the server's to set"),
        (["resume", "1", "--sandbox", "process"], "--sandbox: is the server's to set"),
        (["resume", "1", "--budget-usd", "-1"], "budget_usd"),
    ],
)
def test_what_cannot_be_done_with_a_servers_batches_is_one_line(two_batches, command, words, capsys):
    assert words in one_line(capsys, "batch", *command, "--server", two_batches, status=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[job]\nimage = "mine"', "job.image: is the server's to set"),
        ('[job]\napi_key_file = "key"', "job.api_key_file: is the server's to set"),
        ('models = [{name = "openai/a", api_base = "http://x"}]', "models: api_base of openai/a"),
        ('models = [{name = "openai/a", price = "1,2"}]', "with --server give it in [job], for all"),
    ],
)
def test_a_batchs_file_cannot_set_what_is_the_servers(two_batches, text, words, tmp_path, capsys):
    path = tmp_path / "week.toml"
    path.write_text(f'tasks = ["starter"]\n{text}\n')
    assert words in one_line(capsys, "batch", "run", path, "--server", two_batches, status=2)


def test_a_batch_is_queued_with_what_file_flags_and_environment_say(operator, tmp_path, monkeypatch, capsys):
    path = tmp_path / "week.toml"
    path.write_text(
        'name = "week"\ntasks = ["starter/gelu_tanh", "starter/no"]\nmodels = [{name = "builtin/compiler"}]\n'
        "samples = 2\n[job]\nbudget_s = 60\n"
    )
    monkeypatch.setenv("KERNELWRIGHT_PLATEAU_ROUNDS", "3")
    assert run(["batch", "run", str(path), "--rounds", "1", "--budget-usd", "5", "--detach"]) == 0
    out, err = capsys.readouterr()
    batch = re.fullmatch(r"batch (\d+): 2 jobs queued for `kernelwright worker`\n", out)[1]
    assert "left out: starter/no: no such task" in err
    shown = json.loads(printed(capsys, "batch", "show", batch, "--json"))
    assert (shown["batch"]["name"], shown["batch"]["budget_usd"], shown["counts"]) == ("week", 5.0, {"queued": 2})
    assert shown["batch"]["spec"]["job"] == {"budget_s": 60, "plateau_rounds": 3, "rounds": 1}
    assert printed(capsys, "batch", "cancel", batch) == f"batch {batch}: 2 jobs cancelled or told to stop\n"
    again = json.loads(printed(capsys, "batch", "resume", batch, "--budget-usd", "7", "--detach", "--json"))
    assert (again["batch"]["budget_usd"], again["counts"]) == (7.0, {"queued": 2})
    printed(capsys, "batch", "cancel", batch)


def test_a_batch_of_another_user_or_role_is_refused(shared, monkeypatch, capsys):
    web, address = shared
    monkeypatch.setenv("KERNELWRIGHT_SERVER", address)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("submitter", "ada"))
    told = json.loads(printed(capsys, "batch", "run", "--tasks", "starter/gelu_tanh", "--detach", "--json"))
    number = told["batch"]["id"]
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("submitter", "bob", max_jobs=1))
    assert "another user's" in one_line(capsys, "batch", "cancel", number, status=2)
    assert "another user's" in one_line(capsys, "batch", "resume", number, "--budget-usd", "9", status=2)
    assert "1 jobs at once" in one_line(capsys, "batch", "run", "--tasks", "starter", "--detach", status=2)
    assert "operator" in one_line(
        capsys, "batch", "run", "--tasks", "starter/gelu_tanh", "--priority", "high", "--detach", status=2
    )
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    assert "this needs the role submitter" in one_line(
        capsys, "batch", "run", "--tasks", "starter/gelu_tanh", "--detach", status=2
    )
    shown = json.loads(printed(capsys, "batch", "show", number, "--json"))
    assert (shown["batch"]["user"], shown["batch"]["budget_usd"]) == ("ada", None)


def test_ctrl_c_leaves_a_servers_batch_alone_and_says_how_to_get_back(kernelwright, serving, started):
    with serving("--no-worker") as (address, _):
        said, status = interrupted(started, "batch", "run", "--tasks", "starter/gelu_tanh", "--server", address)
        assert status == 130
        assert "[1/1] starter/gelu_tanh" in said
        assert f"kernelwright batch cancel 1 --server {address}" in said
        shown = json.loads(kernelwright("batch", "show", "1", "--json", "--server", address).stdout)
        assert shown["counts"] == {"queued": 1}


def waiting(started, *arguments):
    """A command that waits for a worker, and what it has said."""
    process = started(*map(str, arguments))
    said = ""
    while "waiting for a worker; none for cpu is there yet" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return process, said


def interrupted(started, *arguments):
    """What a command says that waits for a worker until Ctrl-C, and its status."""
    process, said = waiting(started, *arguments)
    process.send_signal(signal.SIGINT)
    out, more = process.communicate(timeout=60)
    assert out == ""
    return said + more, process.returncode


@contextlib.contextmanager
def answered(store, devices):
    """While the block runs, evaluations that wait are done, each on the next of these devices."""
    over = threading.Event()

    def work():
        for device in devices:
            while not (found := _waiting_evaluations(store)):
                if over.wait(0.05):
                    return
            _evaluated(store, found[0], device)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _waiting_evaluations(store):
    with store.read() as session:
        return jobs.list_jobs(session, kind="evaluate", status=JobStatus.QUEUED)


def _evaluated(store, job, device):
    found = evaluation("passed", speedup=2.0)
    found = replace(found, provenance={**found.provenance, "device": {"name": device}})
    owner = this_process()
    with store.write() as session:
        job_queue.take_job(session, job.id, job.attempt, owner, worker_id=None, sandbox="docker")
        candidate_id = results.add_candidate(
            session, job.id, round_number=0, candidate_hash=job.options["candidate_hash"], source=""
        )
        results.add_evaluation(
            session,
            f"of-{job.id}",
            candidate_id=candidate_id,
            round_number=0,
            platform="cpu",
            device=device,
            sandbox="docker",
            verdict="passed",
            code=None,
            message="",
            tags=(),
            measurements=measurements_of(found),
            result=found.to_json(),
        )
        jobs.finish_job(session, job.id, owner, status=JobStatus.DONE, stop_reason="evaluated")


@pytest.mark.parametrize(("devices", "told"), [(("CPU A", "CPU B"), True), (("CPU A", "CPU A"), False)])
def test_evaluations_on_different_devices_are_not_taken_for_alike(operator, files, devices, told, capsys):
    with answered(operator.store, devices):
        assert run(["evaluate", str(files / "op.py"), str(files / "good.py"), "--repeat", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [one["provenance"]["device"]["name"] for one in json.loads(out)["evaluations"]] == list(devices)
    assert ("measured on different devices, so differences may be theirs: CPU A; CPU B" in err) is told


def test_an_evaluation_that_someone_calls_off_says_so(operator, files, capsys, started):
    process, said = waiting(started, "evaluate", files / "op.py", files / "good.py", "--json")
    number = re.search(r"job (\d+): waiting", said)[1]
    assert printed(capsys, "jobs", "cancel", number) == f"job {number} is cancelled\n"
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()[-1]) == (1, "", "error: stopped before there was a verdict")


def test_an_evaluation_that_no_worker_could_do_says_why(operator, files, started):
    process, said = waiting(started, "evaluate", files / "op.py", files / "good.py")
    number = int(re.search(r"job (\d+): waiting", said)[1])
    with operator.store.write() as session:
        assert job_queue.fail_queued(session, number, "the disk is full")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (3, "")
    assert err.splitlines()[-1].startswith(f"error: the disk is full (job {number}; kernelwright jobs resume {number}")


def test_a_servers_kernel_is_brought_home(shared, tmp_path, monkeypatch, capsys):
    web, address = shared
    job = add_done_job(web.store)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    there = ["--server", address]
    told = json.loads(printed(capsys, "jobs", "export", job, "--out", tmp_path / "best.py", "--json", *there))
    assert told == {
        "schema": "kernelwright.export/1",
        "job_id": job,
        "kernel": f"{tmp_path}/best.py",
        "report": f"{tmp_path}/report.md",
    }
    assert CANDIDATE in (tmp_path / "best.py").read_text()
    assert (tmp_path / "report.md").read_text()
    kept = printed(capsys, "jobs", "export", job, *there).splitlines()[0].removeprefix("kernel     ")
    assert Path(kept).read_text() == (tmp_path / "best.py").read_text()
    assert "is not in the store" in one_line(capsys, "jobs", "export", "999", *there, status=2)
    chats = ["jobs", "export", job, "--format", "openai-jsonl", *there]
    assert "read from this machine's store alone" in one_line(capsys, *chats, status=2)
    (tmp_path / "mine.py").write_text("x = 1\n")
    mine = ["jobs", "export", job, "--out", tmp_path / "mine.py", *there]
    assert "was not written by Kernelwright" in one_line(capsys, *mine, status=2)


def test_results_of_a_server_are_taken_back_and_brought_back_by_operators(shared, monkeypatch, capsys):
    web, address = shared
    job = add_done_job(web.store)
    command = [f"evaluation-{job}-1", "--reason", "a broken fan", "--server", address]
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("submitter", "bob"))
    assert "this needs the role operator" in one_line(capsys, "jobs", "retract", *command, status=2)
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("operator", "grace"))
    assert printed(capsys, "jobs", "retract", *command).endswith(f"best of job {job}: none\n")
    assert "was retracted already" in one_line(capsys, "jobs", "retract", *command, status=2)
    told = json.loads(printed(capsys, "jobs", "restore", *command, "--json"))
    assert (told["retracted_at"], told["best_evaluation_id"]) == (None, f"evaluation-{job}-1")
    line = json.loads(printed(capsys, "audit", "--limit", "1", "--json", "--server", address))["lines"][0]
    assert (line["actor"], line["action"], line["reason"]) == ("grace", "restore", "a broken fan")
    for unknown in ("nothing", "../jobs", "a b"):
        refused = ["jobs", "retract", unknown, "--reason", "x", "--server", address]
        assert one_line(capsys, *refused, status=2).startswith("error: ")


def test_while_nobody_works_that_is_said_and_ctrl_c_leaves_the_evaluation_in_line(
    files, kernelwright, serving, started
):
    with serving("--no-worker") as (address, _):
        said, status = interrupted(
            started, "evaluate", str(files / "op.py"), str(files / "good.py"), "--server", address
        )
        assert status == 130
        assert f"kernelwright jobs cancel 1 --server {address}" in said
        shown = json.loads(kernelwright("jobs", "show", "1", "--json", "--server", address).stdout)["job"]
        assert (shown["kind"], shown["status"]) == ("evaluate", "queued")


@pytest.mark.timeout(900)
def test_an_evaluation_through_a_server_is_what_it_is_here(files, monkeypatch, kernelwright, serving):
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "process")
    monkeypatch.setenv("KERNELWRIGHT_MEASURE_S", "0.5")
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", "eager")
    op, good, wrong = (str(files / f"{name}.py") for name in ("op", "good", "wrong"))
    here = kernelwright("evaluate", op, wrong, "--json", within_s=280)
    with serving() as (address, _):
        monkeypatch.delenv("KERNELWRIGHT_SANDBOX")
        there = kernelwright("evaluate", op, wrong, "--repeat", "2", "--json", "--server", address, within_s=280)
        asked = ["--json", "--cold", "--profile", "--tolerance", "kernelbench"]
        whole = kernelwright("evaluate", op, good, *asked, "--server", address, within_s=280)
        listed = kernelwright("jobs", "list", "--all", "--json", "--server", address)
        board = kernelwright("leaderboard", "--json", "--server", address)
    assert (there.returncode, here.returncode) == (0, 0), there.stderr
    repeated, known = json.loads(there.stdout), json.loads(here.stdout)
    assert (repeated["schema"], repeated["done"], repeated["agree"]) == ("kernelwright.repeat/1", 2, True)
    for found in repeated["evaluations"]:
        assert found.keys() == known.keys()
        assert (found["verdict"], found["code"]) == ("wrong_output", "values")
        for name in ("schema", "verdict", "code", "speedup", "tags"):
            assert found[name] == known[name]
        for name in ("task", "candidate", "sandbox"):
            assert found["provenance"][name] == known["provenance"][name]
    assert whole.returncode == 0, whole.stderr
    passed = json.loads(whole.stdout)
    assert (passed["verdict"], passed["correctness"]["kernelbench"]["passed"]) == ("passed", True)
    assert "cold" in passed["tags"]
    assert passed["profile"]["detail"]["schema"].startswith("kernelwright.")
    kept = json.loads(listed.stdout)["jobs"]
    assert [(job["kind"], job["model"], job["status"]) for job in kept] == [("evaluate", None, "done")] * 4
    assert {entry["model"] for entry in json.loads(board.stdout)["entries"]} == {"submitted"}


@pytest.mark.timeout(900)
def test_inputs_of_a_shape_group_are_timed_here_and_through_a_server(files, monkeypatch, kernelwright, serving):
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "process")
    monkeypatch.setenv("KERNELWRIGHT_MEASURE_S", "0.2")
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", "eager")
    (files / "op.py").write_text(OP + GROUPS)
    command = ("evaluate", str(files / "op.py"), str(files / "good.py"), "--json", "--shape-group")
    done = [kernelwright(*command, number, within_s=280) for number in ("1", "2")]
    with serving() as (address, _):
        monkeypatch.delenv("KERNELWRIGHT_SANDBOX")
        done += [kernelwright(*command, number, "--server", address, within_s=280) for number in ("1", "2")]
    assert [each.returncode for each in done] == [0] * 4, [each.stderr for each in done]
    here, none_here, there, none_there = (json.loads(each.stdout) for each in done)
    for found in (here, there):
        assert (found["verdict"], shape_group_of(found)) == ("passed", 1)
        assert "other_inputs" in found["tags"]
        checked = [check["inputs"] for check in found["correctness"]["checks"] if check["passed"]]
        assert {"shape group 0", "shape group 1"} <= set(checked)
    for found in (none_here, none_there):
        assert (found["verdict"], shape_group_of(found)) == ("task_invalid", 2)
        assert "get_input_groups() returns 2 lists of inputs: there is no shape group 2" in found["message"]


@pytest.mark.timeout(900)
def test_a_candidate_is_held_to_weights_that_are_sent_to_a_server_once(tmp_path, monkeypatch, kernelwright, serving):
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "process")
    monkeypatch.setenv("KERNELWRIGHT_MEASURE_S", "0.2")
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", "eager")
    for name, text in (("op", SCALED), ("good", SCALED_NEW), ("clamped", CLAMPED)):
        (tmp_path / f"{name}.py").write_text(text)
    weights = state_file({"scale": ("F32", [128], struct.pack("<f", 3.0) * 128)})
    (tmp_path / "w.safetensors").write_bytes(weights)
    digest = read_weights(weights).digest
    with serving() as (address, _):
        monkeypatch.delenv("KERNELWRIGHT_SANDBOX")
        asked = ("--state", str(tmp_path / "w.safetensors"), "--json", "--server", address)
        done = [
            kernelwright("evaluate", str(tmp_path / "op.py"), str(tmp_path / name), *asked, within_s=280)
            for name in ("good.py", "clamped.py")
        ]
        kept = get(address, "/api/v1/weights").json()["weights"]
        counted = get(address, "/metrics").text
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    good, clamped = (json.loads(each.stdout) for each in done)
    assert (good["verdict"], clamped["verdict"], clamped["code"]) == ("passed", "wrong_output", "given_weights")
    for found, right in ((good, True), (clamped, False)):
        checks = {check["inputs"]: check["passed"] for check in found["correctness"]["checks"]}
        assert (checks[GIVEN_WEIGHTS], found["provenance"]["weights"]) == (right, digest)
    assert [each["digest"] for each in kept] == [digest]
    sent = re.findall(r'_requests_total\{method="PUT",route="/api/v1/weights",status="(\d+)"\} (\S+)', counted)
    assert sent == [("201", "1.0")]


@pytest.mark.timeout(900)
def test_a_batch_through_a_server_is_followed_job_by_job_and_shown_as_here(monkeypatch, kernelwright, serving):
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "process")
    monkeypatch.setenv("KERNELWRIGHT_MEASURE_S", "0.2")
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", "eager")
    tasks = ["--tasks", "starter/bilinear_resize", "--tasks", "starter/dequant_linear", "--rounds", "1"]
    with serving() as (address, _):
        monkeypatch.delenv("KERNELWRIGHT_SANDBOX")
        done = kernelwright("batch", "run", *tasks, "--json", "--server", address, within_s=600)
        shown = kernelwright("batch", "show", "1", "--server", address)
    assert done.returncode == 0, done.stderr
    whole = json.loads(done.stdout)
    assert whole["complete"]
    assert [(job["task"], job["outcome"], job["sandbox"]) for job in whole["jobs"]] == [
        ("starter/bilinear_resize", "passed", "process"),
        ("starter/dequant_linear", "passed", "process"),
    ]
    lines = done.stderr.splitlines()
    assert f"batch 1: 2 of 2 jobs to run at {address}" in lines
    assert lines.index("[1/2] starter/bilinear_resize") < lines.index("[2/2] starter/dequant_linear")
    assert sum("passed, " in line for line in lines) == 2
    assert shown.stdout.startswith("batch 1: 2 of 2 jobs ended (2 done)")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--state", "none.safetensors"], "--state none.safetensors: cannot be read"),
        (["--plan", "--tasks", "here"], "--tasks: is the server's to set; leave it out with --server"),
        (["--platform", "cuda"], "platform 'cuda': whole models are for cpu"),
        (["--out", "no/where"], "--out no/where: folder no is not there; make it first"),
    ],
)
def test_what_a_server_cannot_be_asked_of_a_model_is_one_line(operator, files, options, words, capsys):
    assert words in one_line(capsys, "model", files / "op.py", *options, status=2)


def delivered(web, name="net"):
    made = Seeded(web.store)
    model_run(made, name)
    decide(made, name, [trial("r02_rms_norm", "without", "worse", 0.87, False)], ["r02_rms_norm"])
    prove(made, name, evaluation("passed", speedup=1.5))
    return made.models[name]


def test_runs_over_models_of_a_server_look_as_they_do_here(shared, monkeypatch, capsys):
    web, address = shared
    run_id = delivered(web)
    commands = [("models", "list"), ("models", "show", run_id)]
    monkeypatch.setenv("KERNELWRIGHT_DATABASE_URL", web.store.engine.url.render_as_string(hide_password=False))
    here = [printed(capsys, *command) for command in commands]
    monkeypatch.setenv("KERNELWRIGHT_TOKEN", web.token("viewer", "eve"))
    assert [printed(capsys, *command, "--server", address) for command in commands] == here


def test_a_model_through_a_server_is_followed_and_unpacked(operator, tmp_path, capsys):
    (tmp_path / "net.py").write_text(OP)
    told = threading.Thread(target=finish_next_model, args=(operator.store,))
    told.start()
    assert run(["model", str(tmp_path / "net.py"), "--out", str(tmp_path / "faster")]) == 0
    told.join()
    out, err = capsys.readouterr()
    assert "each region's job looks for a kernel" in err
    assert f"model      {tmp_path / 'faster' / 'model.py'}" in out
    assert {str(path.relative_to(tmp_path / "faster")) for path in (tmp_path / "faster").rglob("*.*")} == {
        *FILES,
        "report.md",
    }


def test_weights_go_with_a_model_to_a_server_and_are_sent_once(operator, tmp_path, capsys):
    (tmp_path / "net.py").write_text(OP)
    files = [tmp_path / "w.safetensors", tmp_path / "other.safetensors"]
    for path, raw in zip(files, (b"abcd", b"efgh"), strict=True):
        path.write_bytes(state_file({"weight": ("F32", [1], raw)}))
    digest = read_weights(files[0].read_bytes()).digest
    for _ in range(2):
        told = threading.Thread(target=finish_next_model, args=(operator.store,), kwargs={"proven": False})
        told.start()
        asked = ["model", str(tmp_path / "net.py"), "--state", str(files[0]), "--out", str(tmp_path / "faster")]
        assert run(asked) == 1
        told.join()
    with operator.store.read() as session:
        assert [each.digest for each in list_weights(session, "ada")] == [digest]
        run_id = model_runs.list_runs(session)[0].id
        assert jobs.get_job(session, run_id).options["weights"] == digest
    capsys.readouterr()
    said = one_line(capsys, "models", "resume", run_id, "--state", files[1], status=2)
    assert f"holds other weights than those that run {run_id} began with" in said
    with operator.store.read() as session:
        assert len(list_weights(session, "ada")) == 1, "it was not sent"


def test_a_model_at_a_server_that_is_cancelled_before_its_proof_is_shown_as_it_stands(operator, tmp_path, capsys):
    (tmp_path / "net.py").write_text(OP)
    told = threading.Thread(target=finish_next_model, args=(operator.store,), kwargs={"proven": False})
    told.start()
    assert run(["model", str(tmp_path / "net.py"), "--out", str(tmp_path / "faster")]) == 1
    told.join()
    out, err = capsys.readouterr()
    assert "cancelled (prove)" in out and "go on with: kernelwright models resume" in err
    assert not (tmp_path / "faster").exists()


def finish_next_model(store, *, proven=True):
    """Do a worker's work: give the run that waits a proof, or let it be cancelled before that."""
    made = Seeded(store)
    waiting = None
    while waiting is None:
        with store.read() as session:
            waiting = next((each for each in model_runs.list_runs(session) if each.status is JobStatus.QUEUED), None)
    with store.write() as session:
        job_queue.take_job(session, waiting.id, 1, OWNER, worker_id="w1", sandbox="docker")
        model_runs.set_stage(session, waiting.id, "optimize")
        results.add_event(session, waiting.id, "stage", 0, {"stage": "optimize"})
    made.models["net"] = waiting.id
    decide(made, "net", [], ["r02_rms_norm"])
    if proven:
        prove(made, "net", evaluation("passed", speedup=1.5))
    else:
        end_model(made, "net", JobStatus.CANCELLED, "prove")


@pytest.mark.parametrize(
    "name", ["../evil.py", "/etc/evil.py", "kernels/../../evil.py", "evil.sh", "a/b/c.py", "c:\\x.py"]
)
def test_an_archive_that_names_other_places_is_not_unpacked(name):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(Unavailable, match="names the file"):
        read_archive(data.getvalue())


def packed(text: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        archive.writestr("model.py", text)
    return bytearray(data.getvalue())


def test_an_archive_that_unpacks_to_more_than_it_says_takes_no_more_memory_for_it():
    size = 200 * 1024 * 1024
    data = packed(bytes(size))
    said = size.to_bytes(4, "little")
    assert data.count(said) == 2  # before the file, and in the directory
    tracemalloc.start()
    with pytest.raises(Unavailable, match="cannot be read"):
        read_archive(bytes(data.replace(said, (10).to_bytes(4, "little"))))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * 1024 * 1024


def test_an_archive_whose_data_is_broken_is_said():
    data = packed(b"x" * 1000)
    place = data.index(b"model.py") + len("model.py")
    data[place : place + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(Unavailable, match="cannot be read"):
        read_archive(bytes(data))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_is_packed_in_a_way_of_its_own_is_not_unpacked(method):
    with pytest.raises(Unavailable, match="cannot be read"):
        read_archive(bytes(packed(b"x", method)))


def test_what_is_no_archive_is_said():
    with pytest.raises(Unavailable, match="cannot be read"):
        read_archive(b"PK no archive")


def test_the_transcript_of_a_servers_job_looks_as_it_does_here(tmp_path, monkeypatch, capsys):
    with opened(tmp_path) as web, listening(web) as address:
        made = Seeded(web.store)
        job = made.start("one")
        for number in (1, 2):
            made.round(job, number, evaluation("passed", speedup=1.5), best=number == 1)
        monkeypatch.setenv("KERNELWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path / 'web.db'}")
        for options in ([], ["--json"]):
            here = printed(capsys, "jobs", "show", job, "--transcript", *options)
            assert printed(capsys, "jobs", "show", job, "--transcript", *options, "--server", address) == here
        assert "call 3, round 2" in printed(capsys, "jobs", "show", job, "--transcript", "--server", address)


def test_what_a_servers_job_is_doing_is_shown(tmp_path, capsys):
    with opened(tmp_path) as web, listening(web) as address:
        made = Seeded(web.store)
        holds, job = made.start("holds"), made.start("waits")
        for each in (holds, job):
            made.journal(each)(Event("evaluation_started", 1, {"hash": "e" * 64}))
        with web.store.write() as session:
            results.add_event(session, holds, "phase", 1, {"phase": "timing", "device": "d", "places": ["a"]})
        said = " ".join(printed(capsys, "jobs", "show", job, "--server", address).split())
        assert "now round 1: waiting in the queue for the device, 0 s; 0 before it, job" in said
        assert f"job {holds} has it (timing)" in said
        assert json.loads(printed(capsys, "jobs", "show", holds, "--json", "--server", address))["activity"][
            "phase"
        ] == ("timing")


def test_larger_limits_are_the_servers_to_refuse(tmp_path, capsys):
    with opened(tmp_path) as web, listening(web) as address:
        made = Seeded(web.store)
        job = made.start("spent")
        made.round(job, 1, evaluation("passed", speedup=1.5), best=True)
        made.end(job, JobStatus.DONE, "budget")
        there = ["--server", address]
        assert "--budget-usd" in one_line(capsys, "jobs", "resume", job, *there, status=2)
        low = one_line(capsys, "jobs", "resume", job, "--budget-usd", "0.01", *there, status=2)
        assert "has used $0.025 already" in low
        assert "--rounds" in one_line(capsys, "jobs", "resume", job, "--rounds", "0", *there, status=2)
