"""How often someone may ask: buckets in memory, one a token, and one an address for tokens that open nothing."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from service.submissions.access import Principal
from web.problems import ProblemError

MAX_BUCKETS = 10_000
FAILURES_A_MINUTE = 20


class TokenBuckets:
    """Token buckets by key: each holds a minute's worth and fills steadily. The longest unused are forgotten first."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._a_minute = a_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float | None:
        """Take from a bucket; None if it held enough, else after how many seconds it will."""
        now = self._clock()
        with self._lock:
            left, then = self._kept.pop(key, (float(self._a_minute), now))
            left = min(float(self._a_minute), left + (now - then) * self._a_minute / 60)
            enough = left >= 1.0
            self._kept[key] = (left - 1.0 if enough else left, now)
            if len(self._kept) > MAX_BUCKETS:
                self._kept.popitem(last=False)
        return None if enough else (1.0 - left) * 60 / self._a_minute


class RateLimits:
    """The limits of one server process; with `a_minute` 0 there are none."""

    def __init__(self, a_minute: int) -> None:
        self._requests = TokenBuckets(a_minute) if a_minute else None
        self._failures = TokenBuckets(min(FAILURES_A_MINUTE, a_minute)) if a_minute else None

    def check_principal(self, principal: Principal) -> None:
        """Count a request of a token; the local user is not limited.

        Raises:
            ProblemError: too many; says when to try again.
        """
        if self._requests is not None and principal.token_id is not None:
            _refuse(self._requests.take(f"token {principal.token_id}"), "this token")

    def note_failure(self, address: str) -> None:
        """Count a request whose token opens nothing. Good tokens from the same address are not concerned: many people
        may share it, and there is nothing to guess.

        Raises:
            ProblemError: too many; says when to try again.
        """
        if self._failures is not None:
            _refuse(self._failures.take(address), "this address")


def _refuse(wait_s: float | None, who: str) -> None:
    if wait_s is not None:
        seconds = max(1, math.ceil(wait_s))
        raise ProblemError(
            429, f"too many requests of {who}; try again in {seconds} s", headers={"Retry-After": str(seconds)}
        )
