"""Which code a candidate's time goes into, seen from outside: stop it at random moments and look where it stands.

What a candidate says of itself is a claim; where its threads stand when they are stopped is not. But it may notice that
it is being looked at, and do something else then: this decides tags that no rank depends on, and nothing more.
"""

import contextlib
import os
import random
import re
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from ...errors import RunnerFailed
from ...isolation.calls import InputSet
from ...isolation.handle import RunnerHandle
from ...isolation.procfs import FreezeError, freeze, stop, thaw
from ...protocol import untrusted
from ..base import OWN_SHARE, OwnCode

GENERATED_CODE = "[generated code]"
_IN_NO_SYSTEM_CALL = "-1"
_INSTALLED = (sys.prefix, sys.base_prefix, "/usr", "/lib")
_SAMPLES = 48
_FEW_SAMPLES = 16  # where a rough answer will do
_BUDGET_S = 0.6
_PATIENCE_S = 3.0
_ENOUGH = 8  # samples that decide: with fewer, one sample of an allocation would count a kernel as none
_ENOUGH_FOR_NONE = 40  # samples that show a loaded kernel unused
_LOOKS = 400
# The runner of a call shorter than this gives way; on a busy core that costs so much that longer ones would hang.
_SHORT_S = 0.02
_OPERATORS = 6
_TORCH_AROUND = ("gomp", "libtorch_python", "libc10")  # waiting, bindings and allocation, which any candidate uses
_NAME_CHARACTERS = 60
_NO_NAME = re.compile(r"[^A-Za-z0-9_.:<>\[\]+-]+")


@dataclass
class CodeSamples:
    """How often threads stood in which file; those that waited inside the kernel are not counted."""

    files: Counter[str] = field(default_factory=Counter)

    def own_share(self, cache: str, kernels: str = "") -> float | None:
        """The share of the candidate's own files in what it and torch computed; None if too little was seen of either.

        Python, torch's bindings and allocation, the C library and OpenMP's waiting count for neither side, nor does
        code made at run time, which torch's own libraries make, too. Files below `cache` are what torch.compile made.
        Where `kernels` names a folder, own files elsewhere are not written in the platform's language, and count as
        torch's do.
        """
        own, other = self._sides(cache, kernels)
        return own / (own + other) if own + other >= _ENOUGH else None

    def encoder(self, cache: str, kernels: str = "") -> int:
        """How many samples count for either side."""
        return sum(self._sides(cache, kernels))

    def few_of_own(self, cache: str, kernels: str = "") -> bool:
        """Whether a kernel of its own would count as none, by samples that are too few to say so."""
        own, other = self._sides(cache, kernels)
        return own < OWN_SHARE * (own + other) and own + other < _ENOUGH_FOR_NONE

    def _sides(self, cache: str, kernels: str) -> tuple[int, int]:
        own = other = 0
        for name, count in self.files.items():
            if is_own(name) and not name.startswith(cache) and name.startswith(kernels):
                own += count
            elif is_own(name) or _is_torch(name):
                other += count
        return own, other

    def shares(self) -> list[list[str | float]]:
        """The most frequent files, by their last part, with the share of each."""
        total = sum(self.files.values()) or 1
        return [[_name(Path(name).name), round(count / total, 3)] for name, count in self.files.most_common(8)]


def own_code(
    candidate: RunnerHandle,
    inputs: InputSet,
    rng: random.Random,
    *,
    call_s: float,
    timeout_s: float,
    brief: bool = False,
    kernels: str = "",
) -> OwnCode:
    """As seen from outside (`watch`), and torch's operators as the candidate's process names them.

    `kernels` as in `CodeSamples.own_share`; with `brief` fewer samples suffice.

    Raises:
        RunnerFailed: a call failed.
    """
    cache = f"{candidate.home}/built/inductor"
    samples = _FEW_SAMPLES if brief else _SAMPLES
    found = watch(
        candidate, inputs, rng, cache=cache, call_s=call_s, timeout_s=timeout_s, samples=samples, kernels=kernels
    )
    facts: dict[str, Any] = {"time_by_file": found.shares()}
    with contextlib.suppress(RunnerFailed):
        reply = candidate.give({"op": "top_operators"}, inputs.tree, inputs.contents, timeout_s=60)
        facts["torch_operators_claimed"] = claimed_operators(reply)
    return OwnCode(found.own_share(cache, kernels), facts)


def claimed_operators(reply: Mapping[str, Any]) -> list[list[str | float]]:
    """Operators with their shares of time, as the candidate's process tells them; none if it tells nonsense."""
    try:
        return [
            [_name(str(name)), untrusted.share(share)]
            for name, share in untrusted.rows(reply.get("operators"), width=2, limit=_OPERATORS)
        ]
    except ValueError:
        return []


def _name(text: str) -> str:
    """What a candidate has named, without what could be taken for words or for a terminal's codes."""
    return _NO_NAME.sub("_", text[:_NAME_CHARACTERS]) or "_"


def watch(
    handle: RunnerHandle,
    inputs: InputSet,
    rng: random.Random,
    *,
    cache: str,
    call_s: float,
    timeout_s: float,
    samples: int = _SAMPLES,
    kernels: str = "",
) -> CodeSamples:
    """Call the model again and again, each time stopping it once at a random moment, until there are `samples`.

    A short call is over before a referee that wakes up in the middle of it gets a core, unless its runner gives way.
    A kernel that is loaded and was not seen at work is looked for longer: that it is small does not make it unused.
    Where that lets others on the machine keep a call from ending, the looks end; what was timed before stands.

    Raises:
        RunnerFailed: a call failed.
    """
    gives_way = call_s < _SHORT_S
    if gives_way:
        handle.ask({"op": "give_way"}, timeout_s=timeout_s)
    found, code = CodeSamples(), _Code(handle.pid)
    started = time.perf_counter()
    for _ in range(_LOOKS):
        seen, spent_s = sum(found.files.values()), time.perf_counter() - started
        # A short call is seldom caught at work, and on a busy machine most threads stand where OpenMP waits: then it is
        # worth looking for longer.
        enough = found.encoder(cache, kernels) >= _ENOUGH
        if enough and found.few_of_own(cache, kernels):
            enough = not code.holds_own(cache, kernels)
        if spent_s > (_BUDGET_S if enough else _PATIENCE_S) or (enough and seen >= samples):
            break
        try:
            handle.call(
                inputs.tree,
                inputs.contents,
                seed=inputs.seed,
                timeout_s=timeout_s,
                meanwhile=lambda: _look(handle, rng.random() * call_s, found, code),
            )
        except RunnerFailed as failure:
            if not gives_way or failure.kind != "timed_out":
                raise
            break
    return found


class _Code:
    """Which file a process's code is of, by address."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._mappings: list[tuple[int, int, str]] = []

    def file_at(self, counter: int) -> str:
        """The file; `GENERATED_CODE` if it is of none. What is mapped is read anew where nothing known lies there.

        Raises:
            OSError: the process is gone.
        """
        name = self._known(counter)
        if name is None:
            self._mappings = executable_mappings(self._pid)
            name = self._known(counter)
        return GENERATED_CODE if name is None else name

    def holds_own(self, cache: str, kernels: str) -> bool:
        """Whether files are mapped that count as the candidate's own (`own_share`); of a process that is gone, none."""
        files: set[str] = set()
        with contextlib.suppress(OSError):
            files = executable_files(self._pid)
        return any(is_own(name) and not name.startswith(cache) and name.startswith(kernels) for name in files)

    def _known(self, counter: int) -> str | None:
        index = bisect_right(self._mappings, counter, key=itemgetter(0)) - 1
        return self._mappings[index][2] if index >= 0 and counter < self._mappings[index][1] else None


def _look(handle: RunnerHandle, after_s: float, found: CodeSamples, code: _Code) -> None:
    time.sleep(after_s)
    stop([handle.pid])  # at once; finding the runner's other processes may take a while
    try:
        freeze(handle.members)
        found.files.update(_positions(handle.pid, code))
    except (FreezeError, OSError):
        pass  # nothing was seen
    finally:
        thaw(handle.members())


def executable_mappings(pid: int) -> list[tuple[int, int, str]]:
    """What code a process could run: start, end and file of each executable mapping, in order of address.

    Memory of no file is `GENERATED_CODE`; names in brackets are no files either.
    """
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").split("\n")[:-1]:
        fields = line.split(None, 5)
        if "x" in fields[1]:
            start, _, end = fields[0].partition("-")
            name = fields[5].strip() if len(fields) > 5 else GENERATED_CODE
            found.append((int(start, 16), int(end, 16), name))
    return found


def has_own_code(handle: RunnerHandle, reference: RunnerHandle, folder: str = "") -> bool:
    """Whether a runner has mapped executable files of its own making (below `folder`) that the reference has not.

    Raises:
        RunnerFailed: one of the two has ended.
    """
    own, others = (set(filter(is_own, each.look(executable_files))) for each in (handle, reference))
    return any(name.startswith(folder) for name in own - others)


def executable_files(pid: int) -> set[str]:
    """The files of these mappings."""
    return {name for _, _, name in executable_mappings(pid)}


def is_own(name: str) -> bool:
    """Whether a mapped file is of the candidate's making: neither the system's nor Python's, and a file at all."""
    return not name.startswith((*_INSTALLED, "["))


def _is_torch(name: str) -> bool:
    return name.startswith(_INSTALLED) and "/torch/" in name and not any(part in name for part in _TORCH_AROUND)


def _positions(pid: int, code: _Code) -> list[str]:
    """The file that each running thread of a stopped process stands in."""
    counters = [_program_counter(pid, task) for task in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    return [code.file_at(counter) for counter in counters if counter is not None]


def _program_counter(pid: int, task: str) -> int | None:
    """Where a stopped thread stands (proc(5), /proc/PID/syscall); None if it waits in a system call."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/task/{task}/syscall").read_text().split()
        if fields[0] == _IN_NO_SYSTEM_CALL:
            return int(fields[2], 16)
    return None
