"""What the jail is told, and the numbers that both sides know."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class JailSpec:
    """What to run and how."""

    argv: tuple[str, ...]
    env: dict[str, str]  # TMPDIR is the scratch folder as the command sees it
    report_fd: int
    namespaces: bool
    scratch: str  # an empty folder: the new root goes there (namespaces), or the command's files (without)
    package: str
    visible: tuple[str, ...]  # folders beside the system's that the command may read
    warm: str  # a folder of reusable TorchInductor files, or ""
    uid: int | None  # without namespaces: the user to become
    cgroup: tuple[str, ...]  # files to join
    disk_mb: int
    address_space_mb: int
    processes: int
    processors: tuple[int, ...]

    def to_json(self) -> str:
        """For the command line of the program."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "JailSpec":
        """What `to_json` wrote."""
        return cls(**json.loads(text))
