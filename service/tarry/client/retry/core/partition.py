"""One partition of a retrying consumer: decides about each record, and collects the records to write; pure.

It takes the records of the topic and of the retry topic one after the other. Each goes to the handler, to the intake,
or to the dead letters. The records to write collect until a transaction writes them together with the new offsets.
"""

from collections.abc import Iterable, Mapping

from tarry.client.retry.core.journey import ALONE, Headers, Journey, journey_of, own_headers, redriven_episode
from tarry.client.retry.core.key_queue import (
    Decision,
    HandleNow,
    KeyQueues,
    SendOff,
    Skip,
    Ticket,
    ToDeadLetters,
    encode,
)
from tarry.client.retry.core.message import Incoming, OutgoingRecord, RetryMessage
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import GaveUp, RetryPolicy
from tarry.errors import HeaderError
from tarry.headers import (
    CLOUDEVENTS_ID,
    DELIVER_AT,
    ERROR,
    ERROR_DETAIL,
    ID,
    PARTITION,
    TARGET,
    derived_id,
    parse_cloudevents_id,
    parse_id,
)

FOREIGN = "not-on-its-way-back"
"""The error code of a retry-topic record that this consumer did not send; it becomes a dead letter."""


class RetryPartition:
    """One partition of the topic, with the same partition of the retry, state and dead-letter topics.

    Args:
        names: the names of the topics.
        partition: the partition number, the same in all topics.
        policy: decides after failures.
        key_queues: the keys in trouble.
        positions: the next offset of the topic and of the retry topic.
        keeps_order: whether later messages of a key wait for a failed one.
    """

    def __init__(
        self,
        names: Names,
        partition: int,
        policy: RetryPolicy,
        key_queues: KeyQueues,
        positions: Mapping[str, int],
        *,
        keeps_order: bool,
    ) -> None:
        self.partition = partition
        self.positions = dict(positions)
        self.key_queues = key_queues
        self._names = names
        self._policy = policy
        self._keeps_order = keeps_order
        self._out: list[OutgoingRecord] = []
        self.looked_at: tuple[tuple[str, int], int] | None = None
        """Topic, partition and offset of the last record that was taken."""
        self.is_dirty = False
        """Whether a transaction has something to write."""

    def look(self, record: Incoming, now_ms: int, refusal: BaseException | None = None) -> RetryMessage | None:
        """Take the next record.

        Args:
            record: of the topic or the retry topic; one below the position is ignored.
            now_ms: the current time.
            refusal: why the brokers permanently refuse to take the message to the intake; None: they do not.

        Returns:
            The message, if the handler must get it now; then the caller calls `succeeded` or `failed` next. None: the
            record is settled.
        """
        if not self._comes_next(record):
            return None
        if record.topic == self._names.retry:
            message = self._look_at_returned(record, now_ms, refusal)
        else:
            message = self._look_at_new(record, now_ms)
        if message is None:
            self._settle()
        return message

    def is_full(self, record: Incoming, most: int) -> bool:
        """Whether the key queue that a record of the topic would join already has `most` messages."""
        return self._joins_key_queue(record) and self.key_queues.length(record.key or b"") >= most

    def _joins_key_queue(self, record: Incoming) -> bool:
        is_new = record.topic == self._names.topic and self._keeps_order
        return is_new and record.key is not None and self.key_queues.of(record.key) is not None

    def refused(self, record: Incoming, error: BaseException, now_ms: int) -> None:
        """Give up a record whose outgoing records the brokers permanently refuse."""
        if self._joins_key_queue(record):
            self.refuse(record, GaveUp.UNSENDABLE, str(error))
        elif (message := self.look(record, now_ms, error)) is not None:
            self.give_up(message, error, now_ms)

    def refuse(self, record: Incoming, code: str, detail: str) -> None:
        """Write a record that cannot be handled to the dead letters, unchanged."""
        if self._comes_next(record):
            self._add_dead_letter(record, record.headers, code, detail)
            self._settle()

    def _comes_next(self, record: Incoming) -> bool:
        """Whether a record was not taken before; if so, remember it as the last one."""
        if record.offset < self.positions[record.topic]:
            return False
        self.looked_at = (record.topic, self.partition), record.offset
        return True

    def _settle(self) -> None:
        """Advance the position past the last record."""
        if self.looked_at is not None:
            (topic, _), offset = self.looked_at
            self.positions[topic] = offset + 1
        self.is_dirty = True

    def _key_in_order(self, message: RetryMessage) -> bytes | None:
        """Return the message's key if the order of keys is kept; otherwise None."""
        return message.key if self._keeps_order else None

    def _look_at_new(self, record: Incoming, now_ms: int) -> RetryMessage | None:
        message = self._first_seen(record)
        if (key := self._key_in_order(message)) is None:
            return message
        releases = redriven_episode(record.headers, self._names.dead)
        return self._decided(message, self.key_queues.read(key, now_ms, releases=releases))

    def _look_at_returned(self, record: Incoming, now_ms: int, refusal: BaseException | None) -> RetryMessage | None:
        try:
            journey = journey_of(record.headers)
        except HeaderError as error:
            self._add_dead_letter(record, record.headers, FOREIGN, str(error))
            return None
        message = RetryMessage(
            self._names.topic,
            self.partition,
            journey.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            own_headers(record.headers),
            journey.id,
            journey.attempts + 1,
            journey,
            returned=True,
        )
        if (key := self._key_in_order(message)) is None:
            return message
        if journey.ticket.number == ALONE:  # sent when the consumer did not keep the order
            return self._decided(message, self.key_queues.read(key, now_ms), refusal)
        return self._decided(message, self.key_queues.came_back(key, journey.ticket, now_ms), refusal)

    def _first_seen(self, record: Incoming) -> RetryMessage:
        message_id = _id_of(record, self.partition)
        source = f"{record.topic}/{self.partition}/{record.offset}"
        journey = Journey(message_id, source, Ticket(record.offset, ALONE))
        headers = own_headers(record.headers)
        return RetryMessage(
            record.topic,
            self.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            headers,
            message_id,
            1,
            journey,
            returned=False,
        )

    def _decided(
        self, message: RetryMessage, decision: Decision, refusal: BaseException | None = None
    ) -> RetryMessage | None:
        match decision:
            case HandleNow():
                return message
            case SendOff(ticket) if refusal is not None:
                self.key_queues.give_up_early(message.key or b"", ticket)
                headers = _dead_letter_headers(message.journey._replace(ticket=ticket), message.headers)
                self._add_dead_letter(message, headers, GaveUp.UNSENDABLE, str(refusal))
            case SendOff():
                self._send_off(message, message.journey, decision)
            case ToDeadLetters(ticket):
                self._give_up(message, message.journey._replace(ticket=ticket), GaveUp.STOPPED)
            case Skip():
                pass
        return None

    def heads_overdue(self, before_ms: int) -> dict[tuple[bytes, Ticket], int]:
        """Return the heads that were due before a time: keys and tickets, each with its due time."""
        return {
            (key, Ticket(trouble.episode, trouble.head)): trouble.head_due_ms
            for key, trouble in self.key_queues.overdue(before_ms)
        }

    def never_comes(self, record: Incoming, why: str) -> None:
        """Write a head that will never come back to the dead letters; the next message may be handled.

        Args:
            record: its record in the intake.
            why: its outcome and reason.
        """
        journey = journey_of(record.headers)
        trouble = self.key_queues.of(record.key or b"") if journey.partition == self.partition else None
        if trouble is None or trouble.stopped or journey.ticket != (trouble.episode, trouble.head):
            return  # it belongs to another partition, or it has come back after all
        self._add_dead_letter(
            record, _dead_letter_headers(journey, own_headers(record.headers)), GaveUp.NEVER_CAME, why
        )
        self.key_queues.done(record.key or b"", journey.ticket)
        self.is_dirty = True

    # -- after the handler --------------------------------------------------------------------------------------------

    def succeeded(self, message: RetryMessage, produced: Iterable[OutgoingRecord]) -> None:
        """Note that the handler returned.

        Args:
            message: from `look`.
            produced: the records that the handler sends.
        """
        self._out.extend(produced)
        self._advance_head(message)
        self._settle()

    def failed(self, message: RetryMessage, error: BaseException, now_ms: int, chance: float) -> GaveUp | None:
        """Note that the handler raised.

        Args:
            message: from `look`.
            error: the exception.
            now_ms: the current time.
            chance: a random number from 0 up to 1, for the jitter.

        Returns:
            Why the message is given up; None: it will be retried.
        """
        journey = message.journey.failed(error, now_ms)
        decision = self._policy.decide(error, journey.attempts, journey.first_failed_ms, now_ms, chance)
        ticket, key = self._ticket(message), self._key_in_order(message)
        if decision.delay_ms is not None:
            due_ms = now_ms + decision.delay_ms
            if key is not None:
                sent = self.key_queues.again(key, message.offset, ticket, due_ms, now_ms)
            else:
                self._advance_head(message)  # it may be in a key queue of a time when the consumer kept the order
                sent = SendOff(Ticket(message.offset, ALONE), due_ms)
            self._send_off(message, journey, sent)
            self._settle()
            return None
        if decision.stops_key and key is not None:
            journey = journey._replace(ticket=self.key_queues.stop(key, message.offset, ticket, now_ms))
        else:
            self._advance_head(message)
        self._give_up(message, journey, decision.gave_up or GaveUp.FINAL)
        self._settle()
        return decision.gave_up

    def give_up(self, message: RetryMessage, error: BaseException, now_ms: int) -> None:
        """Make a message a dead letter, whatever the policy says: the brokers permanently refuse its records."""
        self._advance_head(message)
        self._give_up(message, message.journey.failed(error, now_ms), GaveUp.UNSENDABLE)
        self._settle()

    def reach(self, topic: str, position: int) -> None:
        """Note the reader's position: offsets below it that were not taken are control or aborted records."""
        if position > self.positions[topic]:
            self.positions[topic] = position
            self.is_dirty = True

    def _ticket(self, message: RetryMessage) -> Ticket | None:
        """Return its place in a key queue; None: it is in no key queue."""
        ticket = message.journey.ticket
        return ticket if message.returned and ticket.number != ALONE else None

    def _advance_head(self, message: RetryMessage) -> None:
        if message.key is None or (ticket := self._ticket(message)) is None:
            return
        trouble = self.key_queues.of(message.key)
        if trouble is not None and (trouble.episode, trouble.head) == ticket:
            self.key_queues.done(message.key, ticket)

    def _send_off(self, message: RetryMessage, journey: Journey, sent: SendOff) -> None:
        journey = journey.sent_off(sent.ticket)
        headers = [
            *message.headers,
            (TARGET, self._names.retry.encode()),
            (PARTITION, b"%d" % self.partition),
            (DELIVER_AT, b"%d" % sent.due_ms),
            (ID, journey.hop_id(self._names.group)),
            *journey.headers(),
        ]
        self._out.append(OutgoingRecord(self._names.intake, -1, message.key, message.value, headers))

    def _give_up(self, message: RetryMessage, journey: Journey, why: GaveUp) -> None:
        self._add_dead_letter(message, _dead_letter_headers(journey, message.headers), why)

    def _add_dead_letter(self, one: Incoming | RetryMessage, headers: Headers, code: str, detail: str = "") -> None:
        reason: Headers = [(ERROR, code.encode()), *([(ERROR_DETAIL, detail.encode())] if detail else [])]
        self._out.append(OutgoingRecord(self._names.dead, self.partition, one.key, one.value, [*headers, *reason]))

    # -- transactions -------------------------------------------------------------------------------------------------

    def outgoing(self) -> list[OutgoingRecord]:
        """Return the records that a transaction must write; the changed states of keys come last."""
        state = [
            OutgoingRecord(self._names.state, self.partition, key, encode(trouble) if trouble else None, [])
            for key, trouble in self.key_queues.changed().items()
        ]
        return [*self._out, *state]

    def commit(self) -> None:
        """Note that the transaction is committed."""
        self._out = []
        self.is_dirty = False
        self.key_queues.commit()


def _dead_letter_headers(journey: Journey, headers: Headers) -> Headers:
    """Return the headers of a dead letter: the message's own, its id and its journey."""
    return [*headers, (ID, journey.id.encode()), *journey.headers()]


def _id_of(record: Incoming, partition: int) -> str:
    headers = dict(reversed(record.headers))
    found = parse_id(headers.get(ID)) or parse_cloudevents_id(headers.get(CLOUDEVENTS_ID))
    return (found or derived_id(record.topic, partition, record.offset)).decode()
