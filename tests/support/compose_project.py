"""Starts what compose.yaml describes, from images made here: the file is what is tested.

The base is the one that the sandbox image was made from, and the packages are downloaded by this host's pip, so that no
registry is needed and no proxy, index or certificate of this host gets into an image.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound
from docker.models.containers import Container

from tests.support.cpu_platform import IMAGE

ROOT = Path(__file__).parents[2]
SERVICE_IMAGE = "kernelwright-service:test"
POSTGRES_IMAGE = "kernelwright-postgres:test"
_FILES = ("Dockerfile", ".dockerignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE")


def build_images(client: docker.DockerClient, wheels: Path, context: Path) -> None:
    """Make both images, by way of a new folder `context`; quick where nothing has changed since the last time."""
    base = client.images.get(IMAGE.tag).labels["kernelwright.base"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    _download_wheels(project, wheels)
    context.mkdir()
    for name in _FILES:
        shutil.copy(ROOT / name, context)
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(ROOT / package, context / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(wheels, context / "wheels")
    _build(client, SERVICE_IMAGE, context, {"BASE": base, "PIP_NO_INDEX": "1"})
    _build(client, POSTGRES_IMAGE, ROOT / "tests/images/postgres", {"BASE": base})


def _download_wheels(project: dict[str, Any], wheels: Path) -> None:
    whole = wheels / "whole"
    if whole.exists():
        return
    command = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "-d", str(wheels)]
    command += ["-c", str(ROOT / "constraints.txt"), *project["build-system"]["requires"]]
    subprocess.run([*command, *project["project"]["dependencies"]], check=True)
    whole.touch()


def _build(client: docker.DockerClient, tag: str, context: Path, arguments: dict[str, str]) -> None:
    before = _image_id(client, tag)
    proxies = {f"{scheme}_proxy": url for scheme, url in urllib.request.getproxies().items()}
    made, _ = client.images.build(
        path=str(context), tag=tag, buildargs=arguments | proxies, network_mode="host", rm=True, forcerm=True
    )
    if before is not None and before != made.id:
        with contextlib.suppress(APIError):  # something still uses it
            client.images.remove(before)


def _image_id(client: docker.DockerClient, tag: str) -> str | None:
    try:
        return str(client.images.get(tag).id)
    except ImageNotFound:
        return None


@dataclass(frozen=True)
class Composed:
    """What runs: `call` asks its API with an operator's token."""

    client: docker.DockerClient
    project: str
    environment: dict[str, str]
    files: tuple[Path, ...]
    url: str

    def compose(self, *arguments: str, timeout_s: float = 120) -> str:
        """Run Docker Compose; its standard output."""
        files = [word for file in self.files for word in ("-f", str(file))]
        command = [*_program(), "-p", self.project, *files, *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def container(self, service: str) -> Container:
        """The container of a service, whether it runs or not."""
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        (found,) = [
            each
            for each in self.client.containers.list(all=True, ignore_removed=True, filters={"label": labels})
            if each.labels.get("com.docker.compose.oneoff") == "False"
        ]
        return found

    def wait_for_health(self, service: str) -> None:
        """Wait until the service's own check says that it is well."""
        wait_until(lambda: self.container(service).attrs["State"].get("Health", {}).get("Status") == "healthy", 60)

    def make_token(self) -> str:
        """An operator's token, made as an operator would."""
        made = self.compose("run", "--rm", "-T", "server", "tokens", "create", "tester", "--role", "operator", "--json")
        return str(json.loads(made)["secret"])


def _program() -> list[str]:
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    assert shutil.which("docker-compose") is not None, "no Docker Compose; on Debian: apt-get install docker-compose"
    return ["docker-compose"]


@contextlib.contextmanager
def composed(client: docker.DockerClient, folder: Path, *, measure_s: float) -> Iterator[Composed]:
    """compose.yaml's own project, with short measurements; everything of it is removed in the end."""
    secrets = folder / "secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "database_password").write_text(f"{os.urandom(24).hex()}\n")
    quick = folder / "quick.json"  # JSON is YAML
    short = {"environment": {"KERNELWRIGHT_MEASURE_S": str(measure_s), "KERNELWRIGHT_BASELINES": "eager"}}
    quick.write_text(json.dumps({"services": {"server": short, "worker": short}}))
    port = _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELWRIGHT_")} | {
        "KERNELWRIGHT_IMAGE": SERVICE_IMAGE,
        "KERNELWRIGHT_POSTGRES_IMAGE": POSTGRES_IMAGE,
        "KERNELWRIGHT_SECRETS": str(secrets),
        "KERNELWRIGHT_PUBLISH": f"127.0.0.1:{port}",
    }
    project = f"kernelwright-test-{os.getpid()}"
    files = (ROOT / "compose.yaml", quick)
    running = Composed(client, project, environment, files, f"http://127.0.0.1:{port}/api/v1")
    try:
        yield running
    finally:
        running.compose("down", "-v", "-t", "15")


def ask(url: str, token: str, body: object = None) -> Any:
    """What the API answers: a GET, or a POST of `body`."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.loads(answer.read())


def wait_until(holds: Callable[[], object], seconds: float) -> float:
    """Wait until something holds; how long it took."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            if holds():
                return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        time.sleep(0.25)


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
