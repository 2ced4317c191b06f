"""Fixtures for all tests: sandboxes that are really there, and an environment that is not the user's."""

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from db.engine import open_store
from db.store import Store
from evaluator.platforms import load_platform
from evaluator.platforms.gpu.driver import gpu_at
from evaluator.referee.protocol.gpu_checks import toolkit, triton_package
from sandbox.base import Sandbox, SandboxUnavailable
from sandbox.docker.sandbox import DockerSandbox
from sandbox.process.sandbox import ProcessSandbox
from tests.support import server_process
from tests.support.forked_commands import CommandServer
from tests.support.new_stores import open_new_store
from tests.support.postgres import NoPostgres, Postgres, opened
from tests.support.sandboxes import SandboxOf
from tests.support.shared_container import SharedContainerSandbox

_LEFT_OUT = {  # markers and what the user has said about them
    marker: f"{variable}=0"
    for marker, variable in (
        ("docker", "KERNELWRIGHT_TEST_DOCKER"),
        ("postgres", "KERNELWRIGHT_TEST_POSTGRES"),
        ("browser", "KERNELWRIGHT_TEST_BROWSER"),
        ("nvrtc", "KERNELWRIGHT_TEST_NVRTC"),
        ("triton", "KERNELWRIGHT_TEST_TRITON"),
    )
    if os.environ.get(variable) == "0"
}
_NEEDS_GPU = os.environ.get("KERNELWRIGHT_TEST_GPU") == "1"  # its tests fail without one
_POSTGRES_URL = os.environ.get("KERNELWRIGHT_TEST_POSTGRES_URL")


def pytest_configure() -> None:
    """Set what holds for the whole process.

    Each of the processes that run tests side by side is confined to a core, and so are the sandboxes that it starts:
    threads of evaluations that share cores wait for each other, spinning, and one then takes four times as long. A
    shell starts background jobs with SIGINT ignored, and so would every process be that tests interrupt.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.set_threshold(10_000, 20, 50)
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is not None:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def every_core() -> Iterator[None]:
    """For tests of what depends on there being several cores: the test may use all, as where it runs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    yield
    os.sched_setaffinity(0, before)


def pytest_collection_finish(session: pytest.Session) -> None:
    """See that tests of a group, which share what takes long to make, run in one process.

    What has been imported by now stays. Looking through it for garbage took a tenth of the processors' time.
    """
    gc.collect()
    gc.freeze()
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") is not None and "@" not in item.nodeid:
                pytest.exit(f"{item.nodeid}: pytest-xdist does not keep groups together with this version of pytest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need Docker, PostgreSQL, Chromium or a compiler for GPUs are skipped only where the user says so.

    Those that need a GPU are skipped where there is none, which few hosts have.
    """
    without_gpu = not _NEEDS_GPU and gpu_at(0) is None
    for item in items:
        if without_gpu and item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA driver answers for a GPU: never run here"))
        for marker, reason in _LEFT_OUT.items():
            if item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def measured_devices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what is measured of this machine for models, once for all tests."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "devices"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(autouse=True)
def isolated_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, measured_devices: Path
) -> Path:
    """No setting of the user's reaches a test, and no test touches the user's data folder; returns the test's own."""
    for name in list(os.environ):
        if name.startswith("KERNELWRIGHT_"):
            monkeypatch.delenv(name)
    data_dir = tmp_path_factory.mktemp("data")
    (data_dir / "devices").symlink_to(measured_devices)
    monkeypatch.setenv("KERNELWRIGHT_DATA_DIR", str(data_dir))
    return data_dir


@pytest.fixture(scope="session")
def gpu_compiler() -> Path:
    """Where NVIDIA's compiler lies."""
    place = toolkit()
    if place is None:
        pytest.fail("NVIDIA's compiler is not installed: make cuda (or set KERNELWRIGHT_TEST_NVRTC=0)", pytrace=False)
    return place


@pytest.fixture(scope="session")
def triton_installed() -> Path:
    """Where Triton lies."""
    place = triton_package()
    if place is None:
        pytest.fail("Triton is not installed: make cuda (or set KERNELWRIGHT_TEST_TRITON=0)", pytrace=False)
    return place


@pytest.fixture(scope="session")
def docker_sandbox() -> Iterator[DockerSandbox]:
    try:
        sandbox = DockerSandbox(load_platform("cpu").image().tag)
    except SandboxUnavailable as error:
        pytest.fail(f"{error.problem} {error.remedy} (or set KERNELWRIGHT_TEST_DOCKER=0)", pytrace=False)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def sandbox_of(docker_sandbox: DockerSandbox) -> Iterator[SandboxOf]:
    """A sandbox of the image of a platform, by the platform's name."""
    with contextlib.ExitStack() as opened_ones:
        known = {load_platform("cpu").image().tag: docker_sandbox}

        def sandbox(platform: str) -> DockerSandbox:
            tag = load_platform(platform).image().tag
            if tag not in known:
                try:
                    known[tag] = opened_ones.enter_context(contextlib.closing(DockerSandbox(tag)))
                except SandboxUnavailable as error:
                    pytest.fail(f"{error.problem} {error.remedy} --platform {platform}", pytrace=False)
            return known[tag]

        yield sandbox


@pytest.fixture(scope="session")
def shared_docker_sandbox(docker_sandbox: DockerSandbox) -> Iterator[SharedContainerSandbox]:
    """For evaluations whose candidates leave their container as it was: one container for many."""
    with contextlib.closing(SharedContainerSandbox(docker_sandbox)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def shared_riscv_sandbox(sandbox_of: SandboxOf) -> Iterator[SharedContainerSandbox]:
    """The same for platforms riscv and arm64, which share an image."""
    with contextlib.closing(SharedContainerSandbox(sandbox_of("riscv"))) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def shared_opencl_sandbox(sandbox_of: SandboxOf) -> Iterator[SharedContainerSandbox]:
    """The same for platform opencl."""
    with contextlib.closing(SharedContainerSandbox(sandbox_of("opencl"))) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def cuda_sandbox(sandbox_of: SandboxOf) -> DockerSandbox:
    """A container for each evaluation on platform cuda."""
    return sandbox_of("cuda")


@pytest.fixture(scope="session")
def shared_cuda_sandbox(cuda_sandbox: DockerSandbox) -> Iterator[SharedContainerSandbox]:
    """One container for many of them."""
    with contextlib.closing(SharedContainerSandbox(cuda_sandbox)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def hip_sandbox(sandbox_of: SandboxOf) -> DockerSandbox:
    """A container for each evaluation on platform hip."""
    return sandbox_of("hip")


@pytest.fixture(scope="session")
def shared_hip_sandbox(hip_sandbox: DockerSandbox) -> Iterator[SharedContainerSandbox]:
    """One container for many of them."""
    with contextlib.closing(SharedContainerSandbox(hip_sandbox)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def command_server() -> Iterator[CommandServer]:
    """Starts commands as processes of their own, without each importing for seconds."""
    with contextlib.closing(CommandServer()) as server:
        yield server


@pytest.fixture(scope="session")
def kernelwright(command_server: CommandServer) -> Callable[..., Any]:
    """Runs a command; see `server_process.kernelwright`."""
    return partial(server_process.kernelwright, command_server)


@pytest.fixture(scope="session")
def started(command_server: CommandServer) -> Callable[..., Any]:
    """Starts a command; see `server_process.started`."""
    return partial(server_process.started, command_server)


@pytest.fixture(scope="session")
def serving(command_server: CommandServer) -> Callable[..., Any]:
    """Starts a server; see `server_process.serving`."""
    return partial(server_process.serving, command_server)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(opened(_POSTGRES_URL))
        except NoPostgres as error:
            pytest.fail(f"{error} (or set KERNELWRIGHT_TEST_POSTGRES=0)", pytrace=False)
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> Iterator[str]:
    """A database with the newest tables and nothing in them, to be copied: faster than running all migrations."""
    name = postgres.create()
    open_store(postgres.url_of(name)).close()
    yield name
    postgres.drop(name)


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """A database of the test's own on PostgreSQL, empty."""
    with postgres.database() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of both kinds in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store, of both kinds in turn."""
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            opened_store = open_new_store(tmp_path / "store.db")
        else:
            server: Postgres = request.getfixturevalue("postgres")
            opened_store = open_store(
                stack.enter_context(server.database(request.getfixturevalue("postgres_template")))
            )
        stack.callback(opened_store.close)
        yield opened_store


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
