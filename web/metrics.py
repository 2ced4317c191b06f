"""What Prometheus asks for, in a registry of the application's own."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """What this process counts by itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "kernelwright_http_requests",
            "HTTP requests by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._latency = Histogram(
            "kernelwright_http_request_seconds",
            "Time to answer, by route; of streams, how long they were open.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )

    def note_request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request that was answered."""
        known = method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._latency.labels(route).observe(took_s)
