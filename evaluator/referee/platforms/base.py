"""The seam between the referee and a platform, on the referee's side of the trust boundary.

A platform says where inputs lie, what the clock of a call counts, how outputs are read and overwritten, which account
tells of processes that ran out of turn, what else disturbed a measurement, and what the device can do at best. The
other half, in the processes that run foreign code, is `runner/platforms/base.py`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ..isolation.calls import Call, CallRequest, InputSet
from ..protocol.peaks import Peaks, Traffic
from ..protocol.tensors import TensorRow, Tree

if TYPE_CHECKING:
    from ..correctness.findings import Evidence
    from ..errors import Finding
    from ..isolation.handle import RunnerHandle
    from ..pool.runner_pool import RunnerPool
    from ..timing.call_times import Plan


class InputBuffer(Protocol):
    """Memory that the referee fills and one runner reads, cut into slots of one set of inputs each."""

    def put(self, tree: Tree, contents: list[torch.Tensor]) -> Tree:
        """Copy each tensor's bytes into the next slot; the tree with places inside the buffer."""
        ...

    def place(self, tree: Tree) -> Tree:
        """Take the next slot for a tree: the tree with places inside the buffer, before anything lies there."""
        ...

    def fill(self, placed: Tree, contents: list[torch.Tensor]) -> None:
        """Copy each tensor's bytes to its place."""
        ...

    def unchanged(self, row: TensorRow, content: torch.Tensor) -> bool:
        """Whether the bytes at a row's place are still those of `content`."""
        ...

    def copy(self, row: TensorRow) -> torch.Tensor:
        """The bytes that lie at a row's place now."""
        ...

    @property
    def told(self) -> list[tuple[int, int]]:
        """What a runner is told of it: file descriptors, and the bytes behind each."""
        ...

    def empty(self) -> bool:
        """Give back the host's memory of what lies in it, without the runner. Whoever has it mapped reads zeros.

        Returns:
            Whether there was any. Then the next who touch it wait for fresh pages.
        """
        ...

    def close(self) -> None:
        """Give the memory back. The runner may still have it mapped."""
        ...


class Account(Protocol):
    """The account of who used the device: finds what ran while it should have been stopped."""

    unaccounted_s: float

    @property
    def possible(self) -> bool:
        """Whether there is such an account here."""
        ...

    def begin(self) -> None:
        """From here on everything is stopped but the referee and what it allows."""
        ...

    def allow(self, pids: list[int], *, born: Iterable[int] = ()) -> None:
        """What these processes use is accounted for, whoever's turn it is, until others are named."""
        ...

    def begin_turn(self, pids: list[int], *, whole_sandbox: bool) -> None:
        """A runner's turn begins."""
        ...

    def stopped(self) -> None:
        """The turn is over and everything is stopped again."""
        ...

    def end(self) -> None:
        """Others may run again."""
        ...


class InterferenceMeter(Protocol):
    """Sums up what others did to the device while calls were timed."""

    def begin(self) -> None:
        """An interval begins."""
        ...

    def end(self) -> None:
        """The interval ends."""
        ...

    def is_noisy(self) -> bool:
        """Whether the device was too busy for a figure to be ranked."""
        ...

    def facts(self) -> dict[str, Any]:
        """Figures for the profile."""
        ...


@dataclass(frozen=True)
class Places:
    """Where tensors lie.

    Attributes:
        in_input_buffer: of each, whether in an input buffer.
        folded: whether one page lies at several places of them.
        private: whether all lie in memory of the runner's first process alone, as far as that can be seen.
        unwritten: the numbers of those with memory that reads as something although the runner has not written it.
    """

    in_input_buffer: list[bool]
    folded: bool = False
    private: bool = False
    unwritten: frozenset[int] = frozenset()


OWN_SHARE = 0.05
"""Of its time that a candidate spends in code of its own, to count as a kernel of its own."""


@dataclass(frozen=True)
class OwnCode:
    """The share of a candidate's time in code of its own (None: unknown), and figures for the profile."""

    share: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Screening:
    """What was proven of a candidate whose calls are not timed: tags, and figures for the profile."""

    tags: tuple[str, ...]
    facts: dict[str, Any]


class Platform(Protocol):
    """What differs between kinds of device, for one evaluation."""

    @property
    def name(self) -> str:
        """How requests name it: `cpu`."""
        ...

    @property
    def device(self) -> int:
        """Which of the host's devices of this platform it measures on, counted from 0."""
        ...

    @property
    def timed(self) -> str:
        """What `Call.seconds` is made of.

        `wall`: a clock. `cycles` or `instructions`: a count at a nominal rate. `nothing`: calls are screened.
        """
        ...

    @property
    def resolution(self) -> float:
        """The share of a speedup below which this platform's clock tells nothing apart."""
        ...

    @property
    def set_sd(self) -> float:
        """The standard deviation between process sets of the same code that is assumed at least, as a log ratio."""
        ...

    @property
    def rotation_bytes(self) -> int:
        """The footprint that inputs should rotate over, so that no cache holds those of the next call."""
        ...

    @property
    def most_work(self) -> int | None:
        """The most operations that a call may consist of; inputs are made smaller where it has more. None: any."""
        ...

    def open(self, pool: "RunnerPool") -> None:
        """Learn the pool of the evaluation that this object serves, before any runner is started."""
        ...

    def plan(self, plan: "Plan") -> "Plan":
        """The measuring plan, changed where this platform's clock needs less or more."""
        ...

    def address_space_bytes(self, memory_bytes: int) -> int:
        """How much address space a runner may reserve."""
        ...

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Learn the model's parameters and buffers, by the reference's names."""
        ...

    def handover_s(self, handle: "RunnerHandle", inputs: InputSet, state: Sequence[str]) -> float:
        """What the clock of a call on these inputs holds besides the model's work; the runner is eager's.

        `state`: the names of the model's tensors that are reported with each answer.

        Raises:
            RunnerFailed: the runner died, failed or lied.
        """
        ...

    def account(self) -> Account:
        """A new account, for the thread that asks for it."""
        ...

    def interference_meter(self) -> InterferenceMeter:
        """A new meter."""
        ...

    def input_buffer(self, slot_bytes: int, slots: int) -> InputBuffer:
        """New memory for inputs."""
        ...

    def call(self, handle: "RunnerHandle", request: CallRequest) -> Call:
        """One call of a runner's model under this platform's clock.

        Raises:
            RunnerFailed: the runner died, failed, lied about the protocol or took too long.
        """
        ...

    def read(self, handle: "RunnerHandle", row: TensorRow) -> torch.Tensor:
        """The bytes of a tensor (its whole span) that a stopped runner holds, or holds on the device.

        Raises:
            RunnerFailed: nothing readable lies there.
        """
        ...

    def flip(self, handle: "RunnerHandle", row: TensorRow, elements: Sequence[int]) -> None:
        """Give elements of a tensor's span other values; done twice, they are as before.

        Raises:
            RunnerFailed: what lies there cannot be written to.
        """
        ...

    def places(self, handle: "RunnerHandle", rows: Sequence[TensorRow]) -> Places:
        """Where a stopped runner's tensors lie.

        Raises:
            OSError: the runner is gone.
        """
        ...

    def begin_timing(self) -> None:
        """Ready the referee's own process for timed calls."""
        ...

    def beside_calls(self) -> AbstractContextManager[None]:
        """A context in which the referee's thread disturbs timed calls least."""
        ...

    def cache_scrubber(self) -> Callable[[], None]:
        """A function that fills the device's caches with other data, called while all runners are stopped."""
        ...

    def disturbance(self, handle: "RunnerHandle") -> float:
        """A counter of what disturbs a runner; a baseline whose counter grew too much is timed again.

        Raises:
            OSError: the runner is gone.
        """
        ...

    def is_disturbed(self, before: float, after: float) -> bool:
        """Whether the counter grew by so much that a round does not show the baseline as it is."""
        ...

    def usage_facts(self, *, disturbances: float, calls: int, cpu_s: float, timed_s: float) -> dict[str, Any]:
        """Figures for the profile: what the candidate's counter grew by over `calls`, and its processor time."""
        ...

    def held_bytes(self, handle: "RunnerHandle") -> int:
        """The memory that a runner has taken since it was forked."""
        ...

    def has_foreign_code(self, candidate: "RunnerHandle", reference: "RunnerHandle") -> bool:
        """Whether the candidate has loaded code of its own that the reference has not."""
        ...

    def own_code(
        self, candidate: "RunnerHandle", inputs: InputSet, rng: Random, *, call_s: float, timeout_s: float, brief: bool
    ) -> OwnCode:
        """How much of the candidate's time goes into code of its own; with `brief`, a rough answer will do.

        Raises:
            RunnerFailed: the candidate failed meanwhile.
        """
        ...

    def repeated_call_s(
        self, handle: "RunnerHandle", inputs: InputSet, *, call_s: float, timeout_s: float
    ) -> float | None:
        """The time of a call among calls that follow each other at once; None where that is no other time.

        Raises:
            RunnerFailed: the runner failed meanwhile.
        """
        ...

    def cache_bytes(self) -> int:
        """The size of the largest cache."""
        ...

    def peaks(self, pool: "RunnerPool", traffic: Traffic, dtypes: Sequence[str], *, again: bool) -> Peaks:
        """What the device can do at best, as far as is known; `again`: measure it, for something speaks against it.

        Raises:
            RunnerFailed: it cannot be measured.
        """
        ...

    def device_figures(self, pool: "RunnerPool") -> dict[str, Any]:
        """Figures of the device for those who write kernels for it; empty where the description of it says all.

        Raises:
            RunnerFailed: they cannot be measured.
        """
        ...

    def limit_facts(self) -> dict[str, Any]:
        """Figures of the device for the profile, beside its peaks."""
        ...

    def versions(self) -> Mapping[str, str | None]:
        """The versions and device settings that a result depends on."""
        ...

    def screen(
        self,
        pool: "RunnerPool",
        reference: "RunnerHandle",
        candidate: "RunnerHandle",
        evidence: "Evidence",
        start_candidate: "Callable[[], RunnerHandle]",
    ) -> Screening:
        """What else is proven of a candidate whose outputs are right, where calls are not timed (`timed`: `nothing`).

        Args:
            pool: the runner pool.
            reference: the reference's runner.
            candidate: the runner whose outputs are right.
            evidence: of the correctness check.
            start_candidate: starts another runner of the candidate.

        Raises:
            Finding: the candidate is refused.
        """
        ...

    def examine_source_kernel(self, pool: "RunnerPool", reference: "RunnerHandle") -> Screening:
        """What is shown of the kernel that is the reference; asked only where nothing is timed.

        Raises:
            Finding: the kernel is at fault, so the task is invalid.
        """
        ...

    def explain(
        self, pool: "RunnerPool", finding: "Finding", start_candidate: "Callable[[], RunnerHandle]"
    ) -> "tuple[Finding, Screening]":
        """What this platform makes of a finding that ended an evaluation, and what is proven all the same.

        Whatever it raises leaves the finding as it is.

        Args:
            pool: in which no runner is left.
            finding: what ended the evaluation.
            start_candidate: starts a runner of the candidate, with what was built before.
        """
        ...

    def profile(self, pool: "RunnerPool") -> dict[str, Any]:
        """A detailed profile of the candidate as plain JSON values. None of it is evidence."""
        ...
