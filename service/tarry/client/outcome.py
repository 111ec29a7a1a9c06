"""Waiting for what became of a message, or of a cancel: reads an intake's results.

Results are partition-aligned with the intake, so one partition is enough; and a result cannot stand before the
place where the partition ended when its message had not been sent yet.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tarry.client.receipt import CancelReceipt, Receipt
from tarry.errors import UsageError
from tarry.headers import Outcome
from tarry.kafka.errors import error_of, translate_group
from tarry.kafka.settings import Cluster

_POLL_S = 0.5
_METADATA_WITHIN_S = 30.0
_DEFINITE = frozenset({Outcome.FIRED, Outcome.CANCELLED, Outcome.DUPLICATE, Outcome.DEAD})


class OutcomeReader:
    """Waits for the outcomes of messages that are sent after it was made.

    A context manager, for one thread.

    Args:
        bootstrap_servers: Kafka's.
        intake: where the messages are sent.
        options: librdkafka's properties, for security and the like.

    Raises:
        UsageError: the intake has no results topic: the service has never served it.
        BrokerError: Kafka does not answer.
    """

    def __init__(
        self, bootstrap_servers: str, intake: str, options: Mapping[str, str | int | float | bool] | None = None
    ) -> None:
        self._topic = f"{intake}.results"
        self._consumer = Consumer(Cluster(bootstrap_servers, options or {}).reader())
        try:
            self._ends = self._find_ends()
        except KafkaException as exception:
            self._consumer.close()
            raise translate_group(error_of(exception), f"read {self._topic}") from exception
        except UsageError:
            self._consumer.close()
            raise

    def wait(self, receipt: Receipt) -> dict[str, Any]:
        """Wait until the message was delivered, cancelled, found to be a duplicate, or is dead.

        There is no time-out: a message for a target that is away waits as long as that.

        Returns:
            The result, as the service wrote it.

        Raises:
            BrokerError: the results can't be read.
        """
        handle = receipt.handle
        message_id = receipt.id.encode()
        source = f"{handle.topic}/{handle.partition}/{receipt.offset}"
        for key, value in self._records(handle.partition):
            if key == message_id:
                result = _result_of(value, source)
                if result is not None:
                    return result
        raise AssertionError("results have no end")

    def of_cancel(self, receipt: CancelReceipt, timeout_s: float) -> Iterator[dict[str, Any]]:
        """Wait for what comes of a cancel that was sent after this was made.

        Args:
            receipt: of the cancel.
            timeout_s: how long to wait in all.

        Yields:
            Its results, as the service wrote them: `cancel-filed`, where the message is still beyond the hot window;
            then the definite one: `cancelled`, `cancel-too-late`, or `dead` where the handle is none of the intake's.
            Nothing more once the time is over.

        Raises:
            BrokerError: the results can't be read.
        """
        ends = time.monotonic() + timeout_s
        for _, value in self._records(receipt.handle.partition, ends):
            result = _cancel_result_of(value, receipt.source)
            if result is not None:
                yield result
                if result["outcome"] != Outcome.CANCEL_FILED:
                    return

    def _records(self, partition: int, ends: float = math.inf) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Keys and values of a partition, from where it ended at the start, until a monotonic time."""
        start = TopicPartition(self._topic, partition, self._ends.get(partition, 0))
        try:
            self._consumer.assign([start])
            while (left := ends - time.monotonic()) > 0:
                record = self._consumer.poll(min(_POLL_S, left))
                if record is None:
                    continue
                error = record.error()
                if error is not None:
                    if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                        raise translate_group(error, f"read {self._topic}")
                    # The end of the partition, or what the client gets over by itself.
                    continue
                yield record.key(), record.value()
        except KafkaException as exception:
            raise translate_group(error_of(exception), f"read {self._topic}") from exception

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _find_ends(self) -> dict[int, int]:
        """Where each partition ends now, for a read_committed reader."""
        found = self._consumer.list_topics(self._topic, timeout=_METADATA_WITHIN_S).topics[self._topic]
        if found.error is not None:
            raise UsageError(f"there is no topic {self._topic}: has `tarry serve` served its intake?")
        ends = {}
        for partition in found.partitions:
            place = TopicPartition(self._topic, partition)
            ends[partition] = self._consumer.get_watermark_offsets(place, timeout=_METADATA_WITHIN_S)[1]
        return ends


def _result_of(value: bytes | None, source: str) -> dict[str, Any] | None:
    """A record's result, if it is the definite one of the message from `source`."""
    result = parsed_result(value)
    return result if result.get("source") == source and result.get("outcome") in _DEFINITE else None


def _cancel_result_of(value: bytes | None, source: str) -> dict[str, Any] | None:
    """A record's result, if it is one of the cancel from `source`; one that is dead is its own source."""
    if value is None or source.encode() not in value:
        return None
    result = parsed_result(value)
    is_dead = result.get("source") == source and result.get("outcome") == Outcome.DEAD
    return result if result.get("cancel_source") == source or is_dead else None


def parsed_result(value: bytes | None) -> dict[str, Any]:
    """A result's fields; none where it is no result."""
    try:
        result = json.loads(value or b"null")
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}
