"""compose.yaml: server, worker and PostgreSQL in containers do the work, end in good order and forget nothing."""

import contextlib
import hashlib
import json
import re
import time
from pathlib import Path

import pytest

from sandbox.base import Command, SandboxUnavailable
from sandbox.docker.container import StartedContainer
from sandbox.docker.engine import connect
from tests.support.compose_project import ROOT, ask, build_images, composed, wait_until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1200),  # first, images are made
    pytest.mark.xdist_group("compose"),
]

OP = """
import torch


def op(x):
    return torch.nn.functional.gelu(x) * 2


def get_inputs():
    return [torch.randn(512, 1024)]
"""
STOPS_WITHIN_S = 15
TAKEN_OVER_WITHIN_S = 30
DONE_WITHIN_S = 300  # others may measure on this device, too


@pytest.fixture(scope="module")
def client():
    with contextlib.closing(connect(timeout_s=600)) as found:
        yield found


@pytest.fixture(scope="module")
def service(client, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("composed")
    constraints = (ROOT / "constraints.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()

    wheels = request.config.cache.mkdir(f"wheels-{hashlib.sha256(constraints).hexdigest()[:12]}")
    build_images(client, wheels, folder / "context")
    with composed(client, folder, measure_s=0.5) as running:
        running.compose("up", "-d", "--no-build", "database")
        running.wait_for_health("database")
        yield running


@pytest.fixture(scope="module")
def token(service):
    """A token made before the server begins, which does not begin without one."""
    secret = service.make_token()
    service.compose("up", "-d", "--no-build")
    service.wait_for_health("server")
    return secret


@pytest.fixture(scope="module")
def job(service, token):
    """A job that is stopped and brought to its end."""
    return ask(f"{service.url}/jobs", token, {"source": OP, "name": "twice", "rounds": 1})["id"]


@pytest.fixture(scope="module")
def killed_job(service, token):
    """A job whose worker is killed, and that is brought to its end."""
    return ask(f"{service.url}/jobs", token, {"source": OP, "name": "again", "rounds": 1})["id"]


def status(service, token, job):
    return ask(f"{service.url}/jobs/{job}", token)["job"]["status"]


def sandboxes(client, owner_pid):
    """Containers that the process with this id on the host owns."""
    found = client.containers.list(all=True, ignore_removed=True, filters={"label": "kernelwright=1"})
    return [each for each in found if each.labels["kernelwright.owner"].startswith(f"{owner_pid}:")]


def lines(container, since=1):
    return container.logs(since=int(since)).decode().splitlines()


def wait_for_measuring(service, client, job, since=1.0):
    """The worker's process id on the host, once an evaluation that it began since then runs in a sandbox."""
    worker = service.container("worker")
    wait_until(lambda: begins(worker, job, since), DONE_WITHIN_S)
    pid = worker.attrs["State"]["Pid"]
    wait_until(lambda: sandboxes(client, pid), 20)
    return pid


def begins(worker, job, since):
    """Whether the worker has said since then that an evaluation of the job begins."""
    said = re.compile(rf'"evaluation begins".*"job": {job},')
    return any(said.search(line) for line in lines(worker, since))


def test_no_password_stands_in_a_containers_description_or_in_the_logs(service, token):
    password = (Path(service.environment["KERNELWRIGHT_SECRETS"]) / "database_password").read_text().strip()
    for name in ("database", "server", "worker"):
        container = service.container(name)
        assert password not in json.dumps(container.attrs)
        assert password not in container.logs().decode()
        assert token not in container.logs().decode()


def test_the_server_has_few_rights_and_is_published_to_this_host_alone(service, token):
    container = service.container("server")
    assert container.exec_run(["id", "-u"]).output.strip() == b"10001"
    assert container.exec_run(["touch", "/opt/kernelwright/x"]).exit_code != 0
    assert container.exec_run(["ls", "/var/run/docker.sock"]).exit_code != 0
    published = container.attrs["NetworkSettings"]["Ports"]
    assert {bind["HostIp"] for binds in published.values() for bind in binds or ()} == {"127.0.0.1"}
    for name in ("database", "server", "worker"):
        limits = service.container(name).attrs["HostConfig"]
        assert (limits["ReadonlyRootfs"], limits["CapDrop"], limits["Privileged"]) == (True, ["ALL"], False), name
        assert any("no-new-privileges" in option for option in limits["SecurityOpt"]), name
        assert limits["RestartPolicy"]["Name"] == "unless-stopped", name


def test_told_to_stop_in_the_middle_all_end_in_good_order_and_go_on_when_started_again(service, token, job, client):
    pid = wait_for_measuring(service, client, job)
    began = time.monotonic()
    service.compose("stop")
    assert time.monotonic() - began < STOPS_WITHIN_S
    assert sandboxes(client, pid) == []
    for name in ("server", "worker", "database"):
        assert service.container(name).attrs["State"]["ExitCode"] == 0, lines(service.container(name))[-5:]

    restarted = time.time()
    service.compose("up", "-d", "--no-build")
    service.wait_for_health("server")
    assert [each["id"] for each in ask(f"{service.url}/jobs", token)["jobs"]] == [job]
    wait_until(lambda: begins(service.container("worker"), job, restarted), DONE_WITHIN_S)


def test_a_worker_killed_outright_leaves_no_sandbox_and_its_job_is_taken_over(service, killed_job, client):
    pid = wait_for_measuring(service, client, killed_job)
    service.container("worker").kill()
    assert sandboxes(client, pid), "it was measuring"
    began = time.time()
    service.compose("up", "-d", "--no-build", "worker")
    wait_until(lambda: not sandboxes(client, pid), TAKEN_OVER_WITHIN_S)
    worker = service.container("worker")
    wait_until(lambda: begins(worker, killed_job, began), TAKEN_OVER_WITHIN_S)


def test_ops_submitted_to_the_server_are_optimized_by_the_worker_in_the_sandbox(service, token, job, killed_job):
    for each in (job, killed_job):
        wait_until(lambda: status(service, token, each) in ("done", "failed"), DONE_WITHIN_S)  # noqa: B023
        shown = ask(f"{service.url}/jobs/{each}", token)
        assert (shown["job"]["status"], shown["job"]["sandbox"]) == ("done", "docker"), shown
        assert shown["best"]["verdict"] == "passed"
        assert [found["verdict"] for found in shown["rounds"]] == ["passed"], "no round was paid for twice"


def test_every_log_line_is_one_json_object_and_those_of_a_job_name_it(service, token):
    for name in ("server", "worker"):
        found = [json.loads(line) for line in lines(service.container(name)) if not line.startswith("http://")]
        assert found and all({"time", "level", "logger", "message"} <= line.keys() for line in found), name
    of_jobs = [
        line for line in found if line["logger"] in ("service.worker.optimize_task", "service.worker.evaluate_task")
    ]
    assert of_jobs and all(line["job"] >= 1 for line in of_jobs)


def test_a_sandbox_whose_package_the_daemons_host_does_not_have_says_what_to_mount(client, docker_sandbox, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "package"  # as the folder of a worker whose /tmp is its own
    command = Command(elsewhere)
    with pytest.raises(SandboxUnavailable, match="mount the host's /tmp at /tmp"):
        StartedContainer(client, docker_sandbox.image, command, elsewhere)
    assert not elsewhere.exists()


def test_compose_has_no_password_of_its_own():
    text = (ROOT / "compose.yaml").read_text()
    assert not re.findall(r"^\s*\S*PASSWORD:.*$", text, re.MULTILINE)
    assert re.findall(r"^\s*\S*PASSWORD_FILE: (.*)$", text, re.MULTILINE) == ["/run/secrets/database_password"] * 2
