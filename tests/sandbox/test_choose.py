"""The choice of a sandbox: Docker first, `process` by itself for one's own code only, and words that help."""

from pathlib import Path

import docker
import pytest

import sandbox.choose
import sandbox.process.sandbox
from evaluator.platforms import load_platform
from sandbox.base import SandboxUnavailable
from sandbox.choose import choose_sandbox
from sandbox.docker.engine import connect
from sandbox.docker.sandbox import DockerSandbox
from sandbox.doctor import examine
from sandbox.process.sandbox import ProcessSandbox
from tests.support.cpu_platform import IMAGE

CPU = {"image": IMAGE.tag, "programs": load_platform("cpu").host_programs()}


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")


@pytest.mark.docker
@pytest.mark.parametrize("name", [None, "docker"])
@pytest.mark.parametrize("own_code_only", [True, False])
def test_docker_comes_first(docker_sandbox: DockerSandbox, name: str | None, own_code_only: bool) -> None:
    chosen = choose_sandbox(name, own_code_only=own_code_only, image=IMAGE.tag)
    assert isinstance(chosen, DockerSandbox)
    chosen.close()


def test_process_is_there_for_the_asking() -> None:
    assert choose_sandbox("process", own_code_only=False, image=IMAGE.tag).name == "process"


@pytest.mark.usefixtures("no_docker")
def test_without_docker_own_code_runs_as_a_process() -> None:
    assert choose_sandbox(None, own_code_only=True, image=IMAGE.tag).name == "process"


@pytest.mark.usefixtures("no_docker")
def test_without_docker_foreign_code_runs_nowhere() -> None:
    with pytest.raises(SandboxUnavailable, match="does not answer") as caught:
        choose_sandbox(None, own_code_only=False, image=IMAGE.tag)
    assert "--sandbox process" in caught.value.remedy


@pytest.mark.usefixtures("no_docker")
def test_docker_that_was_asked_for_is_never_replaced() -> None:
    with pytest.raises(SandboxUnavailable, match="does not answer"):
        choose_sandbox("docker", own_code_only=True, image=IMAGE.tag)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="docker and process"):
        choose_sandbox("podman", own_code_only=True, image=IMAGE.tag)


@pytest.mark.docker
def test_a_missing_image_says_how_to_make_it() -> None:
    with pytest.raises(SandboxUnavailable, match="kernelwright sandbox build"):
        choose_sandbox("docker", own_code_only=True, image="kernelwright-cpu:never-made")


def test_without_torch_the_process_sandbox_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.process.sandbox, "find_spec", lambda name: None)
    with pytest.raises(SandboxUnavailable, match=r"kernelwright\[process\]"):
        ProcessSandbox()


def test_an_interpreter_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no Python"):
        ProcessSandbox(tmp_path / "python")


def test_every_finding_of_the_doctor_that_is_not_ok_has_a_remedy(tmp_path: Path, no_docker: None) -> None:
    findings = {finding.name: finding for finding in examine(tmp_path / "not" / "yet", **CPU)}
    assert findings["docker daemon"].status == "optional"
    assert findings["process sandbox"].status == "ok"
    assert findings["cores"].status in ("ok", "missing")
    assert [finding.name for finding in findings.values() if finding.status != "ok" and not finding.remedy] == []


def test_the_doctor_misses_a_sandbox_only_when_there_is_none(
    tmp_path: Path, no_docker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox.process.sandbox, "find_spec", lambda name: None)
    findings = {finding.name: finding for finding in examine(tmp_path, **CPU)}
    assert findings["Docker sandbox"].status == "missing"
    assert findings["process sandbox"].status == "missing"


@pytest.mark.docker
def test_a_daemon_that_answers_is_used() -> None:
    client = connect()
    assert isinstance(client, docker.DockerClient)
    client.close()
