"""The examination of this machine for sandboxes: what they need, what is missing, and how to get it."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from sandbox.base import Promise, SandboxUnavailable
from sandbox.docker.engine import connect
from sandbox.docker.sandbox import DockerSandbox
from sandbox.image.build import has_image
from sandbox.process.programs import HostPackage, HostProgram
from sandbox.process.sandbox import ProcessSandbox

Status = Literal["ok", "missing", "optional"]
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_GIGABYTE = 1024**3
_BUILD = "kernelwright sandbox build"
_ENOUGH_DISK_GB, _ENOUGH_MEMORY_GB, _ENOUGH_PROCESSORS = 8, 4, 2


@dataclass(frozen=True)
class Finding:
    """The result for one thing. The status `optional` means that it is missing and not required."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def examine(data_dir: Path, *, image: str, programs: Sequence[HostProgram]) -> list[Finding]:
    """Examine this machine. No container is started and nothing is changed.

    Args:
        data_dir: where the disk is measured.
        image: the tag of the image that the Docker sandbox uses.
        programs: the programs that candidates call in the process sandbox.
    """
    docker = _try("Docker sandbox", lambda: _describe_docker(image))
    process = _try("process sandbox", _describe_process)
    either = "ok" in (docker.status, process.status)
    return [
        Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}"),
        *(
            _program(
                each.name,
                each.purpose,
                each.remedy,
                needed=each.required and docker.status != "ok",
                places=each.places,
            )
            for each in programs
        ),
        _program("make", "runs make setup, demo and test", "apt-get install make", needed=False),
        _daemon(),
        _image(image),
        _program("debootstrap", "makes the image's base where no registry answers", "apt-get install debootstrap"),
        _torch(),
        docker if docker.status == "ok" or not either else _optional(docker),
        process if process.status == "ok" or not either else _optional(process),
        _disk(data_dir),
        _memory(),
        _processors(),
    ]


@dataclass(frozen=True)
class Readiness:
    """Whether candidates of a platform can run here: in its image, or by the host's programs in the process sandbox.

    Attributes:
        image: whether the image of its sandboxes is there.
        programs: what the host has of the programs that its candidates need in the process sandbox.
        packages: what the host has of the packages that its sandboxes are shown. Candidates run without those that are
            `optional`.
    """

    image: Finding
    programs: tuple[Finding, ...]
    packages: tuple[Finding, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether candidates can run in one of the sandboxes."""
        return (self.image.status == "ok" or not self.missing) and all(
            found.status != "missing" for found in self.packages
        )

    @property
    def missing(self) -> list[Finding]:
        """The programs that the host lacks."""
        return [found for found in self.programs if found.status != "ok"]

    @property
    def absent(self) -> list[Finding]:
        """The packages that the host lacks, those that candidates can do without among them."""
        return [found for found in self.packages if found.status != "ok"]


def examine_platform(
    name: str, image: str, programs: Sequence[HostProgram], packages: Sequence[HostPackage] = ()
) -> Readiness:
    """Examine what the candidates of a platform need. It starts no container.

    Args:
        name: the platform.
        image: the tag of the image of its sandboxes.
        programs: what its candidates call in the process sandbox.
        packages: what its sandboxes are shown of the host's Python.
    """
    found = _image(image)
    remedy = f"{found.remedy} --platform {name}" if found.remedy == _BUILD else found.remedy
    return Readiness(
        Finding(found.name, found.status, found.detail, remedy),
        tuple(_program(each.name, each.purpose, each.remedy, needed=True) for each in programs if each.required),
        tuple(map(_package, packages)),
    )


def _package(asked: HostPackage) -> Finding:
    if asked.present:
        return Finding(asked.name, "ok", "installed")
    return Finding(
        asked.name, "missing" if asked.required else "optional", f"not installed; {asked.purpose}", asked.remedy
    )


def _try(name: str, describe: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", describe())
    except SandboxUnavailable as error:
        return Finding(name, "missing", error.problem, error.remedy)


def _describe_docker(image: str) -> str:
    with contextlib.closing(DockerSandbox(image)) as sandbox:
        return f"image {sandbox.image}"


def _describe_process() -> str:
    sandbox = ProcessSandbox()
    missing = [promise.value for promise in Promise if promise not in sandbox.promises]
    return f"{sandbox.describe()['isolation']}; does not promise: {', '.join(missing) or 'nothing is left out'}"


def _optional(finding: Finding) -> Finding:
    return Finding(finding.name, "optional", finding.detail, finding.remedy)


def _program(name: str, purpose: str, remedy: str, *, needed: bool = False, places: tuple[str, ...] = ()) -> Finding:
    others = [str(folder) for place in places for folder in sorted(Path("/").glob(place), reverse=True)]
    search = [os.defpath, _SBIN, "/usr/local/bin", str(Path(sys.executable).parent), *others]
    path = shutil.which(name, path=os.pathsep.join(search))
    if path is None:
        return Finding(name, "missing" if needed else "optional", f"not found; {purpose}", remedy)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    first_line = next(iter(answer.stdout.splitlines()), "")
    return Finding(name, "ok", first_line if answer.returncode == 0 and first_line else path)


def _daemon() -> Finding:
    def describe() -> str:
        with contextlib.closing(connect()) as client:
            info = client.info()
        return f"{info['ServerVersion']}, cgroup version {info.get('CgroupVersion', '?')}, {info['Driver']}"

    return _as_optional(_try("docker daemon", describe))


def _image(image: str) -> Finding:
    def describe() -> str:
        with contextlib.closing(connect()) as client:
            if not has_image(client, image):
                raise SandboxUnavailable(f"{image} is not there", _BUILD)
        return image

    return _as_optional(_try("image", describe))


def _as_optional(finding: Finding) -> Finding:
    return _optional(finding) if finding.status == "missing" else finding


def _torch() -> Finding:
    try:
        return Finding("torch", "ok", version("torch"))
    except PackageNotFoundError:
        return Finding(
            "torch", "optional", "not installed; the process sandbox needs it", "pip install 'kernelwright[process]'"
        )


def _disk(data_dir: Path) -> Finding:
    folder = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    free_gb = shutil.disk_usage(folder).free / _GIGABYTE
    status: Status = "ok" if free_gb >= _ENOUGH_DISK_GB else "missing"
    remedy = (
        "" if status == "ok" else f"free {_ENOUGH_DISK_GB} GB; the image takes 3.5 GB and its making {_ENOUGH_DISK_GB}"
    )
    return Finding("free disk", status, f"{free_gb:.1f} GB at {folder}", remedy)


def _memory() -> Finding:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free_gb = int(lines["MemAvailable"].split()[0]) * 1024 / _GIGABYTE
    status: Status = "ok" if free_gb >= _ENOUGH_MEMORY_GB else "missing"
    remedy = "" if status == "ok" else f"free {_ENOUGH_MEMORY_GB} GB"
    return Finding("free memory", status, f"{free_gb:.1f} GB", remedy)


def _processors() -> Finding:
    count = len(os.sched_getaffinity(0))
    status: Status = "ok" if count >= _ENOUGH_PROCESSORS else "missing"
    remedy = "" if status == "ok" else f"timings need {_ENOUGH_PROCESSORS} processors, one of them for the kernel"
    return Finding("cores", status, str(count), remedy)
