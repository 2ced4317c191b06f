"""The copy of a command's package that a sandbox shows to the code inside."""

import importlib.util
import marshal
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def copy_readable(package: Path) -> Path:
    """Copy the package to a fresh folder that holds it alone, readable by every user whatever the original's modes.

    Root inside a sandbox has no right to override file modes, and the original's folder may be closed to others. The
    copy brings bytecode, because it is read-only inside: each process would compile it again, which takes half a second
    of an evaluation. An interpreter of another version passes the bytecode over. The caller removes the copy's parent.

    Raises:
        ValueError: the folder is no package that can be run.
    """
    package = package.resolve()
    if not (package / "__main__.py").is_file() or not package.name.isidentifier():
        raise ValueError(f"{package} is no package that can be run: it needs a plain name and a __main__.py")
    scratch = Path(tempfile.mkdtemp(prefix="kernelwright-harness-"))
    copy = scratch / package.name
    shutil.copytree(package, copy, ignore=_LEFT_OUT)
    for source in [*copy.rglob("*.py")]:
        bytecode = _bytecode(source.read_bytes(), source.relative_to(scratch).as_posix())
        compiled = Path(importlib.util.cache_from_source(str(source), optimization=""))
        compiled.parent.mkdir(exist_ok=True)
        compiled.write_bytes(bytecode)
    for path in (scratch, copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return copy


@lru_cache(maxsize=1024)
def _bytecode(source: bytes, name: str) -> bytes:
    """The contents of a `.pyc` that is used without a look at its source; empty, and passed over, without syntax."""
    try:
        code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return b""
    unchecked = (1).to_bytes(4, "little")  # PEP 552: by a hash, which is not compared
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code)


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
