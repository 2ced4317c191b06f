"""Starts runners of the candidate, and passes what the first one has built to all others."""

import time
from dataclasses import dataclass

from ..errors import RunnerFailed, of_candidate
from ..isolation.handle import RunnerHandle
from . import build_archive
from .runner_pool import RunnerPool

_SLOW_S = 3.0  # a runner that takes longer to start is timed in the first process set, too


@dataclass
class Builder:
    """Builds a candidate: the one that is judged, or the one that it is compared with.

    `packed` is the candidate's build archive in base64, from an earlier evaluation of it or from this one.
    """

    pool: RunnerPool
    role: str  # one of `handle.FOREIGN_ROLES`
    source: str
    packed: str = ""
    slow: bool = False  # whether the last start took longer than `_SLOW_S`, with an archive or without
    _fresh: bool = False  # whether the archive is of this evaluation

    def start(self) -> RunnerHandle:
        """A runner with the candidate built and its parameters loaded.

        Raises:
            Finding: the candidate cannot be built.
        """
        start = time.perf_counter()
        handle: RunnerHandle | None = None
        try:
            handle = self.pool.start(self.role, self.source)
            restored = build_archive.restore(handle, self.packed)
            self.pool.load_model(handle, self.source, "ModelNew")
        except RunnerFailed as failure:
            if handle is not None:  # it may still run
                self.pool.stop(handle)
            raise of_candidate(failure, building=True, doing="building the candidate") from None
        self.slow = time.perf_counter() - start > _SLOW_S
        if not restored:
            self.packed = build_archive.keep(handle)
            self._fresh = True
        return handle

    def for_later(self) -> str:
        """The archive if it is new, so that later evaluations need not build the candidate again; else empty."""
        return self.packed if self._fresh else ""
