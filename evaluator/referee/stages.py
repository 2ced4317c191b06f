"""What each stage of the referee's work costs."""

import contextlib
import time
from collections.abc import Iterator


@contextlib.contextmanager
def stage(cost_s: dict[str, float], name: str) -> Iterator[None]:
    """Note in `cost_s` how many seconds the block took, however it ends."""
    start = time.perf_counter()
    try:
        yield
    finally:
        cost_s[name] = round(time.perf_counter() - start, 3)
