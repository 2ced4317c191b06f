"""Samples which instruction is running, at a fixed interval of processor time.

A timer of the process (ITIMER_PROF) raises SIGPROF, and a signal handler in C stores the program counter. (Python runs
its own handlers between bytecodes only.) The samples show what torch's profiler does not see: the candidate's own
kernels, threads that wait in OpenMP, Python.
"""

import bisect
import ctypes
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import hot_code

OWN = "own kernels"
GENERATED = "code made while running (oneDNN's, or the candidate's)"
_CAPACITY = 65536  # samples; those after them are dropped
_INTERVAL_US = 1000  # the kernel rounds this up to its own tick, often 4 ms
_ROWS = 12

SOURCE = r"""
#include <csignal>
#include <cstdint>
#include <sys/time.h>
#include <ucontext.h>

static uint64_t* addresses;
static long capacity;
static long used;

static void note(int, siginfo_t*, void* context) {
    long at = __atomic_fetch_add(&used, 1, __ATOMIC_RELAXED);
    auto* where = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
    if (at < capacity) addresses[at] = where->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    if (at < capacity) addresses[at] = where->uc_mcontext.pc;
#else
#error "no sampling on this processor"
#endif
}

extern "C" int start(uint64_t* into, long size, long interval_us) {
    addresses = into;
    capacity = size;
    used = 0;
    struct sigaction action = {};
    action.sa_sigaction = note;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    itimerval every = {{0, interval_us}, {0, interval_us}};
    if (sigaction(SIGPROF, &action, nullptr) != 0) return -1;
    return setitimer(ITIMER_PROF, &every, nullptr);
}

extern "C" long stop() {
    itimerval never = {};
    setitimer(ITIMER_PROF, &never, nullptr);
    return used < capacity ? used : capacity;
}
"""


def build(folder: Path, compiler: str) -> ctypes.CDLL:
    """Compile the signal handler in `folder` with `compiler`, which is the real one and not the shim.

    Raises:
        OSError: there is no compiler.
        subprocess.CalledProcessError: it cannot compile this.
    """
    source = folder / "sampler.cpp"
    source.write_text(SOURCE)
    library = folder / "sampler.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", source, "-o", library], check=True, capture_output=True)
    return ctypes.CDLL(str(library))


def sample(library: ctypes.CDLL, run: Callable[[], object]) -> list[int]:
    """Run something and return the program counters that were sampled meanwhile.

    Raises:
        OSError: the timer cannot be set.
    """
    buffer = (ctypes.c_uint64 * _CAPACITY)()
    if library.start(buffer, ctypes.c_long(_CAPACITY), ctypes.c_long(_INTERVAL_US)) != 0:
        raise OSError("the sampling timer cannot be set")
    try:
        run()
    finally:
        library.stop.restype = ctypes.c_long
        count = library.stop()
    return list(buffer[:count])


def attribute(addresses: list[int], *, own: Path, profiler: Path) -> dict[str, Any]:
    """Count samples by kind of code, and by function of the candidate's own libraries.

    Args:
        addresses: Program counters.
        own: The folder below which the candidate's own libraries lie.
        profiler: The folder below it that holds this profiler's own library.

    Returns:
        `samples`, their number; `kinds`, rows of [kind, share]; `functions`, rows of [name, library, share]; and
        `hot_code`, as `hot_code.stretches` returns it.
    """
    places = _mappings()
    starts = [place[0] for place in places]
    kinds: Counter[str] = Counter()
    functions: Counter[tuple[str, str]] = Counter()
    own_code: dict[str, Counter[int]] = {}
    symbols: dict[str, tuple[list[int], list[str]]] = {}
    for address in addresses:
        at = bisect.bisect_right(starts, address) - 1
        path, base = (places[at][2], places[at][3]) if at >= 0 and address < places[at][1] else ("", 0)
        kind = _kind(path, own, profiler)
        kinds[kind] += 1
        if kind == OWN:
            if path not in symbols:
                symbols[path] = _symbols(path)
            functions[Path(path).name, _name_at(symbols[path], address - base)] += 1
            own_code.setdefault(path, Counter())[address - base] += 1
    total = max(1, len(addresses))
    return {
        "samples": len(addresses),
        "kinds": [[kind, count / total] for kind, count in kinds.most_common()],
        "functions": [[name, where, count / total] for (where, name), count in functions.most_common(_ROWS)],
        "hot_code": hot_code.stretches(own_code, symbols, total),
    }


def _kind(path: str, own: Path, profiler: Path) -> str:
    """The kind of code that a mapped file holds, in words for the reader of a profile."""
    name = path.rpartition("/")[2]
    if not path.startswith("/") or path.startswith("/memfd:"):
        return "system calls" if path in ("[vdso]", "[vsyscall]") else GENERATED
    if path.startswith(f"{profiler}/"):
        return "other libraries"
    if name.startswith(("libgomp", "libomp", "libiomp")):
        return "OpenMP runtime (waiting included)"
    if path.startswith(f"{own}/"):
        return OWN
    if "/torch/" in path:
        return "torch"
    if name.startswith(("python", "libpython", "libffi", "_ctypes")) or path == sys.executable:
        return "Python"
    if name.startswith("libm"):
        return "C math library"
    if name.startswith("libc.") or name.startswith("libc-"):
        return "C library"
    return "Python" if "lib-dynload" in path else "other libraries"


def _mappings() -> list[tuple[int, int, str, int]]:
    """Executable ranges of this process, sorted: start, end, file, and the address at which the file's byte 0 lies."""
    bases: dict[str, int] = {}
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(None, 5)
        low, high = (int(part, 16) for part in fields[0].split("-"))
        path = fields[5].strip() if len(fields) > 5 else ""
        bases.setdefault(path, low - int(fields[2], 16))
        if "x" in fields[1]:
            found.append((low, high, path, bases[path]))
    return sorted(found)


def _symbols(path: str) -> tuple[list[int], list[str]]:
    """Addresses and names of a file's functions; both empty where binutils or symbols are missing."""
    try:
        done = subprocess.run(
            ["nm", "-C", "-n", "--defined-only", path], capture_output=True, text=True, timeout=10, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return [], []
    rows = [line.split(" ", 2) for line in done.stdout.splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[1] in "tTwWiuVv"]
    return [int(row[0], 16) for row in rows], [row[2] for row in rows]


def _name_at(symbols: tuple[list[int], list[str]], offset: int) -> str:
    at = bisect.bisect_right(symbols[0], offset) - 1
    return symbols[1][at] if at >= 0 else "?"
