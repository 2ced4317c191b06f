"""The Docker sandbox: one container a command, with no network, a read-only root, bounded resources and few rights."""

import contextlib
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from docker.errors import ImageNotFound

from sandbox.base import Command, Completed, Promise, SandboxUnavailable
from sandbox.docker.container import LABEL, OWNER_LABEL, StartedContainer, explain, remove_container
from sandbox.docker.engine import ENGINE_ERRORS, connect
from sandbox.docker.warm_container import WarmContainer
from sandbox.owner import ProcessIdentity, is_gone
from sandbox.package import copy_readable


class DockerSandbox:
    """Runs each command in a container of its own."""

    name = "docker"
    promises = frozenset(Promise)

    def __init__(self, image: str) -> None:
        """`image` is a tag of the daemon, such as that of a recipe.

        Raises:
            SandboxUnavailable: the daemon does not answer or has no such image.
        """
        self._client = connect()
        self._warm_container = WarmContainer()
        self._close = weakref.finalize(self, _close, self._client.close, self._warm_container)
        self.image = image
        try:
            self._image_id = str(self._client.images.get(self.image).id)
        except ImageNotFound as error:
            raise SandboxUnavailable(
                f"Docker has no image {self.image}.",
                "Make it with: kernelwright sandbox build (for another platform than the default one: --platform NAME)",
            ) from error

    def close(self) -> None:
        """Close the connections to the daemon and remove a prepared container."""
        self._close()

    def describe(self) -> dict[str, str]:
        """Name, image with its id, and version of the engine."""
        return {
            "name": self.name,
            "image": self.image,
            "image_id": self._image_id,
            "engine": str(self._client.version()["Version"]),
        }

    def prepare(self, command: Command) -> None:
        """See `sandbox.base.Sandbox.prepare`: the container is started and waits for the command's input."""
        client, image_id = self._client, self._image_id

        def start(package: Path, idle_s: float) -> StartedContainer:
            return StartedContainer(client, image_id, command, package, idle_s=idle_s)

        self._warm_container.start(command, start)

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """See `sandbox.base.Sandbox.run`. `out_of_memory` is set if any process of the container was killed for it.

        Raises:
            SandboxUnavailable: the daemon cannot make or start the container.
            ValueError: the command's package cannot be run.
        """
        container = self._warm_container.take(command)
        if container is None:
            container = StartedContainer(self._client, self._image_id, command, copy_readable(command.package))
        try:
            return container.finish(command.stdin, on_stderr=on_stderr, cancel=cancel)
        finally:
            container.remove()


def _close(disconnect: Callable[[], None], warm_container: WarmContainer) -> None:
    try:
        warm_container.discard()
    finally:
        disconnect()


def sweep_orphans() -> int:
    """Remove the containers whose owner has died, and return how many there were.

    Raises:
        SandboxUnavailable: the daemon does not answer.
    """
    removed = 0
    try:
        with contextlib.closing(connect()) as client:
            for summary in client.api.containers(all=True, filters={"label": f"{LABEL}=1"}):
                owner = ProcessIdentity.from_label(summary["Labels"].get(OWNER_LABEL, ""))
                if owner is not None and is_gone(owner, container_runs=summary["State"] == "running"):
                    remove_container(client, summary["Id"])
                    removed += 1
    except ENGINE_ERRORS as error:
        raise SandboxUnavailable(
            f"The Docker daemon failed while containers were looked through ({explain(error)}).",
            "See the daemon's log.",
        ) from error
    return removed
