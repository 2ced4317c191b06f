"""The second half of a profile: one call of the candidate under valgrind."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import RunnerFailed
from ..isolation.calls import InputSet
from ..pool.runner_pool import Bench
from ..protocol.untrusted import text
from ..runner.profiling.stack_sampler import kind_of
from . import callgrind, launch
from .callgrind import Cache, Counts
from .launch import Seat

_MAX_OUTPUT_BYTES = 24 * 1024 * 1024
_SLOWDOWN = 100  # instrumented against native; rather more for floating point


class NotCounted(Exception):
    """Why there are no counts."""


@dataclass(frozen=True)
class Counted:
    """The counts of one call, and what version of valgrind made them."""

    counts: Counts
    valgrind: str
    warm: bool

    def to_json(self, caches: dict[str, Cache]) -> dict[str, Any]:
        """The `counts` of a profile."""
        total = dict(zip(callgrind.EVENTS, self.counts.total, strict=True))
        whole = max(1, total["Ir"])
        return {
            "source": (
                f"callgrind ({self.valgrind}) of one call on one thread, on a build without AVX-512 and without fused "
                "multiply-add: compare figures with each other, not with those of the timed build; claimed by the "
                "candidate's process"
            ),
            "caches_filled_by_a_call_before": self.warm,
            "simulated_caches": {name: cache.to_json() for name, cache in caches.items()},
            "instructions": total["Ir"],
            "data_reads": total["Dr"],
            "data_writes": total["Dw"],
            "l1_data_read_misses": total["D1mr"],
            "l1_data_write_misses": total["D1mw"],
            "last_level_data_read_misses": total["DLmr"],
            "last_level_data_write_misses": total["DLmw"],
            "instruction_shares": [
                {"kind": kind, "share": round(spent / whole, 4)}
                for kind, spent in self.counts.by_kind.most_common(8)
                if spent >= whole / 1000
            ],
            "own_functions": [
                {**row, "function": text(row["function"]), "object": text(row["object"], 40)}
                for row in self.counts.functions()
            ],
            "hot_lines": [{**row, "at": text(row["at"], 60)} for row in self.counts.hot_lines()],
        }


def count(bench: Bench, sets: list[InputSet], left_s: Callable[[], float], call_s: float) -> Counted:
    """Count one call; `call_s` is the processor time of one without valgrind.

    Raises:
        NotCounted: it cannot be done, or not in the time that is left.
        Finding: processes cannot be killed.
    """
    if shutil.which("valgrind") is None:
        raise NotCounted("valgrind is not installed")
    budget_s = left_s()
    if call_s * _SLOWDOWN > budget_s:
        raise NotCounted(f"one call would take valgrind more than the {budget_s:.0f} s that are left")
    warm = 2 * call_s * _SLOWDOWN < budget_s / 2
    doing = "valgrind could not start Python"
    seated: Seat | None = None
    try:
        seated = launch.seat(bench, timeout_s=left_s(), counting=True)
        doing = "the candidate cannot be built for valgrind, without AVX-512"
        seconds = min(bench.request.build_timeout_s, left_s())
        bench.request = replace(bench.request, build_timeout_s=seconds)
        bench.furnish(seated.handle, bench.request.candidate_source, "ModelNew")
        for inputs in sets:
            seated.handle.give({"op": "arguments"}, inputs.tree, inputs.contents, timeout_s=left_s())
        doing = "a call under valgrind failed"
        seated.handle.ask({"op": "count", "warm": warm}, timeout_s=left_s())
        written = launch.read_claimed(callgrind.output(seated.folder), _MAX_OUTPUT_BYTES)
    except RunnerFailed as failure:
        raise NotCounted(_explain(doing, failure)) from None
    except OSError as error:
        raise NotCounted(f"callgrind left no output: {error.strerror}") from None
    finally:
        if seated is not None:
            bench.dismiss(seated.handle)
    home = str(seated.folder.parent.parent)
    counts = callgrind.parse(written, lambda path: kind_of(path, home))
    if counts.total[0] == 0:
        raise NotCounted("callgrind saw no instruction")
    return Counted(counts, _version(), warm)


def _explain(doing: str, failure: RunnerFailed) -> str:
    if failure.kind == "timed_out":
        return f"{doing}: it was not done in the time that was left"
    if "SIGILL" in failure.message:
        return f"{doing}: an instruction that {_version()} does not know (SIGILL)"
    return f"{doing}: {text(failure.message, 160)}"


def _version() -> str:
    try:
        done = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "valgrind"
    return done.stdout.strip()[:40] or "valgrind"
