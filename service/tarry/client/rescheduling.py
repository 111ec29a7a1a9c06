"""Re-scheduling: a cancel and the message that takes the place of the cancelled one, in one transaction.

Nobody sees one without the other. Whether the cancel came in time the service decides, as it does for any: if not, both
messages are delivered, and the cancel's outcome says so.

1. Begin, and hand over cancel and message.
2. Wait until both are acknowledged: a commit would wait on for the other where one is refused.
3. Commit. Where something fails before, abort: nothing of it was sent. After any failure the producer is dropped: the
   next one registers under the same id, which ends what this one has left.
"""

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from confluent_kafka import KafkaException

from tarry.client.pending import Intake
from tarry.client.receipt import DelayedMessage, RescheduleReceipt
from tarry.client.record import to_handle, to_record
from tarry.client.sending import Sender
from tarry.clock import Clock
from tarry.errors import AbortableError, BrokerError, ConfigError, HeaderError, RetriableError
from tarry.handle import Handle
from tarry.kafka.errors import error_of
from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS, Cluster
from tarry.kafka.transaction import Transactor


class Rescheduler:
    """Re-schedules, with a transactional producer of its own that is made when it is first needed.

    For one thread at a time.

    Args:
        cluster: where.
        intake: where messages go.
        transactional_id: the name under which Kafka knows it; None: a random one.
        timeout_s: how long the transaction may take to be acknowledged.
        clock: for the records' timestamps.
        reach: called before the first transaction; what it raises is raised in its place.
    """

    def __init__(
        self,
        cluster: Cluster,
        intake: Intake,
        transactional_id: str | None,
        timeout_s: float,
        clock: Clock,
        reach: Callable[[], None],
    ) -> None:
        self._reach = reach
        self._transactor = Transactor(
            cluster,
            transactional_id or f"tarry-client-{uuid4()}",
            properties={
                "delivery.report.only.error": False,  # receipts are made from reports of success
                "message.timeout.ms": max(1, min(int(timeout_s * 1_000), TRANSACTION_TIMEOUT_MS)),
            },
        )
        self._intake = intake
        self._timeout_s = timeout_s
        self._clock = clock

    def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another, both or neither, and wait until that is committed.

        Raises:
            HeaderError: no handle, or one of another intake; a message that could never be delivered; or one with the
                cancelled message's own id and due time.
            RetriableError: not in time: nothing was sent, or, as the text then says, it may be committed or not.
            FatalError: another producer took the transactional id.
            ConfigError: an option does not go with transactions.
            BrokerError: Kafka refused it, and nothing was sent.
        """
        parsed = to_handle(handle, self._intake.topic)
        refuse_itself(parsed, message, self._clock.now_ms(), self._intake.tick_ms)
        if not self._transactor.started:
            self._begin()
        try:
            receipt = self._deliver(parsed, message)
        except (AbortableError, RetriableError) as error:
            self._abort()
            raise _nothing_sent(error) from error
        except BaseException:
            self._abort()
            raise
        self._commit()
        return receipt

    def clients(self) -> list[object]:
        """The producer, while there is one."""
        return [self._transactor.producer] if self._transactor.started else []

    def close(self) -> None:
        """Drop the producer."""
        self._transactor.close()

    def _begin(self) -> None:
        try:
            self._transactor.check_options()
            self._reach()
            self._transactor.renew()
        except KafkaException as exception:  # of making it; what brokers refuse has errors of its own
            raise ConfigError(f"options: {error_of(exception).str()}") from exception

    def _deliver(self, handle: Handle, message: DelayedMessage) -> RescheduleReceipt:
        """Have both acknowledged in a transaction."""
        sender = Sender(self._transactor.producer, self._intake, self._clock)
        self._transactor.begin()
        cancel = sender.cancel(handle)
        sent = sender.send(message)
        self._transactor.deliver(lambda: cancel.error is not None or sent.error is not None)
        for refused in (cancel, sent):
            if refused.error is not None:
                refused.receipt()
        return RescheduleReceipt(sent.receipt(), cancel.receipt())

    def _commit(self) -> None:
        try:
            self._transactor.commit(self._timeout_s)
        except AbortableError as error:
            self._abort()
            raise _nothing_sent(error) from error
        except BrokerError as error:
            self._transactor.close()
            raise type(error)(f"{error}; it may or may not be committed", error.code) from error
        except BaseException:
            self._transactor.close()
            raise

    def _abort(self) -> None:
        """End what was begun, also where nobody answers; the next one has another producer.

        After a refused record librdkafka (2.16) may purge what is produced next, without a word of why.
        """
        # Where it cannot be aborted, registering anew does that, or the broker after the transaction's time-out.
        with suppress(BrokerError):
            self._transactor.abort(self._timeout_s)
        self._transactor.close()


def refuse_itself(handle: Handle, message: DelayedMessage, now_ms: int, tick_ms: int) -> None:
    """Refuse, before anything is begun, what can never be delivered.

    Args:
        handle: of the message that is to be cancelled.
        message: what is to be sent in its place.
        now_ms: the time.
        tick_ms: the service's.

    Raises:
        HeaderError: a message that could never be delivered, or one with the same id and due time.
    """
    record = to_record(message, now_ms)
    if (record.id, record.due_ms(now_ms, tick_ms)) == (handle.id, handle.due_ms):
        raise HeaderError(f"a duplicate where the cancel is too late: {handle} names the message's own id and due time")


def _nothing_sent(error: BrokerError) -> RetriableError:
    return RetriableError(f"could not re-schedule, and nothing was sent: {error.code}", error.code)
