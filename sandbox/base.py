"""The interface behind which foreign code runs: a Command goes in, a Completed comes out."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class SandboxUnavailable(RuntimeError):
    """There is no sandbox to work with: what is missing (`problem`), and what to do about it (`remedy`)."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


class Promise(StrEnum):
    """What a sandbox guarantees about the code inside it; `sandbox check` proves each on this machine."""

    NO_NETWORK = "no_network"
    READ_ONLY_ROOT = "read_only_root"
    NO_HOST_FILES = "no_host_files"
    NO_HOST_ENVIRONMENT = "no_host_environment"
    BOUNDED_DISK = "bounded_disk"
    BOUNDED_MEMORY = "bounded_memory"
    BOUNDED_PROCESSES = "bounded_processes"
    BOUNDED_OUTPUT = "bounded_output"
    WALL_CLOCK = "wall_clock"
    NOTHING_LEFT_RUNNING = "nothing_left_running"
    SEPARATE_UIDS = "separate_uids"
    NO_NEW_PRIVILEGES = "no_new_privileges"


@dataclass(frozen=True)
class Limits:
    """Bounds on one command, enforced on its whole process tree."""

    wall_s: float = 120.0
    memory_mb: int = 8192
    processes: int = 256
    cpus: float | None = None  # None: all that this process may use
    disk_mb: int = 1024
    output_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True)
class Devices:
    """What a command may use of this host's devices, beside processor and memory. Nothing, unless it is named here.

    Attributes:
        nodes: device files that appear inside at the same paths, readable and writable: `/dev/dri/renderD128`.
        gpus: GPUs that the GPU runtime of the container engine opens to the command, by index or UUID.
        tools: folders of the host, by name, that a container shows read-only at `/tools/NAME`: compilers for a device.
            The process sandbox shows them where they lie, if at all.
        libraries: folders of the host with a driver's libraries, into which the dynamic linker does not look by itself.
            The process sandbox shows them and names them to the linker. A container engine's GPU runtime has its own.
    """

    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    libraries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Only device files are devices.

        Raises:
            ValueError: a node is not a plain path under /dev, or a tool has no plain name or no absolute path.
        """
        for node in self.nodes:
            if not node.startswith("/dev/") or ":" in node or ".." in node.split("/"):
                raise ValueError(f"nodes: {node!r} is not the path of a device file under /dev")
        for name, path in self.tools:
            if not name.isidentifier() or not Path(path).is_absolute():
                raise ValueError(f"tools: {name!r}: {path!r} is not a plain name and an absolute path")


@dataclass(frozen=True)
class Command:
    """One run of a self-contained Python package of ours inside a sandbox.

    `package` is a folder with a `__main__.py`; it is shown read-only and run as `python3 -m <folder name> *args` with
    the sandbox's own interpreter. It must import nothing of ours outside its folder. It starts as the sandbox's root
    user, able to make processes of other uids where the sandbox promises `SEPARATE_UIDS`. With `loopback`, programs
    inside can talk to each other over the loopback interface of the sandbox's own network, as profilers do with what
    they watch. A container has that in any case.
    """

    package: Path
    args: tuple[str, ...] = ()
    stdin: bytes = b""
    limits: Limits = field(default_factory=Limits)
    label: str = ""
    devices: Devices = field(default_factory=Devices)
    loopback: bool = False


@dataclass(frozen=True)
class Completed:
    """The result of a command. A failed command is a value; only an unavailable sandbox is an exception."""

    exit_code: int | None  # None: it was killed before it could exit
    stdout: bytes
    stderr: bytes
    wall_s: float
    timed_out: bool = False
    out_of_memory: bool = False
    output_truncated: bool = False
    cancelled: bool = False


class Sandbox(Protocol):
    """Where commands run."""

    name: str
    promises: frozenset[Promise]

    def run(
        self,
        command: Command,
        *,
        on_stderr: Callable[[bytes], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """Run a command to its end or its limits. Afterwards nothing of it is left running.

        Args:
            command: the command.
            on_stderr: called with each whole line of standard error, as it arrives.
            cancel: kills the whole process tree once it is set. An exception in the calling thread, such as
                KeyboardInterrupt, does so as well.

        Raises:
            SandboxUnavailable: the sandbox cannot run anything at present.
        """
        ...

    def prepare(self, command: Command) -> None:
        """Prepare for a `run` of this command that will follow soon; its `stdin` may differ. Returns at once.

        This is only a hint. A preparation is used for one run at most, and an error shows in that run.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Provenance: name, image id or interpreter, versions as far as known without running anything."""
        ...
