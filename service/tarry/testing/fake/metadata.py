"""The metadata request, which all kinds of clients have."""

from functools import partial

from confluent_kafka import KafkaError
from confluent_kafka.admin._metadata import ClusterMetadata

from tarry.testing.fake.refusals import Unanswered, failure
from tarry.testing.fake.wire import FOR_EVER_MS, Wire


def ask_metadata(wire: Wire, topic: str | None, timeout_s: float) -> ClusterMetadata:
    """Return the cluster's metadata of one topic, or of all topics.

    Raises:
        KafkaException: the cluster does not answer in time.
    """
    timeout_ms = FOR_EVER_MS if timeout_s < 0 else round(timeout_s * 1000)
    try:
        return wire.ask_until_answered("list_topics", partial(wire.server.topics.metadata, topic), timeout_ms)
    except Unanswered as silence:
        raise failure(KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure") from silence
