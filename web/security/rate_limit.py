"""Rate limits by token bucket, in memory: requests by access token, failed authentications by client address."""

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
    """Token buckets by key. A bucket holds one minute's tokens and refills steadily.

    At most `MAX_BUCKETS` are kept; the one that was unused for the longest time is dropped first.
    """

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._a_minute = a_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by key: tokens left, and when

    def take(self, key: str) -> float | None:
        """Take a token from a bucket.

        Returns:
            None if there was one, else the seconds until there will be one.
        """
        now = self._clock()
        with self._lock:
            left, then = self._buckets.pop(key, (float(self._a_minute), now))
            left = min(float(self._a_minute), left + (now - then) * self._a_minute / 60)
            enough = left >= 1.0
            self._buckets[key] = (left - 1.0 if enough else left, now)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        return None if enough else (1.0 - left) * 60 / self._a_minute


class RateLimits:
    """The rate limits of one server process. `a_minute` = 0 disables them."""

    def __init__(self, a_minute: int) -> None:
        self._requests = TokenBuckets(a_minute) if a_minute else None
        self._failures = TokenBuckets(min(FAILURES_A_MINUTE, a_minute)) if a_minute else None

    def count_request(self, principal: Principal) -> None:
        """Count a request of an access token. The local user has no limit.

        Raises:
            ProblemError: The limit is reached; `Retry-After` says when to try again.
        """
        if self._requests is not None and principal.token_id is not None:
            _check_taken(self._requests.take(f"token {principal.token_id}"), "this token")

    def count_failure(self, address: str) -> None:
        """Count a failed authentication from this address.

        Requests with a valid token are not affected: many users may share an address, and tokens cannot be guessed.

        Raises:
            ProblemError: The limit is reached; `Retry-After` says when to try again.
        """
        if self._failures is not None:
            _check_taken(self._failures.take(address), "this address")


def _check_taken(wait_s: float | None, source: str) -> None:
    if wait_s is not None:
        seconds = max(1, math.ceil(wait_s))
        raise ProblemError(
            429, f"too many requests of {source}; try again in {seconds} s", headers={"Retry-After": str(seconds)}
        )
