"""Packs the files that torch.compile or load_inline has built in a runner's folder, and unpacks them again."""

import io
import os
import tarfile
from pathlib import Path


def pack(folder: Path) -> bytes:
    """The files of a build folder as a compressed archive; empty if there are none."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    files = [path for path in files if path.suffix not in (".gch", ".lock")]
    if not files:
        return b""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
        for path in files:
            tar.add(path, arcname=str(path.relative_to(folder)), filter=_whole_seconds)
    return archive.getvalue()


def _whole_seconds(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Truncate a file's time to whole seconds.

    If the time were rounded up, the file would look newer to ninja than ninja's own record of it and be built again.
    """
    member.mtime = int(member.mtime)
    return member


def unpack(data: bytes, folder: Path) -> None:
    """Unpack what `pack` packed: plain files, with their times and the permission to execute them.

    Raises:
        tarfile.TarError: the bytes are no such archive.
        ValueError: a member is no plain file, or lies outside the folder.
    """
    # Debian 12 has Python 3.11.2, which has no extraction filters yet.
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
