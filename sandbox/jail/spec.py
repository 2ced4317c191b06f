"""The description of a jailed command."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class JailSpec:
    """What to run in the jail, and with which limits."""

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
        """The description as text for the jail's process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "JailSpec":
        """The description that `to_json` wrote."""
        return cls(**json.loads(text))
