"""System calls that no runner may make, in whatever sandbox it runs.

All that a process does must end when it is stopped. What is asked for by these calls goes on: the kernel works on it
whenever it likes, in the time of the process that happens to run, and charges it to nobody. Sockets are of a few
families alone.
"""

import ctypes
import errno
import platform
import socket
from dataclasses import dataclass

_libc = ctypes.CDLL(None, use_errno=True)
_SET_MODE_FILTER = 1
_ALLOW_SPECULATION = 4  # else some kernels make the process slower, by their defence against speculation
_REFUSE, _PERMIT = 0x00050000 | errno.ENOSYS, 0x7FFF0000
_NO_FAMILY = 0x00050000 | errno.EAFNOSUPPORT
_NUMBER_AT, _ABI_AT, _FAMILY_AT = 0, 4, 16  # in struct seccomp_data of linux/seccomp.h; the last: half of an argument
_FAMILIES = tuple(map(int, (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)))
"""Of sockets. Others, such as those to the host of a virtual machine, are in no network namespace."""
_X32 = 0x40000000  # a bit of x86-64's numbers, for the calls of another ABI
_LOAD, _IS_EQUAL, _IS_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # of linux/bpf_common.h


@dataclass(frozen=True)
class _Numbers:
    """Those of one architecture: its ABI (AUDIT_ARCH_* of linux/audit.h) and the numbers of its system calls."""

    abi: int
    seccomp: int
    socket: int
    refused: tuple[int, ...]


# io_uring_setup, _enter and _register, io_setup and io_submit, which work while their process is stopped;
# timerfd_create and timer_create, because timers fire then: with hundreds, other processes lose time.
_OF = {
    "x86_64": _Numbers(0xC000003E, 317, 41, (425, 426, 427, 206, 209, 283, 222)),
    "aarch64": _Numbers(0xC00000B7, 277, 198, (425, 426, 427, 0, 2, 85, 107)),
}


class _Instruction(ctypes.Structure):
    """struct sock_filter of linux/filter.h."""

    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def refuse_work_while_stopped() -> bool:
    """Have this process and all that it starts be told that the kernel lacks these calls (ENOSYS).

    It lacks other families of sockets, too (EAFNOSUPPORT). Calls of other ABIs (32-bit programs, x32) are refused as
    well, because their numbers differ. The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS).

    Returns:
        Whether the kernel took the filter.
    """
    numbers = _OF.get(platform.machine())
    if numbers is None:
        return False
    refused = [_Instruction(_IS_EQUAL, 1, 0, numbers.abi), _Instruction(_RETURN, 0, 0, _REFUSE)]
    refused += [_Instruction(_LOAD, 0, 0, _NUMBER_AT)]
    refused += [_Instruction(_IS_AT_LEAST, 0, 1, _X32), _Instruction(_RETURN, 0, 0, _REFUSE)]
    for number in numbers.refused:
        refused += [_Instruction(_IS_EQUAL, 0, 1, number), _Instruction(_RETURN, 0, 0, _REFUSE)]
    families = [_Instruction(_LOAD, 0, 0, _FAMILY_AT)]
    families += [_Instruction(_IS_EQUAL, len(_FAMILIES) - at, 0, each) for at, each in enumerate(_FAMILIES)]
    families += [_Instruction(_RETURN, 0, 0, _NO_FAMILY)]
    refused += [_Instruction(_IS_EQUAL, 0, len(families), numbers.socket), *families]
    every = [_Instruction(_LOAD, 0, 0, _ABI_AT), *refused, _Instruction(_RETURN, 0, 0, _PERMIT)]
    program = _Program(len(every), (_Instruction * len(every))(*every))
    return bool(_libc.syscall(numbers.seccomp, _SET_MODE_FILTER, _ALLOW_SPECULATION, ctypes.byref(program)) == 0)
