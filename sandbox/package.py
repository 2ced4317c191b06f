"""The copy of a command's package that a sandbox shows to the code inside."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def copy_readable(package: Path) -> Path:
    """Copy the package to a fresh folder that holds it alone, readable by every user whatever the original's modes.

    Root inside a sandbox has no right to override file modes, and the original's folder may be closed to others. The
    caller removes the copy's parent.

    Raises:
        ValueError: the folder is no package that can be run.
    """
    package = package.resolve()
    if not (package / "__main__.py").is_file() or not package.name.isidentifier():
        raise ValueError(f"{package} is no package that can be run: it needs a plain name and a __main__.py")
    scratch = Path(tempfile.mkdtemp(prefix="kernelwright-harness-"))
    copy = scratch / package.name
    shutil.copytree(package, copy, ignore=_LEFT_OUT)
    for path in (scratch, copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


@contextmanager
def readable_copy(package: Path) -> Iterator[Path]:
    """`copy_readable` for as long as a block lasts.

    Raises:
        ValueError: the folder is no package that can be run.
    """
    copy = copy_readable(package)
    try:
        yield copy
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)
