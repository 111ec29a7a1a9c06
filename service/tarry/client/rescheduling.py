"""Rescheduling: a cancel and the replacement message in one transaction.

Both become visible together or not at all. The service decides whether the cancel came in time, as for any cancel. If
it came too late, the service delivers both messages, and the cancel's outcome says so.

1. Begin a transaction, and produce the cancel and the message.
2. Wait until both are acknowledged. If one is refused, a commit would keep waiting for the other.
3. Commit. After a failure before the commit, abort: nothing was sent. After any failure, drop the producer: the next
   producer registers under the same transactional id, which aborts a transaction that this one left open.
"""

from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from confluent_kafka import KafkaException

from tarry.client.pending import IntakeTopic
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
    """Reschedules messages with its own transactional producer, which it creates at the first use.

    Not thread-safe.

    Args:
        cluster: the Kafka cluster.
        intake: where messages go.
        transactional_id: the producer's transactional id; None: a random one.
        timeout_s: how long the transaction may take, in seconds.
        clock: gives the timestamps of the records.
        reach: called before the first transaction; if it raises, nothing is sent.
    """

    def __init__(
        self,
        cluster: Cluster,
        intake: IntakeTopic,
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
                "delivery.report.only.error": False,  # receipts need the delivery reports of successes
                "message.timeout.ms": max(1, min(int(timeout_s * 1_000), TRANSACTION_TIMEOUT_MS)),
            },
        )
        self._intake = intake
        self._timeout_s = timeout_s
        self._clock = clock

    def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in one transaction, and wait until it is committed.

        Raises:
            HeaderError: the text is not a handle, or it belongs to another intake; the new message could never be
                delivered; or it has the id and the due time of the cancelled message.
            RetriableError: the time is over. If it is `may_be_done`, nobody knows whether the messages were sent;
                otherwise nothing was sent.
            FatalError: another producer has taken the transactional id.
            ConfigError: an option does not work with transactions.
            BrokerError: Kafka refused; nothing was sent.
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
        """Return the producer, if it exists."""
        return [self._transactor.producer] if self._transactor.started else []

    def close(self) -> None:
        """Close the producer."""
        self._transactor.close()

    def _begin(self) -> None:
        try:
            self._transactor.check_options()
            self._reach()
            self._transactor.renew()
        except KafkaException as exception:  # of the constructor; errors of brokers arrive translated
            raise ConfigError(f"options: {error_of(exception).str()}") from exception

    def _deliver(self, handle: Handle, message: DelayedMessage) -> RescheduleReceipt:
        """Produce both records in a transaction, and wait until they are acknowledged."""
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
            text = f"{error}; it may or may not be committed"
            raise type(error)(text, error.code, may_be_done=True) from error
        except BaseException:
            self._transactor.close()
            raise

    def _abort(self) -> None:
        """Abort the transaction and drop the producer, even if no broker answers.

        The producer is not used again: after a refused record librdkafka (2.16) may silently purge the next records.
        """
        # If the abort fails, the next registration aborts the transaction, or the coordinator after its time-out.
        with suppress(BrokerError):
            self._transactor.abort(self._timeout_s)
        self._transactor.close()


def refuse_itself(handle: Handle, message: DelayedMessage, now_ms: int, tick_ms: int) -> None:
    """Refuse, before a transaction begins, a message that could never be delivered or that equals the cancelled one.

    Args:
        handle: the message to cancel.
        message: the message to send in its place.
        now_ms: the current time.
        tick_ms: the service's `wheel.tick_ms`.

    Raises:
        HeaderError: the message could never be delivered, or it has the id and the due time of the cancelled one.
    """
    record = to_record(message, now_ms)
    if (record.id, record.due_ms(now_ms, tick_ms)) == (handle.id, handle.due_ms):
        raise HeaderError(
            f"the new message has the same id and due time as the message to cancel ({handle}): give it another id or "
            "another due time"
        )


def _nothing_sent(error: BrokerError) -> RetriableError:
    return RetriableError(f"could not reschedule; nothing was sent: {error.code}", error.code)
