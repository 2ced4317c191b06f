"""`kernelwright serve` as a process: how it begins, logs and ends; and the command line against it."""

import json
import signal
import socket
import time

import httpx
import pytest

from service.database import open_store
from service.settings import load_settings
from service.submissions.access import create_token
from tests.support import server_process
from tests.support.web_application import OP, add_done_job
from web.server import is_loopback, session_key
from web.worker_process import Supervisor, worker_command

API = "/api/v1"


@pytest.fixture
def store(isolated_settings):
    store = open_store(load_settings())
    yield store
    store.close()


def ask(address, path, method="GET", **given):
    return httpx.request(method, address + path, trust_env=False, timeout=20, **given)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_started_from_nothing_it_prints_its_address_answers_and_ends_in_good_order(stop):
    with server_process.serving(None, "--no-worker", stop=stop) as (address, _):
        assert ask(address, f"{API}/health/ready").json()["status"] == "ok"
        assert ask(address, f"{API}/me").json()["role"] == "operator"


def test_a_stream_that_is_open_does_not_keep_it_from_ending(store, serving):
    with serving("--no-worker") as (address, process):
        job = ask(address, f"{API}/jobs", "POST", json={"source": OP}).json()["id"]
        with httpx.stream("GET", f"{address}{API}/jobs/{job}/events", trust_env=False) as response:
            parts = response.iter_text()
            next(parts)
            began = time.monotonic()
            process.terminate()
            list(parts)
            assert process.wait(10) == 0
            assert time.monotonic() - began < 5


def test_a_port_that_is_taken_is_one_clear_line(kernelwright):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = kernelwright("serve", "--no-worker", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("error: http://127.0.0.1:")
    assert "already in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--login"], ["--host", "::"]])
def test_without_a_token_it_does_not_open_to_others(arguments, kernelwright):
    done = kernelwright("serve", "--no-worker", "--port", "0", *arguments)
    assert done.returncode == 2
    assert "kernelwright tokens create" in done.stderr
    assert done.stdout == ""


def test_with_a_token_it_asks_everyone_for_one(store, serving):
    _, secret = create_token(store, name="ada", role="viewer")
    with serving("--no-worker", "--login") as (address, _):
        assert ask(address, f"{API}/me").status_code == 401
        assert ask(address, f"{API}/me", headers={"Authorization": f"Bearer {secret}"}).json()["user"] == "ada"


def test_logs_are_json_lines_with_the_requests_ids_and_no_tokens(store, serving):
    _, secret = create_token(store, name="ada", role="viewer")
    with serving("--no-worker", "--login", "--log-format", "json") as (address, process):
        headers = {"Authorization": f"Bearer {secret}", "X-Request-ID": "my-request-1"}
        refused = ask(address, f"{API}/me?token={secret}", headers=headers)
        assert (refused.status_code, refused.headers["x-request-id"]) == (422, "my-request-1")
        process.terminate()
        process.wait(20)
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    mine = next(line for line in lines if line.get("request_id") == "my-request-1")
    assert (mine["message"], mine["status"]) == (f"GET {API}/me 422", 422)
    assert secret not in json.dumps(lines)


@pytest.mark.parametrize("given", ["\r\nX: y", "a b c d e f", "x" * 200, "short"])
def test_a_request_id_from_outside_is_only_taken_if_it_is_plain(given, tmp_path):
    from tests.support.web_application import opened

    with opened(tmp_path) as web:
        shown = web.client().get(f"{API}/me", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert shown != given
    assert len(shown) == 16


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.com", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_only_loopback_addresses_are_this_machines_alone(host, own):
    assert is_loopback(host) is own


def test_the_key_of_sessions_is_kept_for_its_owner_alone(tmp_path):
    key = session_key(tmp_path)
    assert len(key) == 32
    assert session_key(tmp_path) == key
    assert (tmp_path / "session.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["session.key"]


def test_a_worker_that_dies_is_started_again_after_a_growing_pause_and_logged(tmp_path, caplog):
    mark = tmp_path / "begun"
    supervisor = Supervisor(["/bin/sh", "-c", f"echo x >> {mark}; exit 3"], first_delay_s=0.1)
    supervisor.start()
    time.sleep(2.0)
    supervisor.stop()
    begun = len(mark.read_text().splitlines())
    assert 3 <= begun <= 6  # after 0.1, 0.2, 0.4, 0.8 s
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("the worker ended with status 3")


def test_a_worker_is_asked_to_end_with_the_server(tmp_path):
    mark = tmp_path / "said"
    script = f"trap 'echo ended > {mark}; exit 0' TERM; echo ready > {mark}; while :; do sleep 0.05; done"
    supervisor = Supervisor(["/bin/sh", "-c", script])
    supervisor.start()
    deadline = time.monotonic() + 10
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    supervisor.stop()
    assert mark.read_text() == "ended\n"


def test_the_worker_beside_the_server_is_the_worker_command(isolated_settings):
    command = worker_command(load_settings(platform="cpu"), "json")
    assert command[1:] == ["-m", "service.cli", "worker", "--platform", "cpu", "--log-format", "json"]


def test_jobs_and_leaderboard_of_a_server_look_as_they_do_here(store, kernelwright, serving):
    job = add_done_job(store)
    by_cost = ["leaderboard", "--sort", "cost", "--order", "desc"]
    with serving("--no-worker") as (address, _):
        for command in (["jobs", "list"], ["jobs", "show", str(job)], ["leaderboard"], by_cost):
            here, there = kernelwright(*command), kernelwright(*command, "--server", address)
            assert (here.returncode, there.returncode) == (0, 0), there.stderr
            assert there.stdout == here.stdout
            here, there = kernelwright(*command, "--json"), kernelwright(*command, "--json", "--server", address)
            assert _without_options(json.loads(there.stdout)) == _without_options(json.loads(here.stdout))


def _without_options(value):
    """What is printed but for options, of which a server tells only what may be set, and how times are written."""
    if isinstance(value, dict):
        return {
            key: _without_options(item) for key, item in value.items() if key != "options" and not key.endswith("_at")
        }
    return [_without_options(item) for item in value] if isinstance(value, list) else value


def test_a_job_of_a_server_is_cancelled_from_here(store, kernelwright, serving):
    with serving("--no-worker") as (address, _):
        job = str(ask(address, f"{API}/jobs", "POST", json={"source": OP}).json()["id"])
        done = kernelwright("jobs", "cancel", job, "--server", address, "--json")
        assert json.loads(done.stdout)["job"]["status"] == "cancelled"
        again = kernelwright("jobs", "cancel", "99", "--server", address)
        assert (again.returncode, "job 99 is not in the store" in again.stderr) == (2, True)


def test_ctrl_c_leaves_the_servers_job_alone_and_says_how_to_get_back(store, serving, started):
    with serving("--no-worker") as (address, _):
        process = started("optimize", "starter/rmsnorm_gelu", "--server", address)
        line = ""
        while "waiting for a worker" not in line:
            line = process.stderr.readline()
            assert line
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(20) == 130
        process.stdout.close()
        process.stderr.close()
        assert f"kernelwright jobs cancel 1 --server {address}" in said
        assert ask(address, f"{API}/jobs/1").json()["job"]["status"] == "queued"


@pytest.mark.parametrize("own", [False, True], ids=["a task of the server", "a file of this machine"])
def test_a_server_optimizes_on_finite_inputs_what_is_named_so(store, tmp_path, own, serving, started):
    (tmp_path / "op.py").write_text(OP)
    op, named = (
        (str(tmp_path / "op.py"), "local/op.finite") if own else ("starter/gelu_tanh", "starter.finite/gelu_tanh")
    )
    with serving("--no-worker") as (address, _):
        process = started("optimize", op, "--domain", "finite", "--server", address)
        while "waiting for a worker" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        task = ask(address, f"{API}/jobs/1").json()["job"]["task"]
        assert f"{task['suite']}/{task['name']}" == named
        suite, _, name = named.partition("/")
        assert ask(address, f"{API}/tasks/{suite}/{name}").json()["source"].endswith('DOMAIN = "finite"\n')
        assert named in ask(address, f"/tasks/{suite}/{name}").text


def test_what_only_the_server_may_set_is_refused_here(tmp_path, kernelwright):
    op = tmp_path / "op.py"
    op.write_text(OP)
    done = kernelwright("optimize", str(op), "--server", "http://127.0.0.1:9", "--image", "x")
    assert (done.returncode, "--image" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("server", "status", "words"),
    [
        ("http://127.0.0.1:9", 3, "does not answer"),
        ("ftp://host", 2, "give an address"),
        ("nonsense", 2, "give an address"),
        ("http://user:pw@host", 2, "KERNELWRIGHT_TOKEN"),
    ],
)
def test_a_server_that_is_none_is_one_clear_line(server, status, words, kernelwright):
    done = kernelwright("jobs", "list", "--server", server)
    assert done.returncode == status
    assert words in done.stderr
    assert "pw@" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_token_is_sent_from_the_setting_and_its_lack_is_explained(store, monkeypatch, kernelwright, serving):
    _, secret = create_token(store, name="ada", role="viewer")
    with serving("--no-worker", "--login") as (address, _):
        monkeypatch.setenv("KERNELWRIGHT_SERVER", address)
        without = kernelwright("jobs", "list")
        assert (without.returncode, "set KERNELWRIGHT_TOKEN" in without.stderr) == (3, True)
        monkeypatch.setenv("KERNELWRIGHT_TOKEN", secret)
        assert kernelwright("jobs", "list", "--json").returncode == 0
        refused = kernelwright("jobs", "cancel", "1")
        assert (refused.returncode, "role" in refused.stderr) == (2, True)


def test_an_op_is_optimized_through_a_server_with_its_own_worker(tmp_path, monkeypatch, kernelwright, serving):
    op, out = tmp_path / "op.py", tmp_path / "best.py"
    op.write_text(OP.replace("torch.randn(8)", "torch.randn(128, 512)"))
    monkeypatch.setenv("KERNELWRIGHT_SANDBOX", "process")
    monkeypatch.setenv("KERNELWRIGHT_MEASURE_S", "0.2")
    monkeypatch.setenv("KERNELWRIGHT_BASELINES", "eager")
    with serving() as (address, _):
        monkeypatch.delenv("KERNELWRIGHT_SANDBOX")
        done = kernelwright("optimize", str(op), "--rounds", "1", "--out", str(out), "--json", "--server", address)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["schema"], printed["best"]["verdict"]) == ("kernelwright.job/1", "passed")
    assert printed["kernel"] == str(out)
    assert out.read_text().startswith("# Written by Kernelwright")
    assert (tmp_path / "best.report.md").is_file() or (tmp_path / "report.md").is_file()
    assert "round 1/1" in done.stderr
