"""What Prometheus asks for, in a registry of the application's own."""

import threading
import time
from collections.abc import Callable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request

from db.records import JobStatus
from db.store import Store
from db.types import utc_now
from db.views.metrics import Counts, count_all
from web.security.identity import Viewer

COUNTED_EVERY_S = 15.0
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

router = APIRouter(include_in_schema=False)


class Metrics:
    """What this process counts by itself, and what it finds in the store when it is asked."""

    def __init__(self, store: Store, listeners: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_OfStore(store))
        self._requests = Counter(
            "kernelwright_http_requests",
            "HTTP requests by method, route and status.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._latency = Histogram(
            "kernelwright_http_request_seconds",
            "Time to answer, by route; of streams, how long they were open.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        gauge = Gauge("kernelwright_event_listeners", "Open streams of events.", registry=self._registry)
        gauge.set_function(listeners)

    def count_request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request that was answered."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._latency.labels(route).observe(took_s)

    def text(self) -> bytes:
        """All metrics in Prometheus' text form."""
        return generate_latest(self._registry)


class _OfStore:
    """Reads the store when it is asked, and not more often than every fifteen seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts: Counts | None = None
        self._counted_s = 0.0

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance: registering must not need the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for."""
        counts = self._count()
        now = utc_now()
        jobs = GaugeMetricFamily("kernelwright_jobs", "Jobs by status.", labels=("status",))
        for status in JobStatus:
            jobs.add_metric((status.value,), counts.jobs.get(status.value, 0))
        yield jobs
        length = GaugeMetricFamily("kernelwright_queue_length", "Jobs that wait.", labels=("platform",))
        oldest = GaugeMetricFamily(
            "kernelwright_queue_oldest_wait_seconds", "How long the oldest of them has waited.", labels=("platform",)
        )
        for platform, (waiting, since) in counts.waiting.items():
            length.add_metric((platform,), waiting)
            oldest.add_metric((platform,), max((now - since).total_seconds(), 0.0))
        yield length
        yield oldest
        verdicts = GaugeMetricFamily("kernelwright_evaluations", "Evaluations by verdict.", labels=("verdict",))
        for verdict, number in counts.evaluations.items():
            verdicts.add_metric((verdict,), number)
        yield verdicts
        ages = GaugeMetricFamily(
            "kernelwright_worker_heartbeat_age_seconds",
            "Since when each worker that has not ended was not heard of.",
            labels=("host", "platform", "slot"),
        )
        for labels, beat in counts.heartbeats.items():
            ages.add_metric(labels, max((now - beat).total_seconds(), 0.0))
        yield ages

    def _count(self) -> Counts:
        with self._lock:
            if self._counts is None or time.monotonic() - self._counted_s > COUNTED_EVERY_S:
                with self._store.read() as session:
                    self._counts = count_all(session)
                self._counted_s = time.monotonic()
            return self._counts


@router.get("/metrics")
def show(request: Request, _: Viewer) -> Response:
    """All metrics."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
