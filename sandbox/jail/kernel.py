"""System calls that Python does not offer. Each raises `JailError` with the step that failed."""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CAPABILITIES = (5, 6, 7, 19)
"""KILL, SETGID, SETUID, SYS_PTRACE (linux/capability.h): what the referee needs."""

NEW_HOST_NAME, NEW_IPC = 0x04000000, 0x08000000
NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NOSUID, NODEV, NOEXEC = 2, 4, 8
_NEW_MOUNTS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_SYSCALLS = {"x86_64": (155, 442), "aarch64": (41, 442)}  # pivot_root, mount_setattr
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _AT_RECURSIVE, _AT_FDCWD = 1, 2, 0x8000, -100
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 24, 38, 36
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


class JailError(Exception):
    """This host does not allow a step."""


_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def _check(result: int, what: str) -> None:
    if result < 0:
        raise JailError(f"{what}: {os.strerror(ctypes.get_errno())}")


def unshare(flags: int) -> None:
    """Create the namespaces of `flags`; see unshare(2)."""
    _check(_libc.unshare(flags), "making namespaces")


def separate_mounts() -> None:
    """Enter a mount namespace, so that only this process and its children see what it mounts from now on."""
    unshare(_NEW_MOUNTS)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def mount_fresh(kind: str, target: Path, flags: int, options: str = "") -> None:
    """Mount a new file system of `kind` on the folder `target`, which is created if it is missing."""
    target.mkdir(parents=True, exist_ok=True)
    _mount(kind, str(target), kind, flags, options)


def mount_view(source: str, target: Path, *, read_only: bool) -> None:
    """Mount a folder or file at a second path, with all that is mounted below it."""
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(source, str(target), None, _MS_BIND | _MS_REC)
    if read_only:
        make_read_only(target)


def make_read_only(path: Path, *, recursive: bool = True) -> None:
    """Refuse writes and setuid programs on a mount and on the mounts below it; see mount_setattr(2), Linux 5.12."""
    attributes = _MountAttributes(set=_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    number = _syscalls()[1]
    result = _libc.syscall(number, _AT_FDCWD, str(path).encode(), flags, ctypes.byref(attributes), size)
    _check(result, f"making {path} read-only")


def enter_root(root: Path) -> None:
    """Make `root` this mount namespace's root and drop the old one; see pivot_root(2)."""
    old = root / ".old"
    old.mkdir()
    _check(_libc.syscall(_syscalls()[0], str(root).encode(), str(old).encode()), "pivot_root")
    os.chdir("/")
    _check(_libc.umount2(b"/.old", _MNT_DETACH), "leaving the host's root")
    Path("/.old").rmdir()


def drop_capabilities() -> None:
    """Keep only `CAPABILITIES`, for this process and all programs that it runs."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        if capability not in CAPABILITIES:
            _prctl(_PR_CAPBSET_DROP, capability, "dropping a capability")
    kept = sum(1 << capability for capability in CAPABILITIES)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    _check(_libc.capset(header, data), "dropping capabilities")


def raise_loopback() -> None:
    """Bring the loopback interface of this network namespace up; see netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            fcntl.ioctl(asking, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
        except OSError as error:
            raise JailError(f"bringing the loopback interface up: {error.strerror}") from None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. A change of the process's user cancels this."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL, "tying this process to its parent")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, "adopting orphans")


def forbid_new_privileges() -> None:
    """Prevent every program that is executed from now on from raising this process's privileges."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "forbidding new privileges")


def _prctl(option: int, value: int, what: str) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    kind_bytes = kind.encode() if kind else None
    result = _libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), options.encode())
    _check(result, f"mounting {target}")


def _syscalls() -> tuple[int, int]:
    machine = os.uname().machine
    if machine not in _SYSCALLS:
        raise JailError(f"no numbers of system calls for {machine}")
    return _SYSCALLS[machine]
