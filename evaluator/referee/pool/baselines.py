"""The baselines that a candidate is measured against: the reference under eager PyTorch and under torch.compile."""

import contextlib
import threading
from dataclasses import dataclass, field

from ..errors import Finding, RunnerFailed, of_compile, of_task
from ..isolation.calls import InputSet
from ..isolation.handle import RunnerHandle
from . import build_archive
from .runner_pool import RunnerPool

_COMPILE_TIMEOUT_S = 180.0


@dataclass
class Baselines:
    """Starts the baselines of one evaluation.

    `packed` is the compiler's cache in base64, from an earlier evaluation or from this one. Where a source kernel is
    the reference, nothing is timed, and it is what that kernel was built to, once it has been examined.
    """

    pool: RunnerPool
    packed: str = ""
    compile_fails: str = ""  # why torch.compile cannot run the task
    _ready: list[RunnerHandle] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _filling: bool = False  # whether a thread is starting compiled runners
    _compiled: bool = False  # whether any compiled runner has made its first call

    @property
    def certain(self) -> bool:
        """Whether torch.compile has run the task before, so that a failure now is not the task's."""
        return bool(self.packed) or self._compiled

    def absent(self) -> dict[str, str]:
        """The baselines that could not be measured, each with the reason."""
        return {"compile": self.compile_fails} if self.compile_fails else {}

    def start_eager(self) -> RunnerHandle:
        """A runner with the reference as it is.

        Raises:
            Finding: the task cannot be set up.
        """
        try:
            return self.pool.start_model("eager", self.pool.request.task_source, "Model")
        except RunnerFailed as failure:
            raise of_task(failure, doing="setting up its baseline") from None

    def compile_ahead(self, inputs: InputSet, count: int) -> None:
        """Begin to start runners under torch.compile on another thread, until `count` are ready.

        Does nothing if so many are ready, if a thread is starting runners already, or if torch.compile cannot run the
        task.
        """
        if self.compile_fails or self._filling or len(self._ready) >= count:
            return
        self._filling = True
        threading.Thread(target=self._fill, args=(inputs, count - len(self._ready)), daemon=True).start()

    def rest(self) -> None:
        """Wait until no runner is being started any more, because calls will be timed."""
        with self._news:
            self._news.wait_for(lambda: not self._filling)

    def start_compile(self, inputs: InputSet) -> RunnerHandle | None:
        """A runner with the reference under torch.compile, called once on `inputs`; None if that is impossible.

        Raises:
            Finding: torch.compile fails although it has run the task before, so this baseline may not be left out.
        """
        if self.compile_fails:
            return None
        with self._news:
            self._news.wait_for(lambda: self._ready or not self._filling)
            if self._ready:
                return self._ready.pop(0)
        # An attempt that failed beside the candidate may have failed because of it, so only this attempt counts.
        try:
            return self._start_compile(inputs)
        except RunnerFailed as failure:
            if self.certain:
                text = f"torch.compile has run this task before and now fails: {failure.message[:200]}"
                raise Finding("sandbox_error", text, "baseline_lost", failure.detail) from None
            self.compile_fails = f"torch.compile cannot run this task: {failure.message[:200]}"
            return None

    def leave_out_compile(self, failure: RunnerFailed, *, doing: str) -> None:
        """Go on without this baseline, which has run the task before and failed while all others stood still.

        Runners under torch.compile that are ready are stopped, so that no later set of processes has one. The
        candidate's runners may be stopped, too.

        Raises:
            Finding: that may have been the candidate's doing: it hoards what the baseline needs, or was killed for
                memory that ran out in its turn; or something has killed the baseline that is not known.
        """
        self.rest()
        ready, self._ready = self._ready, []
        self.pool.stop(*ready)
        self.pool.check_hoarding(ending=failure.killed)
        if failure.killed and not failure.for_memory:
            raise of_compile(failure, doing=doing)
        self.compile_fails = f"the baseline torch.compile failed in {doing}: {failure.message[:200]}"

    def _fill(self, inputs: InputSet, count: int) -> None:
        try:
            # OSError: the evaluation is over and its fork server is gone.
            with contextlib.suppress(RunnerFailed, Finding, OSError), self.pool.kills.others_run():
                for _ in range(count):
                    handle = self._start_compile(inputs)
                    with self._news:
                        self._ready.append(handle)
                        self._news.notify_all()
        finally:
            with self._news:
                self._filling = False
                self._news.notify_all()

    def _start_compile(self, inputs: InputSet) -> RunnerHandle:
        handle = self.pool.start("compile")
        try:
            restored = build_archive.restore(handle, self.packed)
            self.pool.load_model(handle, self.pool.request.task_source, "Model")
            handle.ask({"op": "compile"}, timeout_s=60)
            handle.call(inputs.tree, inputs.contents, seed=inputs.seed, timeout_s=_COMPILE_TIMEOUT_S)
        except RunnerFailed:
            self.pool.stop(handle)
            raise
        self._compiled = True
        if not restored:
            self.packed = build_archive.keep(handle)
        return handle
