"""The base of the image: Debian 12 from a registry or, where no registry answers, made here with debootstrap."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import docker
from docker.errors import APIError, DockerException

from sandbox.base import SandboxUnavailable
from sandbox.image.inputs import debian_mirror

REGISTRY_BASE = "debian:bookworm-slim"
DEBOOTSTRAP_BASE = "kernelwright-debian:bookworm"
Base = Literal["auto", "registry", "debootstrap"]


def make_base(client: docker.DockerClient, base: Base, progress: Callable[[str], None]) -> str:
    """The name of a local Debian 12 image; `auto` asks the registry first.

    Raises:
        SandboxUnavailable: neither way works; the remedy names what is missing.
    """
    refusal = ""
    if base != "debootstrap":
        try:
            progress(f"pulling {REGISTRY_BASE}")
            client.images.pull(REGISTRY_BASE)
        except DockerException as error:
            refusal = " ".join(str(getattr(error, "explanation", None) or error).split())[:200]
            if base == "registry":
                raise SandboxUnavailable(
                    f"The registry gives no {REGISTRY_BASE} ({refusal}).",
                    "Check the daemon's network and proxy, or build with --base debootstrap as root.",
                ) from error
            progress("no registry answers; making the base with debootstrap")
        else:
            return REGISTRY_BASE
    _require_debootstrap(refusal)
    _debootstrap(client, progress)
    return DEBOOTSTRAP_BASE


def _require_debootstrap(refusal: str) -> None:
    before = f"No registry answers ({refusal}), and " if refusal else ""
    if shutil.which("debootstrap", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin") is None:
        raise SandboxUnavailable(
            f"{before}debootstrap is not installed.",
            "Install it (apt-get install debootstrap), or make a registry with debian:bookworm-slim reachable.",
        )
    if os.geteuid() != 0:
        raise SandboxUnavailable(
            f"{before}debootstrap needs root.",
            "Run this command once as root (sudo), or make a registry with debian:bookworm-slim reachable.",
        )


def _debootstrap(client: docker.DockerClient, progress: Callable[[str], None]) -> None:
    mirror = debian_mirror()
    with tempfile.TemporaryDirectory(prefix="kernelwright-base-") as scratch:
        root = Path(scratch) / "root"
        progress(f"debootstrap of Debian 12 from {mirror or 'its default mirror'} (about a minute)")
        made = subprocess.run(
            ["/usr/sbin/debootstrap", "--variant=minbase", "bookworm", str(root), *([mirror] if mirror else [])],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            last = (made.stdout + made.stderr).strip().splitlines()[-1:]
            raise SandboxUnavailable(
                f"debootstrap from {mirror or 'its default mirror'} failed: {' '.join(last)[:300]}",
                "Check that this mirror is reachable from here.",
            )
        progress("importing the base into Docker")
        repository, tag = DEBOOTSTRAP_BASE.split(":")
        tar = ["tar", "-C", str(root), "--exclude=./var/cache/apt/archives/*", "--exclude=./dev/*", "-c", "."]
        with subprocess.Popen(tar, stdout=subprocess.PIPE) as packing:
            try:
                client.api.import_image_from_data(packing.stdout, repository=repository, tag=tag)
            except APIError as error:
                raise SandboxUnavailable(
                    f"The Docker daemon refuses the base ({error.explanation}).", "See the daemon's log."
                ) from error
