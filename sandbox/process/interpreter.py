"""The Python interpreter of the process sandbox, and the folders that it needs."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox.base import SandboxUnavailable

_ASK = "import json, platform, sys; print(json.dumps([sys.prefix, sys.base_prefix, platform.python_version()]))"


@dataclass(frozen=True)
class Interpreter:
    """A Python installation: its interpreter, and the folders that it consists of."""

    python: Path
    version: str
    prefix: Path
    folders: tuple[str, ...]

    @property
    def warm(self) -> str:
        """The folder of reusable TorchInductor files that `sandbox.warm` creates; empty if it is missing."""
        folder = warm_folder(self.prefix)
        return str(folder) if folder.is_dir() else ""


def warm_folder(prefix: Path) -> Path:
    """The folder in which an installation keeps its reusable TorchInductor files."""
    return prefix / "share" / "kernelwright" / "inductor"


def inspect_interpreter(python: Path | None) -> Interpreter:
    """Ask a Python interpreter for its version and folders. `None` stands for the one that runs this program.

    Raises:
        SandboxUnavailable: the interpreter cannot be run.
    """
    path = Path(sys.executable if python is None else python).absolute()
    try:
        answer = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=60)
        prefix, base_prefix, version = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxUnavailable(f"{path} is no Python that can be run ({error}).", "Name another one.") from error
    folders = dict.fromkeys([prefix, base_prefix, str(Path(prefix).resolve()), str(Path(base_prefix).resolve())])
    step = path
    while step.is_symlink():
        step = step.parent / step.readlink()
        folders[str(step.parent.parent)] = None
    return Interpreter(path, version, Path(prefix), tuple(folder for folder in folders if folder != "/"))
