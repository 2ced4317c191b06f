"""Makes TorchInductor's reusable files for the process sandbox: `python -m sandbox.warm SCRIPT`.

It is part of the installation. The script is a platform's, and the one that its image runs.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandbox.process.interpreter import warm_folder


def make_warm_files(script: Path) -> Path:
    """Keep what compilations by the running Python can use; about 20 s, and 160 MB of disk.

    `script` is called with a folder that it makes, and fills it.

    Raises:
        subprocess.CalledProcessError: torch is missing or cannot compile here; its standard error says why.
    """
    folder = warm_folder(Path(sys.prefix))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, tempfile.TemporaryDirectory() as temporary:
        made = Path(scratch) / "inductor"
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "TMPDIR": temporary}
        command = [sys.executable, "-I", str(script), str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder


if __name__ == "__main__":
    print(make_warm_files(Path(sys.argv[1])))
