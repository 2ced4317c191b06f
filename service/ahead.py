"""Candidates built before their evaluation is due: beside each other, and while models still write others."""

import contextlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

from evaluator.build import build_ahead
from sandbox.base import Promise, SandboxUnavailable
from service.turns import StillWaiting, turn
from service.wiring import Bench

_AT_ONCE = 4


class BuildsAhead:
    """The builds of one job on this host. Nobody on it measures while one runs: they share the device's lock.

    What goes wrong here is left for the evaluation to say, which builds again what it does not find.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._over = threading.Event()
        self._running: list[Future[None]] = []
        # A boundary between two sandboxes that are open at once is the runners' uids.
        self._possible = Promise.SEPARATE_UIDS in bench.sandbox.promises
        # It makes its threads when they are needed.
        self._pool = ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1), thread_name_prefix="build")

    def start(self, source: str) -> None:
        """Begin to build a candidate, if that is worth it; returns at once. Threads may call it."""
        if self._over.is_set() or not self._possible or not self._bench.platform.builds_slowly(source):
            return
        self._running.append(self._pool.submit(self._build, source))

    def finish(self, stop: threading.Event) -> None:
        """Wait until all that were begun are over, or `stop` is set."""
        while any(not future.done() for future in self._running) and not stop.is_set():
            wait(self._running, timeout=0.1)
        self._running.clear()

    def close(self) -> None:
        """End those that still run; nothing is begun any more."""
        self._over.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _build(self, source: str) -> None:
        bench = self._bench
        with (
            contextlib.suppress(StillWaiting, SandboxUnavailable),
            turn(bench.lock, on_wait=lambda: None, cancel=self._over, shared=True),
        ):
            build_ahead(
                bench.task,
                source,
                sandbox=bench.sandbox,
                platform=bench.platform,
                effort=bench.effort,
                cache=bench.cache,
                cancel=self._over,
            )
