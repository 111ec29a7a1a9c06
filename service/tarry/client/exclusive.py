"""The exclusive writer of a partition: it knows whether each write succeeded, and where its source must continue.

A producer that loses the response to a write cannot tell whether the records are in the log. Here each record holds the
position of the source, each write is one transaction, and the partition has one writer at a time. So the last record of
the partition tells. All writers of a partition use the same transactional id: registering a new one fences a dead or
hanging predecessor, and the coordinator aborts or completes its open transaction.

A write ends in one of three ways:

1. The coordinator confirms the commit: the write succeeded.
2. The coordinator confirms the abort: none of its records are in the log.
3. It confirms neither in time. Then the writer registers a new producer under the same id, which ends the open
   transaction. Now the last record of the partition is either from this write or the one before it. If it is neither,
   another writer wrote it.
"""

import uuid
from collections.abc import Iterable
from typing import NoReturn

from confluent_kafka import KafkaError

from tarry.client.closing import Closing
from tarry.client.exclusive_log import LogEnd, LogTail
from tarry.client.exclusive_record import LastRecord, SourceRecord, to_wire
from tarry.client.exclusive_transaction import WriteTransactor, not_there
from tarry.client.forking import CreatingProcess, keep_in_children
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, ConfigError, FencedError, HeaderError, UndecidedError, UsageError
from tarry.headers import is_legal_topic
from tarry.kafka.clients import LIBRARY, Clients
from tarry.kafka.patience import patiently
from tarry.kafka.settings import NO_OPTIONS, TRANSACTION_TIMEOUT_MS, Cluster, Options
from tarry.units import shown

__all__ = ["ExclusiveWriter", "LastRecord", "SourceRecord"]


_FENCED = frozenset(
    KafkaError(code).name()
    for code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
)


class ExclusiveWriter(Closing):
    """Writes to one partition, as its only writer.

    A context manager; not thread-safe. Call `resume` first: it fences earlier writers, and returns where to continue.

    Example:
        with ExclusiveWriter("localhost:9092", "binlog") as writer:
            last = writer.resume()
            for position, row in source.read_from(last.position if last else None):
                writer.write([SourceRecord(position, row)])

    Args:
        bootstrap_servers: `HOST:PORT`, several separated by commas.
        topic: an existing topic.
        partition: the partition.
        options: librdkafka properties, for example for security.
        transactional_id: the id with which writers of this partition fence each other, the same for all of them; None:
            `tarry-writer-<topic>-<partition>`.
        timeout_s: how long a write may take, in seconds, and how long the writer then tries to find out whether it
            succeeded; less than the 30 s after which the coordinator aborts a transaction.
        clients: creates the Kafka clients.
        clock: measures the time-outs.

    Raises:
        HeaderError: `topic` is not a legal topic name.
        ConfigError: an argument has an invalid value.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partition: int = 0,
        options: Options = NO_OPTIONS,
        *,
        transactional_id: str | None = None,
        timeout_s: float = 15.0,
        clients: Clients = LIBRARY,
        clock: Clock | None = None,
    ) -> None:
        if not is_legal_topic(topic):
            raise HeaderError(f"topic: not a legal topic name: {shown(topic)}")
        if partition < 0:
            raise ConfigError(f"partition: must not be negative: {partition}")
        if not 0 < timeout_s * 1_000 < TRANSACTION_TIMEOUT_MS:
            limit_s = TRANSACTION_TIMEOUT_MS // 1_000
            raise ConfigError(f"timeout_s: must be greater than 0 and less than {limit_s}: {timeout_s:g}")
        if transactional_id == "":
            raise ConfigError("transactional_id: must not be empty")
        self._topic = topic
        self._partition = partition
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        cluster, place = Cluster(bootstrap_servers, options, clients), (topic, partition)
        name = transactional_id or f"tarry-writer-{topic}-{partition}"
        self._transactor = WriteTransactor(cluster, name, place, timeout_s, self._clock)
        self._log = LogTail(cluster, place, self._clock)
        self._name = uuid.uuid4().hex[:16]
        self._writes = 0
        self._known: LogEnd | None = None
        """The end of the partition's log; None before `resume`, and while it is unknown whether a write succeeded."""
        self._fenced_by = ""
        """Why this writer may not write any more; empty while it may."""
        self._closed = False
        self._origin = CreatingProcess()
        keep_in_children(self)

    def clients(self) -> list[object]:
        """Return the librdkafka clients, which a forked process inherits."""
        return [*([self._transactor.producer] if self._transactor.started else []), *self._log.clients()]

    @property
    def transactional_id(self) -> str:
        """The transactional id of all writers of this partition."""
        return self._transactor.transactional_id

    def resume(self) -> LastRecord | None:
        """Take the partition over: fence earlier writers, and return the record after which the source must continue.

        Call it after `UndecidedError`, too: the record that it returns tells whether that write succeeded.

        Returns:
            The last committed record; None if the partition holds none.

        Raises:
            FencedError: another writer has taken over from this one.
            UsageError: the partition does not exist.
            RetriableError: the brokers do not answer.
            BrokerError: the brokers refuse.
        """
        return self._seize().last

    def last(self) -> LastRecord | None:
        """Return the last committed record, without fencing other writers.

        Records that were written a moment ago may be missing: the coordinator confirms a commit before read_committed
        readers see the records. `resume` does not have this limit.

        Returns:
            The record; None if the partition holds none.

        Raises:
            UsageError: the partition does not exist, or the writer is closed.
            RetriableError: the brokers do not answer.
        """
        self._check_open()
        return patiently(self._look, self._clock, self._timeout_s).last

    def write(self, records: Iterable[SourceRecord]) -> LastRecord:
        """Write records in one transaction: all or none of them, adjacent, in this order.

        Args:
            records: at least one; the source continues after the position of the last one.

        Returns:
            The last record, with its offset. All records are committed.

        Raises:
            HeaderError: a record cannot be sent; nothing was written.
            RetriableError: nothing was written; the same call may succeed later.
            UndecidedError: it is not known yet whether the records were written; call `resume`, and continue after the
                record that it returns.
            FencedError: another writer has taken over from this one, which can no longer write.
            UsageError: there are no records, or `resume` must be called first; or the partition was emptied since, so
                that it cannot be known whether the records had been written.
            BrokerError: nothing was written, and the brokers would refuse the same records again.
        """
        self._check_alive()
        if self._known is None:
            raise UsageError("call resume first: it returns where to continue")
        tag = f"{self._name}/{self._writes + 1}"
        ready = [to_wire(record, tag) for record in records]
        if not ready:
            raise UsageError("nothing to write: a write needs at least one record")
        self._writes += 1
        # Unknown during the write: if it is interrupted, the caller must `resume` first.
        before, self._known = self._known, None
        try:
            outcome = self._transactor.write(ready)
        except BrokerError as error:
            self._check_fenced(error)
            return self._settle(before, tag, error)
        if isinstance(outcome, BrokerError):
            # If no record reached the brokers, librdkafka aborts locally, and does not notice that it is fenced.
            self._find_out(before, tag, outcome)
            raise outcome
        last = LastRecord(ready[-1].position, outcome, tag)
        self._known = LogEnd(last, before.start, max(before.end, outcome + 1))
        return last

    def close(self) -> None:
        """Close the writer. A second call does nothing."""
        if not self._closed and not self._origin.is_forked:
            self._closed = True
            self._transactor.close()
            self._log.close()

    def _settle(self, before: LogEnd, tag: str, cause: BrokerError) -> LastRecord:
        """Find out whether a write succeeded whose commit and abort are both unconfirmed.

        Returns:
            The last record of that write: it succeeded.

        Raises:
            RetriableError: nothing was written.
            UndecidedError: the brokers do not answer.
            FencedError: there is another writer.
            UsageError: the partition was emptied, so that it cannot be known.
        """
        last = self._find_out(before, tag, cause)
        if last is None:
            raise not_there(cause) from cause
        return last

    def _find_out(self, before: LogEnd, tag: str, cause: BrokerError) -> LastRecord | None:
        """Take over again after a failed write, and check whether its records are in the log.

        1. Look at the log: if another writer has written since, this one must not fence it.
        2. Take over again: this ends the open transaction, committed or aborted.
        3. Look at the last record.

        Returns:
            The last record, if it is from that write.

        Raises:
            UndecidedError: the brokers do not answer.
            FencedError: there is another writer.
            UsageError: the partition was emptied, so that it cannot be known.
        """
        try:
            self._written(patiently(self._look, self._clock, self._timeout_s), before, tag)
            now = self._seize()
        except FencedError:
            raise
        except BrokerError as error:
            raise UndecidedError(
                f"{cause}; it is not known yet whether the write succeeded ({error}): call resume()", error.code
            ) from cause
        return self._written(now, before, tag)

    def _written(self, now: LogEnd, before: LogEnd, tag: str) -> LastRecord | None:
        """Return the last record if the write with this tag wrote it; otherwise None.

        Raises:
            FencedError: the last record is neither from this write nor the one before it.
            UsageError: the log is empty, and more was deleted than it held before the write.
        """
        place = f"{self._topic}/{self._partition}"
        if now.last is None:
            if now.start > before.end:
                self._known = None  # so that the next write does not take it for a log that was always empty
                raise UsageError(f"{place} was emptied: it cannot be known whether the last write had succeeded")
            return None
        if now.last.writer == tag:
            return now.last
        if before.last is None or not now.last.is_same(before.last):
            self._be_fenced(f"another writer has written to {place}, at offset {now.last.offset}")
        return None

    def _seize(self) -> LogEnd:
        self._check_alive()
        self._known = None
        try:
            self._known = patiently(self._take_over, self._clock, self._timeout_s)
        except BrokerError as error:
            self._check_fenced(error)
            raise
        return self._known

    def _take_over(self) -> LogEnd:
        self._transactor.renew()
        return self._log.look(stable=False)

    def _look(self) -> LogEnd:
        return self._log.look(stable=True)

    def _check_open(self) -> None:
        self._origin.check("writer")
        if self._closed:
            raise UsageError("the writer is closed")

    def _check_alive(self) -> None:
        self._check_open()
        if self._fenced_by:
            raise FencedError(self._fenced_by)

    def _check_fenced(self, error: BrokerError) -> None:
        if error.code in _FENCED:
            self._be_fenced(
                f"{error}: another writer has registered as {self.transactional_id}, or the coordinator has aborted a "
                f"transaction that was open for {TRANSACTION_TIMEOUT_MS // 1_000} s",
                error,
            )

    def _be_fenced(self, text: str, cause: BrokerError | None = None) -> NoReturn:
        self._known = None
        self._fenced_by = text
        self._transactor.close()
        raise FencedError(text, "" if cause is None else cause.code) from cause
