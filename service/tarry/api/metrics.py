"""The figures of one replica of the API, in a registry of its own.

Labels are routes, statuses, kinds and outcomes: a fixed set, and none of them is a topic, a key or a principal.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ApiMetrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tarry_api_requests", "Requests that were answered.", ("method", "route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "tarry_api_request_seconds",
            "Time from the head of a request to the begin of its answer.",
            ("method", "route"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.under_way = Gauge("tarry_api_requests_under_way", "Requests that are handled.", registry=self.registry)
        self.sent = Counter(
            "tarry_api_sent",
            "Messages and schedules that Kafka has accepted, by way.",
            ("way",),
            registry=self.registry,
        )
        self.refused = Counter(
            "tarry_api_refused", "Messages that were not accepted, by code.", ("code",), registry=self.registry
        )
        self.streams = Gauge("tarry_api_event_streams", "Streams of events that are open.", registry=self.registry)
        self.streams_ended = Counter(
            "tarry_api_event_streams_ended",
            "Streams of events that ended, by reason.",
            ("why",),
            registry=self.registry,
        )
        self.events = Counter("tarry_api_events", "Events that were sent to streams.", registry=self.registry)
