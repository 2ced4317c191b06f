"""System calls that no runner may make, in whatever sandbox it runs."""

import ctypes
import errno
import platform

_libc = ctypes.CDLL(None, use_errno=True)
_SECCOMP = {"x86_64": 317, "aarch64": 277}  # the number of seccomp(2)
_SET_MODE_FILTER = 1
_ALLOW_SPECULATION = 4  # else some kernels make the process slower, by their defence against speculation
_IO_URING = (425, 427)  # io_uring_setup, _enter and _register; the same numbers on every architecture
_NOT_X32 = 0xBFFFFFFF  # x86-64 also takes a number with this bit set
_REFUSE, _PERMIT = 0x00050000 | errno.ENOSYS, 0x7FFF0000


class _Instruction(ctypes.Structure):
    """struct sock_filter of linux/filter.h."""

    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


def refuse_io_uring() -> bool:
    """Have this process and all that it starts be told that the kernel has no io_uring (ENOSYS).

    The kernel works on what was asked for through io_uring whenever it likes, also while the process is stopped, and
    charges it to nobody. The process must not be able to gain privileges (PR_SET_NO_NEW_PRIVS).

    Returns:
        Whether the kernel took the filter.
    """
    number = _SECCOMP.get(platform.machine())
    if number is None:
        return False
    first, last = _IO_URING
    instructions = (_Instruction * 6)(
        _Instruction(0x20, 0, 0, 0),  # load the number of the system call
        _Instruction(0x54, 0, 0, _NOT_X32),  # and
        _Instruction(0x35, 0, 2, first),  # if not at least `first`: permit
        _Instruction(0x25, 1, 0, last),  # if above `last`: permit
        _Instruction(0x06, 0, 0, _REFUSE),
        _Instruction(0x06, 0, 0, _PERMIT),
    )
    program = _Program(len(instructions), instructions)
    return bool(_libc.syscall(number, _SET_MODE_FILTER, _ALLOW_SPECULATION, ctypes.byref(program)) == 0)
