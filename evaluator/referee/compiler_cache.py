"""TorchInductor's cache folder of a runner: linked to what the image has ready, packed up and unpacked again."""

import io
import os
import sys
import tarfile
from pathlib import Path

READY = Path("/opt/kernelwright/inductor")
"""Where the image keeps a precompiled header and the checks of this processor's vector extensions."""


def prepare(folder: Path) -> None:
    """Make the folder, with links to what the image has ready (13 of the 16 s of a first compilation)."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in READY.rglob("*"):
        target = folder / path.relative_to(READY)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif not target.exists():
            target.symlink_to(path)
    # Inductor fixes this folder when it is imported, which was in another process of another user.
    codecache = sys.modules.get("torch._inductor.codecache")
    for name, value in (("_HEADER_DIR", folder / "precompiled_headers"), ("_HEADER_LOCK_DIR", folder / "locks")):
        if hasattr(codecache, name):
            setattr(codecache, name, str(value))


def pack(folder: Path) -> bytes:
    """What compilation has added to the folder, as a compressed archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix not in (".gch", ".lock"):
                tar.add(path, arcname=str(path.relative_to(folder)), filter=_whole_seconds)
    return archive.getvalue()


def _whole_seconds(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Rounded up by a hair, an output would look newer to ninja than its own record of it, and be built again."""
    member.mtime = int(member.mtime)
    return member


def unpack(data: bytes, folder: Path) -> None:
    """The inverse of `pack`: plain files, with their times and whether they can be run.

    Raises:
        tarfile.TarError: the bytes are no such archive.
        ValueError: a member would leave the folder.
    """
    # Python 3.11.2, which is Debian 12's, has no extraction filters yet.
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        for member in tar:
            target = folder / member.name
            if not member.isreg() or ".." in target.parts or not target.is_relative_to(folder):
                raise ValueError(f"{member.name!r} is no plain file of this folder")
            content = tar.extractfile(member)
            assert content is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
            os.utime(target, (member.mtime, member.mtime))
