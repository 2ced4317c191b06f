"""The root folder that a jailed command sees, and TorchInductor's reusable files in its scratch folder."""

import os
import socket
from pathlib import Path

from sandbox.jail import kernel
from sandbox.jail.spec import JailSpec

_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys/devices/system/cpu")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
# Where a device's files are shown: what its driver looks up, and where NVIDIA's installers put programs for it.
_FOLDERS_OF_DEVICES = ("/sys/devices", "/sys/bus/pci", "/opt/nvidia")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_READY = "opt/kernelwright/inductor"  # the path of the same files in the image, at which the referee expects them
_FILES_A_MB = 256
_FILES = {
    "etc/passwd": "root:x:0:0::/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}


def build_and_enter_root(spec: JailSpec) -> None:
    """Build the command's root folder on the empty folder `spec.scratch` and make it this process's root.

    Raises:
        JailError: a mount is not permitted here.
    """
    kernel.separate_mounts()
    root = Path(spec.scratch)
    kernel.mount_fresh("tmpfs", root, kernel.NOSUID | kernel.NODEV, "mode=755,size=1m")
    disk = f"mode=1777,size={spec.disk_mb}m,nr_inodes={spec.disk_mb * _FILES_A_MB}"
    kernel.mount_fresh("tmpfs", root / "tmp", kernel.NOSUID | kernel.NODEV, disk)
    kernel.mount_fresh("proc", root / "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
    _make_devices(root / "dev")
    for node in spec.nodes:
        _open_device(node, root)
    for path in (*(_FOLDERS_OF_DEVICES if spec.nodes else ()), *_SYSTEM_FOLDERS, *_SYSTEM_FILES, *spec.visible):
        _show(path, root)
    for name, content in _FILES.items():
        (root / name).write_text(content)
    if spec.warm:
        kernel.mount_view(spec.warm, root / _READY, read_only=True)
    kernel.mount_view(spec.package, root / "harness" / Path(spec.package).name, read_only=True)
    kernel.enter_root(root)
    kernel.make_read_only(Path("/"), recursive=False)
    socket.sethostname("sandbox")


def _show(path: str, root: Path) -> None:
    """Show a folder or file of the host read-only at the same path. Links stay links; a missing path is passed over."""
    source, target = Path(path), root / path.lstrip("/")
    if target.exists() or target.is_symlink():
        return
    if source.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source.readlink())
    elif source.exists():
        kernel.mount_view(path, target, read_only=True)


def _make_devices(folder: Path) -> None:
    folder.mkdir()
    for name in _DEVICES:
        kernel.mount_view(f"/dev/{name}", folder / name, read_only=False)
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        (folder / name).symlink_to(f"/proc/self/fd{target}")
    flags = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
    kernel.mount_fresh("tmpfs", folder / "shm", flags, "mode=1777,size=16m")


def _open_device(node: str, root: Path) -> None:
    """Show a device file at the same path, readable and writable. One that is missing is passed over."""
    if Path(node).is_char_device():
        target = root / node.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        kernel.mount_view(node, target, read_only=False)


def link_warm_files(warm: str, cache: Path, uid: int | None) -> None:
    """Create TorchInductor's cache as links to reusable files, which saves 13 s in the first compilation.

    Args:
        warm: the folder of the reusable files.
        cache: the cache's folder.
        uid: the owner of the cache; None for the caller.
    """
    cache.mkdir()
    made = [cache]
    for path in sorted(Path(warm).rglob("*")):
        target = cache / path.relative_to(warm)
        if path.is_dir():
            target.mkdir()
        else:
            target.symlink_to(path)
        made.append(target)
    if uid is not None:
        for path in made:
            os.lchown(path, uid, uid)
