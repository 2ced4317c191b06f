"""What the kernel counts about a stopped process, read from outside: no claim of the process itself."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunnerFailed
from ..isolation.calls import InputSet
from ..isolation.handle import Handle
from ..pool.runner_pool import Bench
from ..protocol import untrusted
from ..protocol.untrusted import number, share, text
from . import compiler_remarks, launch
from .compiler_remarks import Loop
from .launch import Seat


@dataclass(frozen=True)
class Usage:
    """Processor time by thread (seconds), page faults so far, memory now and at most (bytes)."""

    threads_s: dict[int, float]
    minor_faults: int
    major_faults: int
    memory_bytes: int
    peak_memory_bytes: int


def read(pid: int) -> Usage:
    """The present figures of a process.

    Raises:
        OSError: it is gone.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory = dict.fromkeys(("VmRSS", "VmHWM"), 0)
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in memory:
            memory[key] = int(value.split()[0]) << 10
    return Usage(_threads(pid), int(fields[7]), int(fields[9]), memory["VmRSS"], memory["VmHWM"])


def _threads(pid: int) -> dict[int, float]:
    found = {}
    for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            found[int(name)] = _thread_s(Path(f"/proc/{pid}/task/{name}"))
    return found


def _thread_s(folder: Path) -> float:
    """To the nanosecond where the scheduler keeps it, else in ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_threads(before: Usage, after: Usage, seconds: float) -> list[float]:
    """Share of the time that each thread ran, for threads that ran at least 2 % of it, busiest first."""
    shares = [(spent - before.threads_s.get(thread, 0.0)) / seconds for thread, spent in after.threads_s.items()]
    return sorted((min(1.0, share) for share in shares if share >= 0.02), reverse=True)


_WATCH_S = 1.0
_SAMPLE_S = 1.5
_MIN_SAMPLES = 20
_MAX_REMARKS_BYTES = 32 * 1024 * 1024
_CLAIM = "claimed by the candidate's process"


@dataclass
class Observed:
    """Parts of the profile, reasons for missing ones, and the loops of the candidate's own C++."""

    parts: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)


def observe(bench: Bench, sets: list[InputSet], left_s: Callable[[], float]) -> Observed:
    """Build the candidate and watch its calls; `left_s` says how much time there is.

    Raises:
        Finding: its processes cannot be killed.
    """
    observed = Observed()
    try:
        seated = launch.seat(bench, timeout_s=left_s())
    except RunnerFailed as failure:
        observed.absent["calls"] = f"the profiled process could not be started: {reason(failure)}"
        return observed
    try:
        bench.furnish(seated.handle, bench.request.candidate_source, "ModelNew")
        for inputs in sets:
            seated.handle.give({"op": "arguments"}, inputs.tree, inputs.contents, timeout_s=left_s())
        observed.parts |= _watch(seated.handle, left_s)
        for name, part in _PARTS.items():
            try:
                observed.parts[name] = part(seated.handle, left_s, observed.parts)
            except (RunnerFailed, ValueError, TypeError, KeyError) as error:
                observed.absent[name] = reason(error)
                if not alive(error):
                    raise
    except (RunnerFailed, ValueError, TypeError, KeyError, OSError) as error:
        for name in ("calls", *_PARTS):
            if name not in observed.parts:
                observed.absent.setdefault(name, f"the candidate failed while it was profiled: {reason(error)}")
    finally:
        _read_remarks(seated, observed)
        bench.dismiss(seated.handle)
    return observed


def reason(error: Exception) -> str:
    """An error as a short line."""
    if isinstance(error, KeyError):
        return f"the process gave an answer without {text(error, 40)}"
    return text(error.message if isinstance(error, RunnerFailed) else error, 200)


def alive(error: Exception) -> bool:
    """Whether a runner can be asked again after this."""
    return not isinstance(error, RunnerFailed) or error.kind in ("error", "output", "out_of_memory")


def _watch(handle: Handle, left_s: Callable[[], float]) -> dict[str, Any]:
    """Call for a while; the figures are the kernel's, but for the number of calls."""
    handle.ask({"op": "repeat", "calls_min": 4, "seconds": 0.2}, timeout_s=left_s())
    handle.ask({"op": "settle"}, timeout_s=left_s())
    before = read(handle.pid)
    start = time.perf_counter()
    reply = handle.ask({"op": "repeat", "calls_min": 3, "seconds": _WATCH_S}, timeout_s=left_s())
    seconds = time.perf_counter() - start
    after = read(handle.pid)
    calls = max(1, int(number(reply["calls"])))
    threads = used_threads(before, after, seconds)
    spent_s = sum(after.threads_s.values()) - sum(before.threads_s.get(thread, 0.0) for thread in after.threads_s)
    return {
        "calls": {
            "source": "the kernel's accounts of the candidate's process; the number of calls is claimed by it",
            "calls_watched": calls,
            "uses_torch_compile": reply.get("compiles") is True,
            "wall_ms_per_call": _rounded(seconds * 1e3 / calls),
            "processor_ms_per_call": _rounded(spent_s * 1e3 / calls),
            "threads_used": len(threads),
            "threads_alive": len(after.threads_s),
            "thread_busy_shares": [round(value, 3) for value in threads[:16]],
            "minor_page_faults_per_call": _rounded((after.minor_faults - before.minor_faults) / calls),
            "major_page_faults_per_call": _rounded((after.major_faults - before.major_faults) / calls),
            "process_memory_mib": after.memory_bytes >> 20,
            "process_peak_memory_mib": after.peak_memory_bytes >> 20,
        }
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _operators(handle: Handle, left_s: Callable[[], float], parts: dict[str, Any]) -> dict[str, Any]:
    call_ms = parts["calls"]["wall_ms_per_call"]
    calls = max(2, min(20, int(1000 / max(call_ms, 1e-3))))
    reply = handle.ask({"op": "operators", "calls": calls}, timeout_s=left_s())
    found: dict[str, Any] = {
        "source": f"torch's profiler, {_CLAIM}; shares of wall time with the profiler on",
        "calls_profiled": calls,
        "operators": [
            {
                "operator": text(name),
                "calls_per_call": number(count, digits=2),
                "self_ms_per_call": number(own_ms, digits=5),
                "share": share(part),
            }
            for name, count, own_ms, part in untrusted.rows(reply["rows"], width=4, limit=12)
        ],
        "outside_operators_share": share(reply["outside_share"]),
    }
    allocations = reply["allocations"]
    if allocations is not None:
        found["allocations_per_call"] = number(allocations["count"], digits=2)
        found["allocated_bytes_per_call"] = int(number(allocations["bytes"]))
    return found


def _processor_time(handle: Handle, left_s: Callable[[], float], _: dict[str, Any]) -> dict[str, Any]:
    reply = handle.ask({"op": "sample", "seconds": _SAMPLE_S}, timeout_s=left_s())
    samples = int(number(reply["samples"]))
    if samples < _MIN_SAMPLES:
        raise ValueError(f"only {samples} samples were taken")
    return {
        "source": f"a signal at each tick of processor time, {_CLAIM}",
        "samples": samples,
        "kinds": [
            {"kind": text(kind, 40), "share": share(part)}
            for kind, part in untrusted.rows(reply["kinds"], width=2, limit=12)
        ],
        "own_functions": [
            {"function": text(name), "object": text(where, 40), "share": share(part)}
            for name, where, part in untrusted.rows(reply["functions"], width=3, limit=12)
        ],
    }


_PARTS: dict[str, Callable[[Handle, Callable[[], float], dict[str, Any]], dict[str, Any]]] = {
    "operators": _operators,
    "processor_time": _processor_time,
}


def _read_remarks(seated: Seat, observed: Observed) -> None:
    found = []
    left = _MAX_REMARKS_BYTES
    for path in launch.files(seated.folder, "remarks."):
        try:
            found.append(launch.read_claimed(path, left))
        except OSError:
            continue
        left -= len(found[-1])
    observed.loops = compiler_remarks.parse("\n".join(found))
    if not observed.loops:
        observed.absent["vectorization"] = (
            "g++ tried to vectorise no loop in the candidate's own files" if found else "nothing was compiled by g++"
        )
