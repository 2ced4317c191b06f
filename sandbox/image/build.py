"""Makes an image of sandboxes by its recipe; nothing of this host gets into it."""

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import docker
from docker.errors import APIError, ImageNotFound
from docker.models.containers import Container
from docker.types import Mount

from sandbox.base import SandboxUnavailable
from sandbox.docker.engine import connect
from sandbox.image.base import Base, make_base
from sandbox.image.inputs import collect_inputs
from sandbox.image.recipe import ImageRecipe


def has_image(client: docker.DockerClient, tag: str) -> bool:
    """Whether the daemon has the image."""
    return _image_id(client, tag) is not None


def _image_id(client: docker.DockerClient, tag: str) -> str | None:
    try:
        return str(client.images.get(tag).id)
    except ImageNotFound:
        return None


def build_image(
    recipe: ImageRecipe,
    *,
    base: Base = "auto",
    wheels: Path | None = None,
    force: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> str:
    """Make the image unless it is there, and return its tag. Takes 2-4 minutes and about 3.5 GB of disk.

    An image that this one is made on is made first, unless it is there. `wheels` is a folder searched for wheels beside
    what pip is configured to use. `progress` gets one line a step.

    Raises:
        SandboxUnavailable: no daemon, no base, or a package that cannot be had; says what to do.
    """
    with contextlib.closing(connect(timeout_s=900)) as client:
        tag = recipe.tag
        if not force and has_image(client, tag):
            progress(f"{tag} is already there")
            return tag
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kernelwright-image-") as scratch:
            inputs = Path(scratch)
            collect_inputs(recipe, inputs, wheels=wheels, progress=progress)
            if recipe.base is None:
                base_name = make_base(client, base, progress)
            else:
                base_name = build_image(recipe.base, base=base, wheels=wheels, progress=progress)
            before = _image_id(client, tag)
            _install_and_commit(client, base_name, inputs, tag, progress)
        if before is not None and before != _image_id(client, tag):
            with contextlib.suppress(APIError):  # a container still uses it
                client.images.remove(before)
        progress(f"{tag} made in {time.monotonic() - started:.0f} s")
        return tag


def _install_and_commit(
    client: docker.DockerClient, base_name: str, inputs: Path, tag: str, progress: Callable[[str], None]
) -> None:
    """Run the install script in a container of the base and commit it: a mount, unlike COPY, leaves nothing behind."""
    container = client.containers.create(
        base_name,
        ["/bin/bash", "/mnt/install.sh"],
        mounts=[Mount("/mnt", str(inputs), type="bind", read_only=True)],  # `volumes` would make one of the image, too
        network_mode="host",
        init=True,
        labels={"kernelwright": "build"},
    )
    try:
        container.start()
        _follow(container, progress)
        progress("committing the image")
        repository, version = tag.split(":")
        container.commit(
            repository=repository,
            tag=version,
            changes=["CMD python3", f"LABEL kernelwright.base={base_name}"],
        )
    except APIError as error:
        raise SandboxUnavailable(
            f"The Docker daemon failed while making {tag} ({error.explanation}).", "See the daemon's log."
        ) from error
    finally:
        container.remove(force=True, v=True)


def _follow(container: Container, progress: Callable[[str], None]) -> None:
    """Report the script's steps as they come and wait for its end."""
    last_lines: list[str] = []
    rest = ""
    for chunk in container.logs(stream=True, follow=True):
        *lines, rest = (rest + chunk.decode("utf-8", "replace")).split("\n")
        for line in lines:
            last_lines = [*last_lines[-7:], line.rstrip()]
            if line.startswith("step: "):
                progress(line.removeprefix("step: "))
    status = container.wait()["StatusCode"]
    if status != 0:
        raise SandboxUnavailable(
            "The image could not be made; the last lines were:\n  " + "\n  ".join(last_lines) + "\n",
            "Check that Debian's mirror is reachable from this host (apt-get update) and that the disk has 8 GB free.",
        )
