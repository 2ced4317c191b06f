"""TorchInductor's cache folder of a runner: linked to what the image has ready, packed up and unpacked again."""

import io
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
                tar.add(path, arcname=str(path.relative_to(folder)))
    return archive.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """The inverse of `pack`.

    Raises:
        tarfile.TarError: the bytes are no such archive, or a member would leave the folder.
    """
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        tar.extractall(folder, filter="data")
