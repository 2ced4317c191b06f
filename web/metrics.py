"""Metrics for Prometheus, in a registry of this application."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request

from db.records import JobStatus, StoreCounts
from db.store import Store
from service.views.metrics import store_counts
from web.security.identity import Viewer

COUNT_INTERVAL_S = 15.0
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

router = APIRouter(include_in_schema=False)


class Metrics:
    """The requests of this process, and counts over the store at the time of a scrape."""

    def __init__(self, store: Store, listeners: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_StoreCollector(store))
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
        """Count a request and how long its response took."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._latency.labels(route).observe(took_s)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _StoreCollector:
    """Counts over the store, at most every `COUNT_INTERVAL_S` seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts: StoreCounts | None = None
        self._counted_s = 0.0

    def describe(self) -> Iterator[Metric]:
        """Describe no metrics in advance, so that registering does not read the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The metrics. prometheus_client calls this for each scrape."""
        counts = self._count()
        now = datetime.now(UTC)
        jobs = GaugeMetricFamily("kernelwright_jobs", "Jobs by status.", labels=("status",))
        for status in JobStatus:
            jobs.add_metric((status.value,), counts.jobs.get(status.value, 0))
        yield jobs
        length = GaugeMetricFamily("kernelwright_queue_length", "Jobs that wait.", labels=("platform",))
        oldest = GaugeMetricFamily(
            "kernelwright_queue_oldest_wait_seconds", "How long the oldest of them has waited.", labels=("platform",)
        )
        for platform, (queued, since) in counts.queued.items():
            length.add_metric((platform,), queued)
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
        for labels, heartbeat_at in counts.heartbeats.items():
            ages.add_metric(labels, max((now - heartbeat_at).total_seconds(), 0.0))
        yield ages

    def _count(self) -> StoreCounts:
        with self._lock:
            if self._counts is None or time.monotonic() - self._counted_s > COUNT_INTERVAL_S:
                self._counts = store_counts(self._store)
                self._counted_s = time.monotonic()
            return self._counts


@router.get("/metrics")
def show(request: Request, _: Viewer) -> Response:
    """Return all metrics."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
