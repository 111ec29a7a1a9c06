"""One write of an exclusive writer: a transaction whose waits are all bounded, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tarry.client.exclusive_record import WireRecord
from tarry.clock import Clock
from tarry.errors import AbortableError, BrokerError, RetriableError
from tarry.kafka.errors import error_of
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import Place

LEAST_S = 0.1
"""The least time for a step, in seconds, even if the write's time is over."""

# Errors that the same records would get again.
_FINAL = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)


@dataclass(slots=True)
class _Reports:
    """The delivery reports of a write's records."""

    error: KafkaError | None = None
    count: int = 0
    offset: int = -1

    def note(self, error: KafkaError | None, record: Any) -> None:
        """Note a delivery report."""
        if error is not None:
            self.error = self.error or error
            return
        self.count += 1
        self.offset = max(self.offset, record.offset())


class WriteTransactor(Transactor):
    """A transactional producer that writes to one partition, with a time limit for each write.

    Args:
        cluster: the Kafka cluster.
        transactional_id: the producer's transactional id.
        place: the partition.
        timeout_s: how long a write may take, in seconds.
        clock: measures the time limit.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, place: Place, timeout_s: float, clock: Clock) -> None:
        # The offsets come from the delivery reports of successes.
        super().__init__(cluster, transactional_id, properties={"delivery.report.only.error": False})
        self._place = place
        self._timeout_s = timeout_s
        self._clock = clock

    def write(self, records: Sequence[WireRecord]) -> int | BrokerError:
        """Write records in a transaction.

        Returns:
            The offset of the last record, if they are committed; the reason, if they are aborted: a `RetriableError` if
            another try may succeed.

        Raises:
            BrokerError: neither the commit nor the abort is confirmed.
        """
        deadline_ms = self._clock.monotonic_ms() + int(self._timeout_s * 1_000)

        def left_s() -> float:
            return max(LEAST_S, (deadline_ms - self._clock.monotonic_ms()) / 1_000)

        reports = _Reports()
        self.begin()
        refusal = self._fill(records, reports, deadline_ms)
        if refusal is None:
            try:
                patiently(lambda: self.commit(left_s()), self._clock, left_s())
            except AbortableError as error:
                refusal = not_there(error)
            else:
                return reports.offset
        # The next write needs a new producer: after a batch that a broker refused, librdkafka also purges the first
        # records of the next transaction (2.16).
        self.abort(left_s())
        return refusal

    def _fill(self, records: Sequence[WireRecord], reports: _Reports, deadline_ms: int) -> BrokerError | None:
        """Put records into the open transaction; return why it must be aborted, or None.

        Raises:
            FatalError: the producer is lost.
        """
        topic, partition = self._place
        try:
            for one in records:
                self.produce(topic, partition, one.key, one.value, one.headers, reports.note)
            self.deliver(lambda: reports.error is not None or self._clock.monotonic_ms() >= deadline_ms)
        except AbortableError as error:
            return not_there(error)
        except KafkaException as exception:
            reports.error = error_of(exception)
        doing = f"write to {topic}/{partition}"
        if (refused := reports.error) is not None:
            kind = BrokerError if refused.code() in _FINAL else RetriableError
            return not_there(BrokerError(f"could not {doing}: {refused.str()}", refused.name()), kind)
        if reports.count < len(records):
            return not_there(BrokerError(f"could not {doing} within {self._timeout_s:g} s"))
        return None


def not_there(cause: BrokerError, kind: type[BrokerError] = RetriableError) -> BrokerError:
    """Return the error that says that none of a write's records are in the log."""
    return kind(f"{cause}; nothing was written", cause.code)
