"""Starts runners of the candidate. What a slow build left behind is kept, so that it is paid for once."""

import time
from dataclasses import dataclass

from ..errors import RunnerFailed, of_candidate
from ..isolation.handle import RunnerHandle
from . import build_archive
from .runner_pool import RunnerPool

_SLOW_S = 3.0  # builds that take longer are kept


@dataclass
class Builder:
    """Builds the candidate of one trial. `packed` is its archive in base64, from an earlier trial of it or this one."""

    pool: RunnerPool
    packed: str = ""
    slow: bool = False  # whether the last build took long nevertheless

    def start(self) -> RunnerHandle:
        """A runner with the candidate, built.

        Raises:
            Finding: it cannot be built.
        """
        start = time.perf_counter()
        try:
            handle = self.pool.start("candidate")
            restored = build_archive.restore(handle, self.packed)
            self.pool.load_model(handle, self.pool.request.candidate_source, "ModelNew")
        except RunnerFailed as failure:
            raise of_candidate(failure, building=True, doing="building the candidate") from None
        self.slow = time.perf_counter() - start > _SLOW_S
        if self.slow and not restored:
            self.packed = build_archive.keep(handle)
        return handle
