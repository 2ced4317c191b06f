"""The runner pool of an evaluation: it starts runners and gives them a model and its parameters."""

import contextlib
import itertools
import math
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..correctness import state_check
from ..errors import MORE_MEMORY, Finding, RunnerFailed, of_task
from ..isolation import exhaustion
from ..isolation.calls import copy_value, tensor
from ..isolation.handle import FOREIGN_ROLES, RunnerHandle, RunnerShared
from ..isolation.memory_kills import MemoryKills, used_bytes
from ..platforms.base import Account, Platform
from ..platforms.load import load_platform
from ..protocol import allocator, input_families
from ..protocol.baselines import OTHERS, SOURCE_KERNEL
from ..protocol.device_memory import on_device
from ..protocol.gpu_checks import ARCHITECTURES
from ..protocol.smaller_shapes import Smaller
from ..protocol.tensors import TensorRow, Tree, bytes_needed
from . import build_archive
from .memory_need import Need
from .seeds import Seeds

_NO_BASELINE = (
    "a task whose reference is a source kernel has no baseline to time against: it is judged where nothing is timed "
    "(platforms cuda and triton); write class Model beside the kernel for others"
)
_CALLS_COMPILER = re.compile(r"torch\s*\.\s*compile\b|from torch import[^\n]*\bcompile\b|torch\._dynamo|\.compile\(\)")
# What a candidate may hold beyond what eager holds: so many times its outputs (whose memory may wait to be used again),
# twice its inputs and parameters (kept in another form, say), and a workspace.
HELD_OUTPUTS = 8
WORKSPACE_BYTES = 64 << 20
COMPILER_BYTES = 64 << 20
"""Besides, for a candidate that calls torch.compile: 129 MiB more than eager were seen for a small op in all."""
_PROCESS_BYTES = 256 << 20  # that a runner of eager's holds, besides tensors
_FIRST_UID = 20001  # each runner gets a uid of its own, so that it cannot reach another's files or processes


@dataclass(frozen=True)
class Request:
    """The host's request. It is read from standard input after the fork server has been forked."""

    platform: str
    task_source: str
    device: int = 0  # which of the host's devices of this platform
    source_kernel: dict[str, str] = field(default_factory=dict)  # `platform` and `source` of the reference; or empty
    candidate_source: str = ""
    champion_source: str = ""  # another candidate, which this one is compared with; empty: there is none
    trial: bool = False  # whether timing ends as soon as it is decided which of the two is better
    memory_mb: int = 8192
    build_timeout_s: float = 120.0
    call_timeout_s: float = 20.0
    measure_budget_s: float = 20.0
    precision: float = 0.2  # the width at which an interval is narrow enough to stop measuring early
    wall_s: float = 420.0  # the time after which the sandbox is ended in any case
    baselines: tuple[str, ...] = ("eager", "compile")
    # Base64 archives that an earlier evaluation of the same task returned, by baseline: see `Baselines`.
    baseline_caches: dict[str, str] = field(default_factory=dict)
    build_cache: str = ""  # base64 archive that an earlier evaluation of the same candidate returned
    champion_cache: str = ""  # that of the champion
    tolerance: dict[str, float] = field(default_factory=dict)  # declared by the task, by dtype
    domain: tuple[str, ...] = ()  # declared by the task: `input_families.DOMAINS`, one for all inputs or one for each
    shape_groups: bool = False  # whether the task has a get_input_groups()
    shape_group: int | None = None  # which of its lists stands for that of get_inputs(), and the other way round
    cold: bool = False  # whether timed calls find none of their data in the caches
    sanitize: bool = False  # whether a profile on a GPU has compute-sanitizer watch a call
    rules: tuple[str, ...] = ()  # other accuracy rules to report on: `kernelbench`
    architectures: tuple[str, ...] = ARCHITECTURES  # what kernels for GPUs are compiled for
    peaks: dict[str, tuple[float, int]] = field(default_factory=dict)  # what the device has shown: rate, how often
    weights: list[list[Any]] | None = None  # given ones: name, dtype, shape, and bytes from and before

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Request":
        """Read the host's request."""
        several = ("baselines", "domain", "rules", "architectures")
        tuples = {name: tuple(data.get(name, getattr(cls, name))) for name in several}
        peaks = {name: (float(rate), int(times)) for name, (rate, times) in data.get("peaks", {}).items()}
        return cls(**{**data, **tuples, "peaks": peaks})


def calls_compiler(source: str) -> bool:
    """Whether foreign code seems to call torch.compile, whose modules take 100 MB and more than a second to import.

    It decides where its runner is forked, and what it may hold. Code that hides the call imports them itself, and may
    not hold more.
    """
    return _CALLS_COMPILER.search(source) is not None


@dataclass
class RunnerPool:
    """The runners of one evaluation and what they share. The secret of `seeds` is published only with the verdict."""

    request: Request
    fork_server: socket.socket
    compiler_fork_server: socket.socket  # has torch.compile's machinery imported
    scratch: str
    seeds: Seeds = field(default_factory=Seeds)
    room: exhaustion.Room = field(init=False)  # for files, when the evaluation began
    platform: Platform = field(init=False)
    account: Account = field(init=False)
    kills: MemoryKills = field(default_factory=MemoryKills)
    locks: tuple[threading.Lock, threading.Lock] = field(default_factory=lambda: (threading.Lock(), threading.Lock()))
    running: list[RunnerHandle] = field(default_factory=list)
    uids: Iterator[int] = field(default_factory=lambda: itertools.count(_FIRST_UID))
    init: tuple[Tree, list[torch.Tensor]] | None = None
    initial: dict[str, torch.Tensor] = field(default_factory=dict)  # the model's state as its constructor leaves it
    state: tuple[Tree, list[torch.Tensor]] | None = None  # the state that every runner is given
    names_of: dict[str, state_check.Names] = field(default_factory=dict)  # of foreign models' tensors, by role
    own_rows: dict[str, dict[str, TensorRow]] = field(default_factory=dict)  # these tensors by their names, by role
    input_bytes: int = 0
    output_bytes: int = 0  # of the reference's outputs, once it has been called
    kept_bytes: int = 0  # of outputs that the candidate's runner was told to keep
    temporary_bytes: int = 0  # what its process took in a call besides them
    smaller: Smaller | None = None  # how all inputs are made smaller than the task's
    kernel_built: str = field(init=False)  # what the kernel that is the reference was built to; packed, or empty
    peaks: dict[str, float] = field(default_factory=dict)  # the points that were measured, in this evaluation
    weights: bytearray = field(default_factory=bytearray, repr=False)  # the bytes of `request.weights`
    call_loop: str | None = None  # the language of the runner's part of timed calls, as the reference's runner says
    one_by_one: bool = False  # whether the task's generator uses the memory of earlier inputs again

    def __post_init__(self) -> None:
        """Load the platform that the request names."""
        self.room = exhaustion.Room.of(self.scratch)
        self.platform = load_platform(self.request.platform, self.request.device)
        self.platform.open(self)
        self.kernel_built = self.request.baseline_caches.get(SOURCE_KERNEL, "")
        self.account = self.platform.account()

    @property
    def weights_limit_bytes(self) -> int:
        """The most that given weights may take."""
        return self.memory_bytes // 3

    @property
    def names(self) -> state_check.Names:
        """What the candidate calls the reference's tensors."""
        return self.names_of.get("candidate", state_check.Names())

    @property
    def memory_bytes(self) -> int:
        """The sandbox's memory limit."""
        return self.request.memory_mb << 20

    def start(self, role: str, source: str = "") -> RunnerHandle:
        """Fork a fresh runner for a role; `source` is the foreign code that it is going to load.

        Raises:
            RunnerFailed: no process could be made.
        """
        compiles = role in OTHERS
        if not compiles and not calls_compiler(source):
            handle = self._fork(self.fork_server, role, source)
        else:
            try:
                handle = self._fork(self.compiler_fork_server, role, source)
            except RunnerFailed:
                if compiles:
                    raise
                # The compiler's modules cannot be imported here. The candidate may do without.
                handle = self._fork(self.fork_server, role, source)
        self.running.append(handle)
        return handle

    def _fork(self, fork_server: socket.socket, role: str, source: str) -> RunnerHandle:
        shared = RunnerShared(
            fork_server,
            self.scratch,
            self.memory_bytes,
            os.geteuid() == 0,
            self.platform,
            self.account,
            self.locks[fork_server is not self.fork_server],
            self.kills,
        )
        return RunnerHandle(shared, role, next(self.uids), source)

    def stop(self, *handles: RunnerHandle) -> None:
        """Kill runners and all processes that they started. They end side by side: giving memory back takes a while.

        Those that have been stopped before are passed over.

        Raises:
            Finding: a process could not be killed.
        """
        handles = tuple(handle for handle in handles if handle in self.running)
        self.kill(*handles)
        left = []
        for handle in handles:
            self.running.remove(handle)
            if not handle.close():
                left.append(handle.role)
        foreign = [handle.uid for handle in handles if handle.role in FOREIGN_ROLES and handle.uid is not None]
        if left:
            role = next((role for role in left if role != "champion"), "champion")
            text = f"processes of the {role} runner could not be killed"
            if role == "champion":
                raise Finding("sandbox_error", text)
            raise Finding("integrity", text, "unkillable")
        exhaustion.clean_up(foreign, self.scratch)

    @staticmethod
    def kill(*handles: RunnerHandle) -> None:
        """Kill runners without waiting for their end. `stop` or `stop_all` comes afterwards."""
        for handle in handles:
            handle.kill()

    def check_hoarding(self, *, ending: bool = False) -> None:
        """Check that no candidate hoards a resource that all runners need.

        Args:
            ending: whether the candidate's runners end in any case, so that they may be stopped to see what this frees.

        Raises:
            Finding: a candidate did, or the sandbox is short of it in any case. The candidate has been stopped.
        """
        self._check_memory(ending=ending)
        for handle in [handle for handle in self.running if handle.role == "champion"]:
            self.stop(handle)  # what it holds is no fault of the candidate
        before = exhaustion.used(self.scratch, self.memory_bytes, _FIRST_UID, self.room)
        if not exhaustion.short(before):
            return
        for handle in [handle for handle in self.running if handle.role == "candidate"]:
            self.stop(handle)
        after = exhaustion.used(self.scratch, self.memory_bytes, _FIRST_UID, self.room)
        hoarded = exhaustion.hoarded(before, after)
        if hoarded is not None:
            code, text = hoarded
            raise Finding("out_of_memory", f"the candidate held {text}, which left too little for others", code)
        if lacking := exhaustion.short(after):
            text = "the sandbox is short of " + exhaustion.named(lacking)
            raise Finding("sandbox_error", text)

    def _check_memory(self, *, ending: bool) -> None:
        """Check that no candidate was why the sandbox had no memory left for others, if the kernel killed any process.

        What a candidate holds is what its processes have mapped, or, if it is `ending`, all that its end frees: files
        in memory need not be mapped.

        Raises:
            Finding: memory ran out in the candidate's own turn, or it holds more than a candidate may.
        """
        if not self.kills.count():
            return
        if self.kills.in_turns["candidate"]:
            text = "the sandbox's memory ran out while the candidate ran: the kernel killed a process"
            raise Finding("out_of_memory", text, "memory")
        if self.kills.in_turns["champion"]:
            text = "the sandbox's memory ran out while the candidate to compare with ran: the kernel killed a process"
            raise Finding("sandbox_error", text, "out_of_memory")
        candidates = [handle for handle in self.running if handle.role == "candidate"]
        held = sum(map(self.platform.held_bytes, candidates))
        if ending and candidates:
            before = used_bytes()
            self.stop(*candidates)
            held = max(held, before - used_bytes())
        if self.state is not None and held > self.may_hold_bytes(_PROCESS_BYTES) + self.kept_bytes:
            text = f"the candidate held {held >> 20} MiB of memory, which left too little for others"
            raise Finding("out_of_memory", text, "memory")

    def may_hold_bytes(self, eager_bytes: int) -> int:
        """What a candidate may hold: what eager holds, and more of what it is given and returns."""
        assert self.state is not None
        given = self.input_bytes + sum(content.numel() for content in self.state[1])
        allowed = eager_bytes + HELD_OUTPUTS * self.output_bytes + 2 * given + WORKSPACE_BYTES
        return allowed + (COMPILER_BYTES if calls_compiler(self.request.candidate_source) else 0)

    def stop_all(self) -> None:
        """Kill all remaining runners. Errors are ignored, because the verdict is settled."""
        with contextlib.suppress(Exception):
            self.stop(*self.running)

    def start_reference(self, *, signs: bool = True) -> RunnerHandle:
        """Start the reference's runner, load the task and build its model. Sets `init`, `state` and `input_bytes`.

        Args:
            signs: whether parameters that the constructor makes all alike may become negative. If the reference's first
                call shows that it does not take that, it is started again without.

        Raises:
            Finding: the task is invalid.
        """
        limit = self.memory_bytes // 3
        if self.request.source_kernel and self.platform.timed != "nothing":
            raise Finding("task_invalid", _NO_BASELINE, "no_baseline")
        handle = self.start("reference")
        with task_step("loading the task"):
            self._load(handle, self.request.task_source, "task", "get_inputs")
            self.init = copy_value(handle, handle.reveal({"op": "init_inputs"}, timeout_s=60), limit)
        with task_step("building the model"):
            tree = self._construct(handle, "Model")
            self.initial = state_check.values_by_name(*copy_value(handle, tree, limit))
            # Without a call it is not known whether the reference takes negative numbers everywhere.
            calls = self.platform.most_work is None and not self.request.source_kernel
            mixed = self._draw_state(handle, signs=signs and calls)
        with task_step("making inputs"):
            [tree] = handle.reveal_each(
                {"op": "inputs", "seeds": [1], "families": [input_families.GENERATED]}, timeout_s=60
            )
            self.input_bytes = bytes_needed(tree)
            self._refuse_if_too_large()
            contents = copy_value(handle, tree, limit)[1]
            self.release(handle)
            handle.attach(self.platform.input_buffer(self.input_bytes, self.slots()))
        # Where inputs become smaller before any call, and where no call is one of torch's, none is seen.
        if calls and not self._see_a_call(handle, tree, contents, doubtful=mixed):
            self.stop(handle)
            return self.start_reference(signs=False)
        return handle

    def _draw_state(self, handle: RunnerHandle, *, signs: bool) -> bool:
        """Have the reference's parameters varied; set `state`. The result: whether some have changed their signs.

        Raises:
            RunnerFailed: the state cannot be read, or takes more than a third of the memory.
        """
        message = {"op": "vary_state", "seed": self.seeds.named("state"), "signs": signs}
        reply = handle.ask(message, timeout_s=60)
        self.state = copy_value(handle, handle.tree_of(reply.get("tree")), self.memory_bytes // 3)
        self.platform.set_state(state_check.values_by_name(*self.state))
        return reply.get("signs") is True

    def _see_a_call(self, handle: RunnerHandle, tree: Tree, contents: list[torch.Tensor], *, doubtful: bool) -> bool:
        """See what one call makes, before anything else is started.

        Args:
            handle: the reference's runner.
            tree: generated inputs.
            contents: their bytes.
            doubtful: whether the reference may not take its state.

        Returns:
            False if it is doubtful, and the call has failed or given NaN or infinities.

        Raises:
            Finding: an evaluation would need more memory than there is, or the call took all that there is.
        """
        slots, timeout_s = self.slots(), max(60.0, self.request.call_timeout_s)
        try:
            handle.ask({"op": "release", "give_back": True}, timeout_s=60)
            handle.look(forget_peak)  # else what making the inputs took would hide what the call takes
            before = handle.look(peak_resident_bytes)
            call = handle.call(tree, contents, seed=self.seeds.named("a first call"), timeout_s=timeout_s)
            after = handle.look(peak_resident_bytes)
            self.output_bytes = sum(row.span_bytes for row in call.outputs.tensors)
            # Tensors on a device are not in the process's memory. What it took in this first call is the libraries'.
            of_host = not any(map(on_device, call.outputs.tensors))
            self.temporary_bytes = max(0, after - before - self.output_bytes) if of_host else 0
            self._refuse_if_too_large()
            taken = not doubtful or all(
                bool(torch.isfinite(tensor(row, handle.read(row))).all()) for row in call.outputs.tensors
            )
            self.release(handle)
        except RunnerFailed as failure:
            if doubtful and not failure.for_memory and failure.kind != "timed_out":
                return False
            if failure.for_memory:
                of = f"(inputs {self.input_bytes >> 20:,} MiB) took all of it, {self.request.memory_mb:,} MiB"
                text = f"one call of the reference {of}; give the task smaller shapes or {MORE_MEMORY}"
                raise Finding("task_invalid", text, "out_of_memory", failure.detail) from None
            raise of_task(failure, doing="its forward pass") from None
        if slots != self.slots():
            with task_step("making inputs"):
                handle.attach(self.platform.input_buffer(self.input_bytes, self.slots()))
        return taken

    def _refuse_if_too_large(self) -> None:
        """Refuse a task that needs more memory than there is, before anything starts that would run out of it.

        Raises:
            Finding: it does.
        """
        if not self.need.fits(self.memory_bytes):
            raise Finding("task_invalid", f"the task {self.need.says(self.memory_bytes)}", "out_of_memory")

    def start_model(self, role: str, source: str, class_name: str) -> RunnerHandle:
        """Start a runner with a model built from `source` that holds the reference's parameters.

        Raises:
            RunnerFailed: the source cannot be loaded, built or run.
        """
        handle = self.start(role, source if role in FOREIGN_ROLES else "")
        self.load_model(handle, source, class_name)
        return handle

    def load_model(self, handle: RunnerHandle, source: str, class_name: str) -> None:
        """Load `source` in a started runner, build the model and give it the reference's parameters.

        Raises:
            RunnerFailed: the source cannot be loaded, built or run.
        """
        self._load(handle, source, "task" if class_name == "Model" else "candidate", class_name)
        own = self._construct(handle, class_name)
        if class_name != "Model":
            self.names_of[handle.role] = state_check.match(handle, own, self.initial)
            self.own_rows[handle.role] = state_check.rows_by_name(own)
        self.load_state(handle)

    def load_state(self, handle: RunnerHandle, state: tuple[Tree, list[torch.Tensor]] | None = None) -> None:
        """Give a runner's model parameters and buffers, then attach an input buffer for calls.

        `state`: by the reference's names; None: `self.state`.

        Raises:
            RunnerFailed: the runner does not take them.
        """
        state = state or self.state
        assert state is not None
        tree, contents = state
        names = dict(self.names_of[handle.role].own) if handle.role in self.names_of else {}
        handle.attach(self.platform.input_buffer(bytes_needed(tree), 1))
        handle.give({"op": "load_state", "names": names}, tree, contents, timeout_s=60)
        handle.attach(self.platform.input_buffer(self.input_bytes, self.slots()))

    def read_state(self, handle: RunnerHandle) -> dict[str, torch.Tensor]:
        """The present parameters and buffers of a runner by name.

        Raises:
            RunnerFailed: they cannot be read, or take more than a third of the memory.
        """
        found = copy_value(handle, handle.reveal({"op": "state"}, timeout_s=60), self.memory_bytes // 3)
        handle.ask({"op": "release"}, timeout_s=60)
        return state_check.values_by_name(*found)

    @property
    def need(self) -> Need:
        """What the task takes, as far as it is known."""
        state = sum(content.numel() for content in self.state[1]) if self.state else 0
        # The first trials of a job have no champion, but those that follow shall fit, too. A check is asked about jobs.
        champion = self.request.trial or not self.request.candidate_source
        return Need(self.input_bytes, self.output_bytes, state, self.temporary_bytes, champion=champion)

    def release(self, handle: RunnerHandle) -> None:
        """Have a runner drop what it keeps for the referee to read; where memory is short, its memory goes back, too.

        Raises:
            RunnerFailed: the runner died or failed.
        """
        handle.ask({"op": "release", "give_back": self.frugal}, timeout_s=60)
        self.tidy()

    def tidy(self) -> None:
        """Where memory is short, give back what this process has freed."""
        if self.frugal:
            allocator.give_back()

    @property
    def frugal(self) -> bool:
        """Whether memory is so short that it is saved at the cost of time: less is kept, and more is made anew."""
        return not self.need.is_generous(self.memory_bytes)

    def slots(self) -> int:
        """The number of input sets in an input buffer: 2 to 8, or 1 where memory is short.

        Within these limits, enough sets to fill the platform's rotation, and at most a tenth of the sandbox's memory.
        """
        if self.frugal:
            return 1
        per_set = max(1, self.input_bytes)
        wanted = math.ceil(self.platform.rotation_bytes / per_set)
        return max(2, min(wanted, 8, self.memory_bytes // 10 // per_set))

    def _load(self, handle: RunnerHandle, source: str, name: str, needs: str) -> None:
        message = {
            "op": "load",
            "source": source,
            "name": name,
            "needs": needs,
            "seed": self.seeds.named(f"load {name}"),
        }
        if name == "task" and self.request.shape_group is not None:
            message["shape_group"] = self.request.shape_group
        kernel = self.request.source_kernel if name == "task" else {}
        if not kernel:
            reply = handle.ask(message, timeout_s=self.request.build_timeout_s if name == "candidate" else 60)
            if handle.role == "reference":
                self.call_loop = str(reply.get("call_loop"))[:20]
            return
        handle.ask({"op": "speak", "language": kernel["platform"]}, timeout_s=60)
        build_archive.restore(handle, self.kernel_built)
        handle.ask({**message, "kernel": kernel["source"]}, timeout_s=self.request.build_timeout_s)
        self.kernel_built = self.kernel_built or build_archive.keep(handle)

    def _construct(self, handle: RunnerHandle, class_name: str) -> Tree:
        assert self.init is not None
        tree, contents = self.init
        handle.attach(self.platform.input_buffer(bytes_needed(tree), 1))
        message = {"op": "construct", "class": class_name, "seed": self.seeds.named("model")}
        timeout_s = self.request.build_timeout_s
        assert handle.input_buffer is not None
        placed = handle.input_buffer.put(tree, contents)
        return handle.reveal({**message, "tree": placed.to_json()}, timeout_s=timeout_s)


def forget_peak(pid: int) -> None:
    """Have `peak_resident_bytes` begin anew with what a process has now (proc(5): clear_refs), if that is allowed."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_resident_bytes(pid: int) -> int:
    """The most that a process has had in memory since its start, or since `forget_peak` (proc(5): VmHWM).

    Raises:
        OSError: it is gone.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


@contextlib.contextmanager
def task_step(doing: str) -> Iterator[None]:
    """Blame the task for a failure of the runner within the block.

    Raises:
        Finding: the runner failed.
    """
    try:
        yield
    except RunnerFailed as failure:
        raise of_task(failure, doing=doing) from None


def progress(text: str) -> None:
    """Print one line of progress, which the host reads from standard error."""
    print(f"progress: {text}", file=sys.stderr, flush=True)
