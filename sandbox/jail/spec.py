"""The specification of a jailed command."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class JailSpec:
    """The command to run in the jail, its environment and its limits."""

    argv: tuple[str, ...]
    env: dict[str, str]  # TMPDIR is the path of the scratch folder within the jail
    report_fd: int
    namespaces: bool
    scratch: str  # an empty folder, for the new root (with namespaces) or the command's files (without)
    package: str
    visible: tuple[str, ...]  # folders beside the system's that the command may read
    warm: str  # a folder of reusable TorchInductor files, or ""
    uid: int | None  # the user to become without namespaces
    cgroup: tuple[str, ...]  # the files to write to in order to join the control groups
    disk_mb: int
    address_space_mb: int | None  # of each process; None: without a bound
    processes: int
    processors: tuple[int, ...]
    nodes: tuple[str, ...] = ()  # device files that the command may use
    loopback: bool = False  # whether the loopback interface is up

    def to_json(self) -> str:
        """The specification as JSON, for the jail's program."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "JailSpec":
        """Read the specification that `to_json` wrote."""
        return cls(**json.loads(text))
