"""Rounds of timed calls: the variants take turns on the same fresh inputs, and each answer is read and checked."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from . import answers, timed_checks
from .bench import Bench
from .calls import Call, InputSet
from .evidence import Evidence
from .failures import RunnerFailed
from .fresh import Supply
from .handle import Handle
from .processes import page_faults
from .timed_checks import Surprise
from .verdicts import of_candidate, of_task

_FEW_FAULTS = 32  # page faults in a round that are not worth a thought


@dataclass
class Round:
    """What a round has measured: seconds of each call by variant. `even`: no baseline met fresh pages in it."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    even: bool = True


@dataclass
class ProcessSet:
    """The runners of one process set, by variant, and what their calls need.

    `warm` are the inputs of untimed calls, `orders` who goes first, `scrub` is called before each call where caches
    shall be cold.
    """

    bench: Bench
    evidence: Evidence
    runners: dict[str, Handle]
    warm: list[InputSet]
    supply: Supply
    orders: Iterator[tuple[str, ...]]
    scrub: Callable[[], None] | None = None

    def run(self, fresh: Sequence[InputSet], surprises: Sequence[Surprise]) -> Round:
        """One round: for each of the fresh inputs, every variant makes an untimed call and then a timed one on it.

        The untimed one is there for a variant to meet its own cache and allocator, not its predecessor's.

        Raises:
            Finding: a call failed or was wrong.
        """
        done = Round()
        due: list[list[Surprise]] = [[] for _ in range(2 * len(fresh))]
        for surprise in surprises:
            due[int(surprise.after * len(due))].append(surprise)
        faults = {name: page_faults(handle.pid) for name, handle in self.runners.items()}
        for number, inputs in enumerate(fresh):
            outputs = {}
            for variant in next(self.orders):
                handle = self.runners[variant]
                with blame(variant):
                    self._surprise(due[2 * number], variant, handle)
                    self.call(handle, self.warm[number % len(self.warm)])
                    self._surprise(due[2 * number + 1], variant, handle)
                    call = self.call(handle, inputs)
                    done.seconds.setdefault(variant, []).append(call.seconds)
                    outputs[variant] = timed_checks.read(self.evidence, variant, handle, call, inputs)
            timed_checks.compare(self.evidence, outputs["eager"], outputs["candidate"])
        self.supply.pause()
        for surprise in surprises:
            surprise.judge(self.evidence)
        done.even = all(
            page_faults(handle.pid) - faults[name] <= _FEW_FAULTS
            for name, handle in self.runners.items()
            if name != "candidate"
        )
        return done

    def call(self, handle: Handle, inputs: InputSet) -> Call:
        """One call with all else stopped; afterwards the reference goes on making inputs."""
        timeout_s = self.bench.request.call_timeout_s
        call = handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s, before=self._quiet)
        self.supply.resume()
        return call

    def _quiet(self) -> None:
        self.supply.pause()
        if self.scrub is not None:
            self.scrub()

    def _surprise(self, surprises: Sequence[Surprise], variant: str, handle: Handle) -> None:
        """Calls on other families.

        Eager makes them too, so that its state keeps up, and its answers are read too, so that both go on from alike
        caches.
        """
        for surprise in surprises if variant != "compile" else ():
            call = self.call(handle, surprise.inputs)
            if variant == "candidate":
                surprise.take(self.evidence, handle, call)
            else:
                answers.read(handle, call, surprise.inputs)


@contextlib.contextmanager
def blame(variant: str) -> Iterator[None]:
    """A failure of the runner inside is that of this variant.

    Raises:
        Finding: the runner failed.
    """
    try:
        yield
    except RunnerFailed as failure:
        if variant == "candidate":
            raise of_candidate(failure, building=False, doing="a timed call") from None
        raise of_task(failure, doing=f"a timed call ({variant})") from None
