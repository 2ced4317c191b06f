"""Fixtures for all tests: sandboxes that are really there, and an environment that is not the user's."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.base import Sandbox, SandboxUnavailable
from sandbox.docker import DockerSandbox
from sandbox.process import ProcessSandbox

_WITHOUT_DOCKER = os.environ.get("KERNELWRIGHT_TEST_DOCKER") == "0"


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and so would every process be that tests interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Docker's tests are skipped only where the user has said so."""
    if _WITHOUT_DOCKER:
        for item in items:
            if item.get_closest_marker("docker") is not None:
                item.add_marker(pytest.mark.skip(reason="KERNELWRIGHT_TEST_DOCKER=0"))


@pytest.fixture(autouse=True)
def isolated_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No setting of the user's reaches a test, and no test touches the user's data folder; returns the test's own."""
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    data_dir = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("KERNELWRIGHT_DATA_DIR", str(data_dir))
    return data_dir


@pytest.fixture(scope="session")
def docker_sandbox() -> Iterator[DockerSandbox]:
    try:
        sandbox = DockerSandbox()
    except SandboxUnavailable as error:
        pytest.fail(f"{error.problem} {error.remedy} (or set KERNELWRIGHT_TEST_DOCKER=0)", pytrace=False)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def process_sandbox() -> ProcessSandbox:
    try:
        return ProcessSandbox()
    except SandboxUnavailable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def bare_process_sandbox() -> ProcessSandbox:
    """The process sandbox as it is where the host permits no namespaces."""
    try:
        # Root's code runs as an unprivileged user then, who must be able to reach the interpreter.
        return ProcessSandbox(Path("/usr/bin/python3") if os.geteuid() == 0 else None, namespaces=False)
    except SandboxUnavailable as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "process"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Both sandboxes in turn."""
    return request.getfixturevalue(f"{request.param}_sandbox")


@pytest.fixture(params=[pytest.param("docker", marks=pytest.mark.docker), "process", "bare_process"])
def any_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Both sandboxes, and the process sandbox without namespaces too."""
    return request.getfixturevalue(f"{request.param}_sandbox")
