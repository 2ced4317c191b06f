"""The candidate as it was timed (the same process, threads and build), watched while its model is called.

The kernel's accounts are read from outside the process. All other figures are claims, because the candidate shares the
process that answers.
"""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ....errors import RunnerFailed
from ....isolation.calls import InputSet
from ....pool.runner_pool import RunnerPool
from ....protocol import untrusted
from ....protocol.untrusted import number, share, text
from . import compiler_remarks, launch
from .launch import ProfiledRunner

PARTS = ("calls", "operators", "processor_time", "vectorization")
_WATCH_S = 1.0
_SAMPLE_S = 1.5
_MIN_SAMPLES = 20
_MIN_BUSY_SHARE = 0.02  # of the time; a thread that ran less is not counted as used
_MAX_REMARKS_BYTES = 32 * 1024 * 1024
_INSTRUCTIONS = 24  # of a stretch of machine code
_CLAIM = "claimed by the candidate's process"
_FAILURES = (RunnerFailed, ValueError, TypeError, KeyError, OSError)


@dataclass
class Observed:
    """The parts of a profile, and the reasons for those that are absent."""

    parts: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def give_up(self, reason: str) -> None:
        """Name `reason` for each part that is neither there nor named as absent."""
        for name in PARTS:
            if name not in self.parts:
                self.absent.setdefault(name, reason)


def observe(pool: RunnerPool, inputs: list[InputSet], left_s: Callable[[], float], observed: Observed) -> None:
    """Build the candidate and observe its calls.

    Args:
        bench: Where the candidate runs.
        inputs: The calls use these sets in turn.
        left_s: Returns the seconds that are left.
        observed: Receives each part, or the reason why it is absent.

    Raises:
        Finding: the candidate's processes cannot be killed.
    """
    try:
        runner = launch.start(pool, left_s)
    except RunnerFailed as failure:
        observed.give_up(f"the profiled runner could not be started: {_reason(failure)}")
        return
    failed = ""
    try:
        pool.load_model(runner.handle, pool.request.candidate_source, "ModelNew")
        for each in inputs:
            runner.give_arguments(each)
        calls = observed.parts["calls"] = _calls(runner)
        claims = {"operators": partial(_operators, runner, calls), "processor_time": partial(_processor_time, runner)}
        for name, part in claims.items():
            try:
                observed.parts[name] = part()
            except _FAILURES as error:
                observed.absent[name] = _reason(error)
                if not _can_go_on(error):
                    raise
    except _FAILURES as error:
        failed = f"the candidate failed while it was profiled: {_reason(error)}"
    _vectorization(runner, observed)
    if failed:
        observed.give_up(failed)
    pool.stop(runner.handle)


def _reason(error: Exception) -> str:
    """An error as a short line."""
    if isinstance(error, KeyError):
        return f"the process gave an answer without {text(error, 40)}"
    return text(error.message if isinstance(error, RunnerFailed) else error, 200)


def _can_go_on(error: Exception) -> bool:
    """Whether the runner can be asked again after this error."""
    return not isinstance(error, RunnerFailed) or error.kind in ("error", "output", "out_of_memory")


@dataclass(frozen=True)
class Usage:
    """What the kernel accounts of a process: processor time by thread, page faults so far, memory now and at most."""

    threads_s: dict[int, float]
    minor_faults: int
    major_faults: int
    memory_bytes: int
    peak_memory_bytes: int


def read_usage(pid: int) -> Usage:
    """The present figures of a process.

    Raises:
        OSError: it has ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory = dict.fromkeys(("VmRSS", "VmHWM"), 0)
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in memory:
            memory[key] = int(value.split()[0]) << 10
    threads_s = {}
    for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            threads_s[int(name)] = _thread_s(Path(f"/proc/{pid}/task/{name}"))
    return Usage(threads_s, int(fields[7]), int(fields[9]), memory["VmRSS"], memory["VmHWM"])


def _thread_s(folder: Path) -> float:
    """Processor time of a thread: to the nanosecond where the scheduler keeps it, else in clock ticks."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_shares(before: Usage, after: Usage, seconds: float) -> list[float]:
    """For each thread that ran at least 2 % of `seconds`, the share of them that it ran; busiest first."""
    shares = [(spent - before.threads_s.get(thread, 0.0)) / seconds for thread, spent in after.threads_s.items()]
    return sorted((min(1.0, value) for value in shares if value >= _MIN_BUSY_SHARE), reverse=True)


def _calls(runner: ProfiledRunner) -> dict[str, Any]:
    """Time, threads, page faults and memory of a call, by the kernel's accounts."""
    runner.ask("repeat", calls_min=4, seconds=0.2)
    runner.handle.ask({"op": "settle"}, timeout_s=runner.left_s())
    before = read_usage(runner.handle.pid)
    start = time.perf_counter()
    reply = runner.ask("repeat", calls_min=3, seconds=_WATCH_S)
    seconds = time.perf_counter() - start
    after = read_usage(runner.handle.pid)
    calls = max(1, int(number(reply["calls"])))
    shares = busy_shares(before, after, seconds)
    spent_s = sum(after.threads_s.values()) - sum(before.threads_s.get(thread, 0.0) for thread in after.threads_s)
    return {
        "source": "the kernel's accounts of the candidate's process; the number of calls is claimed by it",
        "calls_watched": calls,
        "uses_torch_compile": reply.get("compiles") is True,
        "wall_ms_per_call": _rounded(seconds * 1e3 / calls),
        "processor_ms_per_call": _rounded(spent_s * 1e3 / calls),
        "threads_used": len(shares),
        "threads_alive": len(after.threads_s),
        "thread_busy_shares": [round(value, 3) for value in shares[:16]],
        "minor_page_faults_per_call": _rounded((after.minor_faults - before.minor_faults) / calls),
        "major_page_faults_per_call": _rounded((after.major_faults - before.major_faults) / calls),
        "process_memory_mib": after.memory_bytes >> 20,
        "process_peak_memory_mib": after.peak_memory_bytes >> 20,
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _operators(runner: ProfiledRunner, calls: dict[str, Any]) -> dict[str, Any]:
    """Time of torch operators and allocations through torch, of as many calls as take about a second."""
    count = max(2, min(20, int(1000 / max(calls["wall_ms_per_call"], 1e-3))))
    reply = runner.ask("operators", calls=count)
    found: dict[str, Any] = {
        "source": f"torch's profiler, {_CLAIM}; shares of wall time with the profiler on",
        "calls_profiled": count,
        "operators": [
            {
                "operator": text(name),
                "calls_per_call": number(times, digits=2),
                "self_ms_per_call": number(own_ms, digits=5),
                "share": share(part),
            }
            for name, times, own_ms, part in untrusted.rows(reply["rows"], width=4, limit=12)
        ],
        "outside_operators_share": share(reply["outside_share"]),
    }
    allocations = reply["allocations"]
    if allocations is not None:
        found["allocations_per_call"] = number(allocations["count"], digits=2)
        found["allocated_bytes_per_call"] = int(number(allocations["bytes"]))
    return found


def _processor_time(runner: ProfiledRunner) -> dict[str, Any]:
    """Processor time by kind of code, function and instruction of the candidate's own libraries.

    Raises:
        ValueError: there are too few samples to tell.
    """
    reply = runner.ask("sample", seconds=_SAMPLE_S)
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
        "hot_code": [
            {
                "function": text(name),
                "object": text(where, 40),
                "share": share(part),
                "instructions": [
                    {
                        "share": share(own),
                        "text": text(instruction, 120),
                        "at": text(f"{text(file, 60)}:{int(number(line))}", 80) if file else "",
                    }
                    for own, instruction, file, line in untrusted.rows(rows, width=4, limit=_INSTRUCTIONS)
                ],
            }
            for name, where, part, rows in untrusted.rows(reply["hot_code"], width=4, limit=3)
        ],
    }


def _vectorization(runner: ProfiledRunner, observed: Observed) -> None:
    """What g++ said about the loops of the candidate's own C++, also where the candidate failed later."""
    remarks = []
    left = _MAX_REMARKS_BYTES
    for path in launch.files(runner.folder, compiler_remarks.FILE_PREFIX):
        with contextlib.suppress(OSError):
            remarks.append(launch.read_claimed(path, left))
            left -= len(remarks[-1])
    loops = compiler_remarks.parse("\n".join(remarks))
    if loops:
        observed.parts["vectorization"] = {
            "source": "remarks of g++ on the candidate's own files",
            "loops": compiler_remarks.condense(loops),
            "loops_seen": len(loops),
        }
    elif remarks:
        observed.absent["vectorization"] = "g++ tried to vectorise no loop in the candidate's own files"
    else:
        observed.absent["vectorization"] = "nothing was compiled by g++"
