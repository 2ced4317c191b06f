"""The processor's own counters, where kernel and sandbox hand them out (perf_event_open(2)); most containers do not."""

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterable
from typing import Any

_NUMBERS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 128
_EXCLUDE_KERNEL_AND_HYPERVISOR = (1 << 5) | (1 << 6)
_INHERIT = 1 << 1
_TOTAL_TIMES = 0b11  # read_format: time enabled, time running
HARDWARE, SOFTWARE, CACHE = 0, 1, 3
_READ, _MISS = 0, 1


def _cache(level: int, result: int) -> tuple[int, int]:
    return CACHE, level | (_READ << 8) | (result << 16)


EVENTS = {
    "instructions": (HARDWARE, 1),
    "cycles": (HARDWARE, 0),
    "l1_data_read_misses": _cache(0, _MISS),
    "last_level_read_misses": _cache(2, _MISS),
}


def count(run: Callable[[], None], events: dict[str, tuple[int, int]] = EVENTS) -> dict[str, Any]:
    """Count events in user mode over all threads while something runs once, after one untimed run.

    `counts` holds those that this machine has; `refused` says why not for the others. A counter that had to share the
    hardware with others is scaled up by the time that it was running.
    """
    run()  # makes the threads whose counters are opened below
    threads = [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208
    counts: dict[str, int] = {}
    refused: dict[str, str] = {}
    opened: dict[str, list[int]] = {}
    try:
        for name, event in events.items():
            try:
                opened[name] = _open_all(event, threads)
            except OSError as error:
                refused[name] = error.strerror or str(error)
        before = {name: _sum(files) for name, files in opened.items()}
        if opened:
            run()
        for name, files in opened.items():
            counts[name] = max(0, _sum(files) - before[name])
    finally:
        for files in opened.values():
            for file in files:
                os.close(file)
    return {"counts": counts, "refused": refused}


def _open_all(event: tuple[int, int], threads: Iterable[int]) -> list[int]:
    files: list[int] = []
    try:
        for thread in threads:
            files.append(_open(event, thread))
    except OSError:
        for file in files:
            os.close(file)
        raise
    return files


def _open(event: tuple[int, int], thread: int) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"no counters on {platform.machine()}")
    attribute = bytearray(_ATTRIBUTE_BYTES)
    struct.pack_into("=IIQ", attribute, 0, event[0], _ATTRIBUTE_BYTES, event[1])
    struct.pack_into("=QQ", attribute, 32, _TOTAL_TIMES, _EXCLUDE_KERNEL_AND_HYPERVISOR | _INHERIT)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attribute)
    file = libc.syscall(number, buffer, thread, -1, -1, 0)
    if file < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(file)


def _sum(files: Iterable[int]) -> int:
    total = 0
    for file in files:
        value, enabled, running = struct.unpack("=QQQ", os.read(file, 24))
        total += value if running in (0, enabled) else value * enabled // running
    return total
