"""Builds candidates before their evaluation, several at a time, while models still write others."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from evaluator.evaluate import build_ahead
from sandbox.base import Promise, SandboxUnavailable
from service.device_lock import WaitCancelled, hold_any, hold_device, lock_paths
from service.evaluation_context import EvaluationContext

AT_ONCE = 2
"""Builds at the same time on a host, of all its jobs together."""

MEMORY_MB = 4096
"""The limits of one build. Two builds together use no more than an evaluation."""


class Prebuilder:
    """An `agents.protocols.Prebuilds`: the builds of one job on this host.

    No measurement runs on the device at the same time, because builds share the device's locks. A failure here is not
    reported: the evaluation builds again what it does not find built, and reports the failure then.
    """

    def __init__(self, context: EvaluationContext, on_progress: Callable[[str], None]) -> None:
        self._context = context
        self._on_progress = on_progress
        self._over = threading.Event()
        self._enough = threading.Event()
        self._running: list[Future[None]] = []
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="build")  # its threads are made when needed

    def start(self, source: str) -> None:
        """Begin to build a candidate, if that is worth it; returns at once. Threads may call it."""
        # The boundary between two sandboxes that are open at once is that runners have users of their own.
        if Promise.SEPARATE_UIDS not in self._context.sandbox.promises or self._over.is_set():
            return
        if self._context.platform.builds_slowly(source):
            self._running.append(self._pool.submit(self._build, source))

    def wait(self, limit_s: float | None) -> None:
        """Wait for those that are under way, so long at most; those that wait themselves are given up."""
        self._enough.set()
        waiting = [future for future in self._running if not future.cancel()]
        if any(not future.done() for future in waiting):
            self._on_progress("waiting for candidates that are built")
            wait(waiting, timeout=limit_s)
        self._running.clear()
        self._enough.clear()

    def close(self) -> None:
        """Stop running builds and start no more."""
        self._over.set()
        self._enough.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _build(self, source: str) -> None:
        context = self._context
        slots = lock_paths(context.settings.lock_dir, (f"build-{number}" for number in range(AT_ONCE)))
        effort = replace(context.effort, memory_mb=min(context.effort.memory_mb, MEMORY_MB))
        with (
            contextlib.suppress(WaitCancelled, SandboxUnavailable),
            hold_any(slots, cancel=self._enough),
            hold_device(context.locks, on_wait=lambda: None, cancel=self._enough, shared=True),
        ):
            build_ahead(
                context.task,
                source,
                sandbox=context.sandbox,
                platform=context.platform,
                device=context.settings.device,
                effort=effort,
                cache=context.cache,
                cancel=self._over,
            )
