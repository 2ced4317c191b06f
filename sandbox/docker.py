"""The Docker sandbox: one container a command, with no network, a read-only root, bounded resources and few rights."""

import contextlib
import json
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound, NotFound
from docker.types import LogConfig, Ulimit

from sandbox.attach import Attached
from sandbox.base import Command, Completed, Promise, SandboxUnavailable
from sandbox.engine import ENGINE_ERRORS, connect
from sandbox.environment import COMMAND_ENVIRONMENT
from sandbox.image import image_tag
from sandbox.owner import Owner, is_gone, this_process
from sandbox.package import readable_copy
from sandbox.streams import Collected, Ended

CAPABILITIES = ("SETUID", "SETGID", "KILL", "SYS_PTRACE")
"""What the referee needs to give code other uids, to freeze and kill it, and to read its outputs."""

_LABEL = "kernelwright"
_OWNER_LABEL = "kernelwright.owner"
_SHM_BYTES = 16 * 1024 * 1024  # POSIX semaphores of multiprocessing live there
_FILES_A_MB = 256  # bound on the number of files in the scratch folder
_GRACE_S = 30  # how long the container outlives its limit where nobody is left to kill it


class DockerSandbox:
    """Runs each command in a container of its own."""

    name = "docker"
    promises = frozenset(Promise)

    def __init__(self, image: str | None = None) -> None:
        """`image` defaults to the one that `build_image` makes.

        Raises:
            SandboxUnavailable: the daemon does not answer or has no such image.
        """
        self._client = connect()
        self._close = weakref.finalize(self, self._client.close)
        self.image = image or image_tag()
        try:
            self._image_id = str(self._client.images.get(self.image).id)
        except ImageNotFound as error:
            raise SandboxUnavailable(
                f"Docker has no image {self.image}.", "Make it with: kernelwright sandbox build"
            ) from error

    def close(self) -> None:
        """Let go of the connections to the daemon."""
        self._close()

    def describe(self) -> dict[str, str]:
        """Name, image with its id, and version of the engine."""
        return {
            "name": self.name,
            "image": self.image,
            "image_id": self._image_id,
            "engine": str(self._client.version()["Version"]),
        }

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
        with readable_copy(command.package) as package:
            container = self._create(command, package)
            try:
                return self._run_created(container, command, Collected(command.limits.output_bytes, on_stderr), cancel)
            except ENGINE_ERRORS as error:
                raise SandboxUnavailable(
                    f"The Docker daemon failed while it ran a command ({_explain(error)}).",
                    "See the daemon's log, and try: kernelwright sandbox check",
                ) from error
            finally:
                _remove(self._client, container)

    def _create(self, command: Command, package: Path) -> str:
        limits = command.limits
        api = self._client.api
        host_config = api.create_host_config(
            network_mode="none",
            dns=["127.0.0.1"],  # else the host's own name servers would be shown inside
            read_only=True,
            tmpfs={
                "/tmp": (  # noqa: S108 the container's own
                    f"rw,exec,nosuid,nodev,mode=1777,size={limits.disk_mb}m,nr_inodes={limits.disk_mb * _FILES_A_MB}"
                )
            },
            binds={str(package): {"bind": f"/harness/{package.name}", "mode": "ro"}},
            mem_limit=f"{limits.memory_mb}m",
            memswap_limit=f"{limits.memory_mb}m",
            pids_limit=limits.processes,
            nano_cpus=int(limits.cpus * 1e9) if limits.cpus is not None else None,
            shm_size=_SHM_BYTES,
            cap_drop=["ALL"],
            cap_add=list(CAPABILITIES),
            security_opt=["no-new-privileges:true"],
            ulimits=[Ulimit(name="core", soft=0, hard=0)],
            log_config=LogConfig(type=LogConfig.types.NONE),
            init=True,
            ipc_mode="private",
        )
        seconds = str(int(limits.wall_s + _GRACE_S))
        try:
            created: dict[str, Any] = api.create_container(
                self._image_id,
                ["/usr/local/bin/kernelwright-start", seconds, package.name, *command.args],
                host_config=host_config,
                environment={**COMMAND_ENVIRONMENT, "PYTHONPATH": "/harness", "HOME": "/tmp", "TMPDIR": "/tmp"},  # noqa: S108
                user="0:0",
                working_dir="/",
                hostname="sandbox",
                stdin_open=True,
                labels={_LABEL: "1", _OWNER_LABEL: this_process().to_label(), "kernelwright.command": command.label},
            )
        except ENGINE_ERRORS as error:
            raise SandboxUnavailable(
                f"The Docker daemon cannot make a container ({_explain(error)}).",
                "See: kernelwright doctor",
            ) from error
        return str(created["Id"])

    def _run_created(
        self, container: str, command: Command, collected: Collected, cancel: threading.Event | None
    ) -> Completed:
        api = self._client.api
        with Attached(api, container) as attached:
            started = time.monotonic()
            api.start(container)
            deadline = started + command.limits.wall_s
            ended = attached.communicate(command.stdin, collected, deadline=deadline, cancel=cancel)
        # The connection is closed here: the daemon cannot end a container whose output nobody takes.
        state = _wait_for_exit(api, container, deadline, cancel) if ended is Ended.CLOSED else None
        if state is None and ended is Ended.CLOSED:
            ended = Ended.CANCELLED if cancel is not None and cancel.is_set() else Ended.TIMED_OUT
        if state is None:
            with contextlib.suppress(APIError):
                api.kill(container)
            state = api.inspect_container(container)["State"]
        collected.finish_line()
        return Completed(
            exit_code=int(state["ExitCode"]) if ended is Ended.CLOSED else None,
            stdout=collected.stdout,
            stderr=collected.stderr,
            wall_s=time.monotonic() - started,
            timed_out=ended is Ended.TIMED_OUT,
            out_of_memory=bool(state["OOMKilled"]),
            output_truncated=collected.truncated,
            cancelled=ended is Ended.CANCELLED,
        )


def sweep_orphans() -> int:
    """Remove the containers whose owner has died, and return how many there were.

    Raises:
        SandboxUnavailable: the daemon does not answer.
    """
    removed = 0
    with contextlib.closing(connect()) as client:
        for summary in client.api.containers(all=True, filters={"label": f"{_LABEL}=1"}):
            owner = Owner.from_label(summary["Labels"].get(_OWNER_LABEL, ""))
            if owner is not None and is_gone(owner, container_runs=summary["State"] == "running"):
                _remove(client, summary["Id"])
                removed += 1
    return removed


def _wait_for_exit(
    api: docker.APIClient, container: str, deadline: float, cancel: threading.Event | None
) -> dict[str, Any] | None:
    """The container's state once it has exited; None when the deadline or a cancellation comes first."""
    pause_s = 0.002
    while True:
        state: dict[str, Any] = api.inspect_container(container)["State"]
        if not state["Running"] and state["Status"] == "exited":
            return state
        if time.monotonic() > deadline or (cancel is not None and cancel.is_set()):
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)


def _remove(client: docker.DockerClient, container: str) -> None:
    """Kill and remove; one that is gone already, or being removed by someone else, is fine."""
    try:
        client.api.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if "already in progress" not in str(error):
            raise


def _explain(error: Exception) -> str:
    text = str(getattr(error, "explanation", None) or error)
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split())[:300]
