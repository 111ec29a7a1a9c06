"""The one writer of a partition: it knows of each write whether it succeeded, and where its source is to go on.

A producer that loses the answer to a write cannot tell whether it is in the log. Here each record says where the source
stood, each write is one transaction, and the partition has one writer at a time: so its last record tells. What a dead
or hanging predecessor left open is aborted or completed, and the predecessor shut out, by Kafka's own fencing: all
writers of a partition have one transactional id.

A write ends in one of three ways:

1. The commit is answered: it succeeded.
2. It is aborted, and the abort is answered: nothing of it is there.
3. Neither within the time. Then the producer is built anew under the same id, which settles what is open on the
   brokers' side, and the last record of the partition is either of this write, or the one from before it. One that is
   neither comes from another writer.
"""

import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import NoReturn, Self

from confluent_kafka import KafkaError

from tarry.client.exclusive_log import LogEnd, PartitionLog
from tarry.client.exclusive_record import LastRecord, SourceRecord, to_wire
from tarry.client.exclusive_transaction import WriteTransactor, not_there
from tarry.client.forking import Origin, keep_in_children
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, ConfigError, FencedError, HeaderError, UndecidedError, UsageError
from tarry.headers import is_legal_topic
from tarry.kafka.clients import LIBRARY, Clients
from tarry.kafka.patience import patiently
from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS, Cluster
from tarry.units import shown

__all__ = ["ExclusiveWriter", "LastRecord", "SourceRecord"]

_NO_OPTIONS: Mapping[str, str | int | float | bool] = MappingProxyType({})

_FENCED = frozenset(
    KafkaError(code).name()
    for code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
)


class ExclusiveWriter:
    """Writes to one partition, as the only one that does.

    A context manager, for one thread. `resume` comes first: it shuts out whoever wrote before, and says where to go on.

    Example:
        with ExclusiveWriter("localhost:9092", "binlog") as writer:
            last = writer.resume()
            for position, row in source.read_from(last.position if last else None):
                writer.write([SourceRecord(position, row)])

    Args:
        bootstrap_servers: Kafka's, `HOST:PORT`, several with commas.
        topic: which exists.
        partition: of the topic.
        options: librdkafka's properties, for security and the like.
        transactional_id: the name under which writers of this partition shut each other out; None:
            `tarry-writer-<topic>-<partition>`. All writers of a partition must have the same.
        timeout_s: how long a write may take, and how long it is then tried to find out what became of it; less than the
            30 s after which the brokers end a transaction.
        clients: who makes the clients.
        clock: for bounds.

    Raises:
        HeaderError: the topic's name is no topic name.
        ConfigError: a value makes no sense.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partition: int = 0,
        options: Mapping[str, str | int | float | bool] = _NO_OPTIONS,
        *,
        transactional_id: str | None = None,
        timeout_s: float = 15.0,
        clients: Clients = LIBRARY,
        clock: Clock | None = None,
    ) -> None:
        if not is_legal_topic(topic):
            raise HeaderError(f"topic: not a legal topic name: {shown(topic)}")
        if partition < 0:
            raise ConfigError(f"partition: not negative: {partition}")
        if not 0 < timeout_s * 1_000 < TRANSACTION_TIMEOUT_MS:
            raise ConfigError(f"timeout_s: more than 0 and less than {TRANSACTION_TIMEOUT_MS // 1_000}: {timeout_s:g}")
        if transactional_id == "":
            raise ConfigError("transactional_id: not empty")
        self._topic = topic
        self._partition = partition
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        cluster, place = Cluster(bootstrap_servers, options, clients), (topic, partition)
        name = transactional_id or f"tarry-writer-{topic}-{partition}"
        self._transactor = WriteTransactor(cluster, name, place, timeout_s, self._clock)
        self._log = PartitionLog(cluster, place, self._clock)
        self._name = uuid.uuid4().hex[:16]
        self._writes = 0
        self._known: LogEnd | None = None
        """What the partition holds; None before it was taken over, and while the fate of a write is open."""
        self._shut_out = ""
        """Why this writer may not write any more; empty while it may."""
        self._closed = False
        self._origin = Origin()
        keep_in_children(self)

    def clients(self) -> list[object]:
        """Those that a forked process inherits."""
        return [*([self._transactor.producer] if self._transactor.started else []), *self._log.clients()]

    @property
    def transactional_id(self) -> str:
        """Under which the brokers know this writer, and the next one."""
        return self._transactor.transactional_id

    def resume(self) -> LastRecord | None:
        """Take the partition over: shut out whoever wrote before, and say where the source is to go on.

        Also after `UndecidedError`: what it returns tells whether that write succeeded.

        Returns:
            The last committed record; None where the partition holds none.

        Raises:
            FencedError: another writer took over from this one.
            UsageError: there is no such partition.
            RetriableError: the brokers do not answer.
            BrokerError: they refuse.
        """
        return self._seize().last

    def last(self) -> LastRecord | None:
        """Look at the last committed record, and shut nobody out.

        What was written a moment ago may not show yet: brokers say that a transaction is committed before its records
        can be read. After `resume` all shows.

        Returns:
            The record; None where the partition holds none.

        Raises:
            UsageError: there is no such partition, or the writer is closed.
            RetriableError: the brokers do not answer.
        """
        self._check_open()
        return patiently(self._look, self._clock, self._timeout_s).last

    def write(self, records: Iterable[SourceRecord]) -> LastRecord:
        """Write records in one transaction: all of them or none, next to each other, in this order.

        Args:
            records: at least one; the position of the last one is where the source goes on.

        Returns:
            The last of them, with its offset: they are all there.

        Raises:
            HeaderError: a record cannot be sent; nothing was.
            RetriableError: nothing of it is there; the same call may go through.
            UndecidedError: whether it is there is not known yet; call `resume`, and go on behind what that returns.
            FencedError: another writer took over from this one; this one writes nothing more.
            UsageError: there are no records, or `resume` has to come first; or the partition was emptied so soon that
                nobody can say whether they had been there.
            BrokerError: nothing of it is there, and the brokers will not take it.
        """
        self._check_alive()
        if self._known is None:
            raise UsageError("resume comes first: it says where to go on")
        tag = f"{self._name}/{self._writes + 1}"
        ready = [to_wire(record, tag) for record in records]
        if not ready:
            raise UsageError("nothing to write: a write has at least one record")
        self._writes += 1
        # Not known while it is written: if this is interrupted, `resume` has to come first.
        before, self._known = self._known, None
        try:
            outcome = self._transactor.write(ready)
        except BrokerError as error:
            self._check_fenced(error)
            return self._settle(before, tag, error)
        if isinstance(outcome, BrokerError):
            # Where nothing had reached the brokers, the client aborts by itself, and does not hear that it is fenced.
            self._find_out(before, tag, outcome)
            raise outcome
        last = LastRecord(ready[-1].position, outcome, tag)
        self._known = LogEnd(last, before.start, max(before.end, outcome + 1))
        return last

    def close(self) -> None:
        """End. A second call does nothing."""
        if not self._closed and not self._origin.is_elsewhere:
            self._closed = True
            self._transactor.close()
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _settle(self, before: LogEnd, tag: str, cause: BrokerError) -> LastRecord:
        """Find out what became of a write that was neither committed nor aborted for sure.

        Returns:
            The last record, of that write: it succeeded.

        Raises:
            RetriableError: nothing of it is there.
            UndecidedError: the brokers do not answer.
            FencedError: there is another writer.
            UsageError: what would tell is gone.
        """
        last = self._find_out(before, tag, cause)
        if last is None:
            raise not_there(cause) from cause
        return last

    def _find_out(self, before: LogEnd, tag: str, cause: BrokerError) -> LastRecord | None:
        """Take over anew after a write that failed, and see whether it is there.

        1. Look at the log: where another writer has written since, it is not to be shut out by this one.
        2. Take over anew: what is open on the brokers' side is settled then, one way or the other.
        3. The last record tells.

        Returns:
            The last record, if it is of that write.

        Raises:
            UndecidedError: the brokers do not answer.
            FencedError: there is another writer.
            UsageError: what would tell is gone.
        """
        try:
            self._judge(patiently(self._look, self._clock, self._timeout_s), before, tag)
            now = self._seize()
        except FencedError:
            raise
        except BrokerError as error:
            raise UndecidedError(f"{cause}; and whether it succeeded is not known: {error}", error.code) from cause
        return self._judge(now, before, tag)

    def _judge(self, now: LogEnd, before: LogEnd, tag: str) -> LastRecord | None:
        """The last record, if it is of the write of this tag.

        Raises:
            FencedError: the last record is neither of this write nor the one from before it.
            UsageError: nothing is left, and more was deleted than was there before.
        """
        place = f"{self._topic}/{self._partition}"
        if now.last is None:
            if now.start > before.end:
                self._known = None  # it is not to be taken for an empty one that all can be written to
                raise UsageError(f"{place} was emptied: whether the last write had succeeded cannot be said")
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
        if self._shut_out:
            raise FencedError(self._shut_out)

    def _check_fenced(self, error: BrokerError) -> None:
        if error.code in _FENCED:
            self._be_fenced(
                f"{error}: another writer has registered as {self.transactional_id}, or the brokers have ended a "
                f"transaction that was open for {TRANSACTION_TIMEOUT_MS // 1_000} s",
                error,
            )

    def _be_fenced(self, text: str, cause: BrokerError | None = None) -> NoReturn:
        self._known = None
        self._shut_out = text
        self._transactor.close()
        raise FencedError(text, "" if cause is None else cause.code) from cause
