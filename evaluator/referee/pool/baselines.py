"""The baselines that a candidate is measured against: the reference under eager PyTorch, and run in other ways."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..errors import BaselineFailed, Finding, RunnerFailed, of_baseline, of_task
from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from ..protocol.baselines import EAGER, USUAL, title_of
from . import build_archive
from .runner_pool import RunnerPool

FIRST_CALL_TIMEOUT_S = 180.0
"""In which a baseline is compiled or exported."""

LEAST_S = 5.0
"""With less time left, no other baseline is tried."""

JUDGED_SHARE = 0.25
"""Of the sandbox's time, for judging baselines, and for the first starts of those that are not `USUAL`."""


@dataclass
class OtherBaseline:
    """Starts runners of one baseline that is not eager.

    `packed` is what it has built, in base64, from an earlier evaluation or from this one. `judged` counts the input
    families on which it was right.
    """

    pool: RunnerPool
    name: str
    packed: str = ""
    fails: str = ""  # why it is left out
    judged: int = 0
    _ready: list[RunnerHandle] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _filling: bool = False  # whether a thread is starting runners
    _called: bool = False  # whether any runner of this evaluation has made its first call

    @property
    def title(self) -> str:
        """What people call it."""
        return title_of(self.name)

    @property
    def certain(self) -> bool:
        """Whether it has run the task before, so that a failure now is not the task's."""
        return bool(self.packed) or self._called

    def start_ahead(self, inputs: InputSet, count: int) -> None:
        """Begin to start runners on another thread, until `count` are ready.

        Does nothing if so many are ready, if a thread is starting runners already, or if the baseline cannot run the
        task.
        """
        if self.fails or self._filling or len(self._ready) >= count:
            return
        self._filling = True
        threading.Thread(target=self._fill, args=(inputs, count - len(self._ready)), daemon=True).start()

    def rest(self) -> None:
        """Wait until no runner is being started any more, because calls will be timed."""
        with self._news:
            self._news.wait_for(lambda: not self._filling)

    def start(self, inputs: InputSet, *, timeout_s: float = FIRST_CALL_TIMEOUT_S) -> RunnerHandle | None:
        """A runner that has been called once on `inputs`; None if the baseline cannot run the task.

        Raises:
            Finding: it fails although it has run the task before, so it may not be left out.
        """
        if self.fails:
            return None
        with self._news:
            self._news.wait_for(lambda: self._ready or not self._filling)
            if self._ready:
                return self._ready.pop(0)
        # An attempt that failed beside the candidate may have failed because of it, so only these attempts count.
        try:
            return self._start(inputs, timeout_s)
        except RunnerFailed as failure:
            first = failure
        if not self.certain and (first.killed or first.kind == "no_room"):
            # A candidate that stands still may hold what was lacking. Then it is refused, else it is stopped.
            self.pool.check_hoarding(ending=True)
            try:
                return self._start(inputs, timeout_s)
            except RunnerFailed as failure:
                first = failure
        if self.certain:
            text = f"{self.title} has run this task before and now fails: {first.message[:200]}"
            raise Finding("sandbox_error", text, "baseline_lost", first.detail)
        self.fails = f"{self.title} cannot run this task: {first.message[:200]}"
        return None

    def put_back(self, handle: RunnerHandle) -> None:
        """Have the next `start` give this runner, which `start` has given."""
        with self._news:
            self._ready.insert(0, handle)

    def refuse(self, reason: str) -> None:
        """Go on without this baseline, for what it computes is not what the task asks for."""
        self._stop_ready()
        self.fails = f"{self.title} is no baseline for this task: {reason[:300]}"

    def leave_out(self, failure: RunnerFailed, *, doing: str) -> None:
        """Go on without this baseline, which has run the task before and failed while all others stood still.

        Runners of it that are ready are stopped, so that no later set of processes has one. The candidate's runners may
        be stopped, too.

        Raises:
            Finding: that may have been the candidate's doing: it hoards what the baseline needs, or was killed for
                memory that ran out in its turn; or something has killed the baseline that is not known.
        """
        self._stop_ready()
        self.pool.check_hoarding(ending=failure.killed)
        if failure.killed and not failure.for_memory:
            raise of_baseline(failure, name=self.name, doing=doing)
        self.fails = f"the baseline {self.title} failed in {doing}: {failure.message[:200]}"

    def _stop_ready(self) -> None:
        self.rest()
        ready, self._ready = self._ready, []
        self.pool.stop(*ready)

    def _fill(self, inputs: InputSet, count: int) -> None:
        try:
            # OSError: the evaluation is over and its fork server is gone.
            with contextlib.suppress(RunnerFailed, Finding, OSError), self.pool.kills.others_run():
                for _ in range(count):
                    handle = self._start(inputs, FIRST_CALL_TIMEOUT_S)
                    with self._news:
                        self._ready.append(handle)
                        self._news.notify_all()
        finally:
            with self._news:
                self._filling = False
                self._news.notify_all()

    def _start(self, inputs: InputSet, timeout_s: float) -> RunnerHandle:
        handle = self.pool.start(self.name)
        try:
            restored = build_archive.restore(handle, self.packed)
            self.pool.load_model(handle, self.pool.request.task_source, "Model")
            handle.ask({"op": "wrap", "baseline": self.name}, timeout_s=60)
            handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=timeout_s)
        except RunnerFailed:
            self.pool.stop(handle)
            raise
        self._called = True
        if not restored:
            self.packed = build_archive.keep(handle)
        return handle


@dataclass
class Baselines:
    """The baselines of one evaluation: eager, and by name all others that were asked for."""

    pool: RunnerPool
    others: dict[str, OtherBaseline] = field(init=False)
    _left_s: float = field(init=False)  # for judging

    def __post_init__(self) -> None:
        """None is started."""
        request = self.pool.request
        self.others = {
            name: OtherBaseline(self.pool, name, request.baseline_caches.get(name, ""))
            for name in request.baselines
            if name != EAGER
        }
        self._left_s = JUDGED_SHARE * request.wall_s

    def absent(self) -> dict[str, str]:
        """The baselines that could not be measured, each with the reason."""
        return {name: other.fails for name, other in self.others.items() if other.fails}

    def packed(self) -> dict[str, str]:
        """What each has built that was found right, for later evaluations of the task."""
        return {name: other.packed for name, other in self.others.items() if other.packed and not other.fails}

    def judged(self) -> dict[str, int]:
        """On how many input families each was found right."""
        return {name: other.judged for name, other in self.others.items() if other.judged and not other.fails}

    def start_eager(self) -> RunnerHandle:
        """A runner with the reference as it is.

        Raises:
            Finding: the task cannot be set up.
        """
        try:
            return self.pool.start_model(EAGER, self.pool.request.task_source, "Model")
        except RunnerFailed as failure:
            raise of_task(failure, doing="setting up its baseline") from None

    def judge(self, other: OtherBaseline, inputs: InputSet, examine: Callable[[RunnerHandle, float], int]) -> None:
        """Start the first runner of a baseline and have it examined; leave it out if it is not right.

        All runners of the candidate are stopped or stand still. The time is bounded, and all baselines share it.

        Args:
            other: the baseline.
            inputs: what its first call is made on.
            examine: checks a runner until a time (of `time.perf_counter`); returns how many families it was right on.

        Raises:
            Finding: the task is invalid, or what failed may have been the candidate's doing.
        """
        usual = other.name in USUAL
        if reason := self._no_room(other):
            other.fails = reason
            return
        began = time.perf_counter()
        limit_s = FIRST_CALL_TIMEOUT_S if usual or other.certain else min(FIRST_CALL_TIMEOUT_S, self._left_s)
        handle = other.start(inputs, timeout_s=limit_s)
        started_s = time.perf_counter() - began
        self._left_s -= 0.0 if usual else started_s
        if handle is None:
            return
        began = time.perf_counter()
        try:
            other.judged = examine(handle, began + self._left_s)
        except BaselineFailed as failed:
            self.pool.stop(handle)
            other.leave_out(failed.failure, doing="a call that was checked")
        except Finding as finding:
            if finding.verdict == "task_invalid" and finding.code == "out_of_memory":
                raise Finding("sandbox_error", finding.message, "out_of_memory", finding.detail) from None
            if finding.verdict in ("task_invalid", "sandbox_error"):
                raise
            self.pool.stop(handle)
            other.refuse(finding.message.replace("the candidate", "it"))
        else:
            other.put_back(handle)
        self._left_s -= time.perf_counter() - began

    def _no_room(self, other: OtherBaseline) -> str:
        """Why a baseline that is not usual is not even started; empty if it is."""
        if other.name in USUAL:
            return ""
        extra = sum(1 for each in self.others.values() if each.judged and not each.fails and each.name not in USUAL)
        need = replace(self.pool.need, extra_baselines=extra + 1)
        if not need.fits(self.pool.memory_bytes):
            return f"{other.title} was left out, because with it the task {need.says(self.pool.memory_bytes)}"
        if self._left_s < LEAST_S:
            return f"{other.title} was left out, because the time for baselines was spent on those before it"
        return ""

    def start_ahead(self, inputs: InputSet, count: int) -> None:
        """`OtherBaseline.start_ahead` of all that have run the task."""
        for other in self.others.values():
            if other.certain:
                other.start_ahead(inputs, count)

    def start_others(self, inputs: InputSet) -> dict[str, RunnerHandle]:
        """A runner of each that can run the task, by name; then none is being started any more.

        Raises:
            Finding: as for `OtherBaseline.start`.
        """
        started = {name: other.start(inputs) for name, other in self.others.items()}
        for other in self.others.values():
            other.rest()
        return {name: handle for name, handle in started.items() if handle is not None}
