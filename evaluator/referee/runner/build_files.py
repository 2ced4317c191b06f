"""What torch.compile or load_inline has built in a runner's folder: packed up and unpacked again."""

import io
import os
import tarfile
from pathlib import Path


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
