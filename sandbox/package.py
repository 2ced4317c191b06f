"""The copy of a command's package that a sandbox shows to the code inside."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


@contextmanager
def readable_copy(package: Path) -> Iterator[Path]:
    """A fresh folder that holds the package alone, readable by every user whatever the modes of the original.

    Root inside a sandbox has no right to override file modes, and the original's folder may be closed to others.

    Raises:
        ValueError: the folder is no package that can be run.
    """
    package = package.resolve()
    if not (package / "__main__.py").is_file() or not package.name.isidentifier():
        raise ValueError(f"{package} is no package that can be run: it needs a plain name and a __main__.py")
    with tempfile.TemporaryDirectory(prefix="kernelwright-harness-") as scratch:
        copy = Path(scratch) / package.name
        shutil.copytree(package, copy, ignore=_LEFT_OUT)
        for path in (Path(scratch), copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield copy
