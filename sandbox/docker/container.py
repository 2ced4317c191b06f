"""The life of one container: created for a command, started, given its input, removed."""

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, NotFound
from docker.types import DeviceRequest, LogConfig, Mount, Ulimit

from sandbox.base import Command, Completed, Devices, SandboxUnavailable
from sandbox.docker.engine import ENGINE_ERRORS
from sandbox.docker.stream import AttachedStream
from sandbox.environment import COMMAND_ENVIRONMENT
from sandbox.output_capture import EndReason, OutputCapture
from sandbox.owner import this_process

CAPABILITIES = ("SETUID", "SETGID", "KILL", "SYS_PTRACE")
"""What the referee needs to give code other uids, to freeze and kill it, and to read its outputs."""

LABEL = "kernelwright"
OWNER_LABEL = "kernelwright.owner"
_SHM_BYTES = 16 * 1024 * 1024  # POSIX semaphores of multiprocessing live there
_FILES_A_MB = 256  # bound on the number of files in the scratch folder
_SHARE_TMP = (
    "It mounts what this program writes to its folder for temporary files: where that runs in a container, mount the "
    "host's /tmp at /tmp (docs/operating.md)."
)
_LOOK_S = 0.01  # between two looks whether a container whose output has ended has exited, which it does at once
_GRACE_S = 30  # how long the container may outlive its limit if no process is left to kill it


class StartedContainer:
    """A container that runs a command's package and waits for its standard input.

    Args:
        package: a readable copy of the command's package; it is removed with the container.
        idle_s: for how many seconds the container may wait for `finish` without using the command's own time limit.
    """

    def __init__(
        self, client: docker.DockerClient, image_id: str, command: Command, package: Path, *, idle_s: float = 0.0
    ) -> None:
        """Create and start the container.

        Raises:
            SandboxUnavailable: the daemon cannot make or start the container.
        """
        self._client = client
        self._command = command
        self._package = package
        self._id: str | None = None
        self._attached: AttachedStream | None = None
        self.good_until = time.monotonic() + idle_s
        try:
            self._id = self._create(image_id, idle_s)
            self._attached = AttachedStream(client.api, self._id)
            client.api.start(self._id)
        except BaseException as error:
            self.remove()
            if isinstance(error, ENGINE_ERRORS):
                said = explain(error)
                raise SandboxUnavailable(
                    f"The Docker daemon cannot start a container ({said}).",
                    _SHARE_TMP if "bind source path does not exist" in said else "See: kernelwright doctor",
                ) from error
            raise

    def finish(
        self,
        stdin: bytes,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """Send the command its input and wait for its end or its limits. The time limit begins here.

        Raises:
            SandboxUnavailable: the daemon fails meanwhile.
        """
        try:
            return self._finish(stdin, OutputCapture(self._command.limits.output_bytes, on_stderr), cancel)
        except ENGINE_ERRORS as error:
            raise SandboxUnavailable(
                f"The Docker daemon failed while it ran a command ({explain(error)}).",
                "See the daemon's log, and try: kernelwright sandbox check",
            ) from error

    def runs(self) -> bool:
        """Whether the container is running."""
        try:
            return self._id is not None and bool(self._client.api.inspect_container(self._id)["State"]["Running"])
        except ENGINE_ERRORS:
            return False

    def remove(self) -> None:
        """Kill and remove the container with all its files.

        Raises:
            SandboxUnavailable: the daemon cannot remove it.
        """
        try:
            if self._attached is not None:
                self._attached.close()
            if self._id is not None:
                remove_container(self._client, self._id)
        except ENGINE_ERRORS as error:
            raise SandboxUnavailable(
                f"The Docker daemon cannot remove a container ({explain(error)}).",
                "See the daemon's log, and try: kernelwright sandbox check",
            ) from error
        finally:
            self._attached = self._id = None
            shutil.rmtree(self._package.parent, ignore_errors=True)

    def _finish(self, stdin: bytes, capture: OutputCapture, cancel: threading.Event | None) -> Completed:
        assert self._attached is not None and self._id is not None
        api = self._client.api
        started = time.monotonic()
        deadline = started + self._command.limits.wall_s
        ended = self._attached.communicate(stdin, capture, deadline=deadline, cancel=cancel)
        # The daemon cannot end a container whose output is not read.
        self._attached.close()
        state = _wait_for_exit(api, self._id, deadline, cancel) if ended is EndReason.CLOSED else None
        if state is None and ended is EndReason.CLOSED:
            ended = EndReason.CANCELLED if cancel is not None and cancel.is_set() else EndReason.TIMED_OUT
        if state is None:
            with contextlib.suppress(APIError):
                api.kill(self._id)
            state = api.inspect_container(self._id)["State"]
        capture.finish_line()
        return Completed(
            exit_code=int(state["ExitCode"]) if ended is EndReason.CLOSED else None,
            stdout=capture.stdout,
            stderr=capture.stderr,
            wall_s=time.monotonic() - started,
            timed_out=ended is EndReason.TIMED_OUT,
            out_of_memory=bool(state["OOMKilled"]),
            output_truncated=capture.truncated,
            cancelled=ended is EndReason.CANCELLED,
        )

    def _create(self, image_id: str, idle_s: float) -> str:
        command, limits = self._command, self._command.limits
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
            # Unlike `binds`, this is refused where the daemon's host has no such folder.
            mounts=[
                Mount(f"/harness/{self._package.name}", str(self._package), type="bind", read_only=True),
                *tool_mounts(command.devices),
            ],
            mem_limit=f"{limits.memory_mb}m",
            memswap_limit=f"{limits.memory_mb}m",
            pids_limit=limits.processes,
            cpuset_cpus=_own_processors(),
            nano_cpus=int(limits.cpus * 1e9) if limits.cpus is not None else None,
            shm_size=_SHM_BYTES,
            cap_drop=["ALL"],
            cap_add=list(CAPABILITIES),
            security_opt=["no-new-privileges:true"],
            ulimits=[Ulimit(name="core", soft=0, hard=0)],
            log_config=LogConfig(type=LogConfig.types.NONE),
            init=True,
            ipc_mode="private",
            **device_options(command.devices),
        )
        seconds = str(int(limits.wall_s + idle_s + _GRACE_S))
        created: dict[str, Any] = api.create_container(
            image_id,
            ["/usr/local/bin/kernelwright-start", seconds, self._package.name, *command.args],
            host_config=host_config,
            environment={**COMMAND_ENVIRONMENT, "PYTHONPATH": "/harness", "HOME": "/tmp", "TMPDIR": "/tmp"},  # noqa: S108
            user="0:0",
            working_dir="/",
            hostname="sandbox",
            stdin_open=True,
            labels={LABEL: "1", OWNER_LABEL: this_process().to_label(), "kernelwright.command": command.label},
        )
        return str(created["Id"])


def _own_processors() -> str | None:
    """The processors that this process was confined to (taskset, systemd's CPUAffinity); None where it may use all."""
    own = os.sched_getaffinity(0)
    return None if len(own) == os.cpu_count() else ",".join(map(str, sorted(own)))


def tool_mounts(devices: Devices) -> list[Mount]:
    """What a container shows of the host's compilers for a device, read-only."""
    return [Mount(f"/tools/{name}", path, type="bind", read_only=True) for name, path in devices.tools]


def device_options(devices: Devices) -> dict[str, Any]:
    """The options of a container's host configuration that open devices to it; none where none are asked for."""
    options: dict[str, Any] = {}
    if devices.nodes:
        options["devices"] = [f"{node}:{node}:rw" for node in devices.nodes]
    if devices.gpus:
        options["device_requests"] = [DeviceRequest(device_ids=list(devices.gpus), capabilities=[["gpu"]])]
    return options


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
        pause_s = min(pause_s * 2, _LOOK_S)


def remove_container(client: docker.DockerClient, container: str) -> None:
    """Kill and remove a container. It is no error if it is gone already or is being removed."""
    try:
        client.api.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if "already in progress" not in str(error):
            raise


def explain(error: BaseException) -> str:
    """What the daemon said, in one line."""
    text = str(getattr(error, "explanation", None) or error)
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split())[:300]
