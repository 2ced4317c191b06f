"""The process sandbox of a user who is not root: namespaces of an ordinary user, or none."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.base import Promise

SOURCE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sandbox.check import check_promises
from sandbox.process.sandbox import ProcessSandbox
sandbox = ProcessSandbox(Path("/usr/bin/python3"), namespaces=sys.argv[2] == "True")
print(json.dumps({check.promise: [check.kept, check.detail] for check in check_promises(sandbox)}))
"""
NAMESPACES_OF_AN_ORDINARY_USER = set(Promise) - {
    Promise.SEPARATE_UIDS,
    Promise.BOUNDED_MEMORY,
    Promise.BOUNDED_PROCESSES,
}


@pytest.fixture
def readable_folder() -> Iterator[Path]:
    """A copy of the package that every user of this machine may read."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(__file__).parents[2] / "sandbox", Path(folder) / "sandbox")
        for path in (Path(folder), *Path(folder).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield Path(folder)


def checks_of_an_ordinary_user(folder: Path, namespaces: bool) -> dict[str, Any]:
    become = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"] if os.geteuid() == 0 else []
    command = [*become, "/usr/bin/python3", "-c", SOURCE, str(folder), str(namespaces)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.exclusive
def test_an_ordinary_users_namespaces_keep_all_but_what_needs_root(readable_folder: Path) -> None:
    checks = checks_of_an_ordinary_user(readable_folder, True)
    assert [(name, detail) for name, (kept, detail) in checks.items() if kept is False] == []
    assert {name for name, (kept, _) in checks.items() if kept} == NAMESPACES_OF_AN_ORDINARY_USER


@pytest.mark.exclusive
def test_without_namespaces_little_is_promised_and_that_is_kept(readable_folder: Path) -> None:
    checks = checks_of_an_ordinary_user(readable_folder, False)
    assert [(name, detail) for name, (kept, detail) in checks.items() if kept is False] == []
    assert {name for name, (kept, _) in checks.items() if kept} == {
        Promise.BOUNDED_OUTPUT,
        Promise.WALL_CLOCK,
        Promise.NO_NEW_PRIVILEGES,
    }
