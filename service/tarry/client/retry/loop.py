"""The loop of a consumer: reads, runs the handler for one message after the other, and commits.

The loop settles a message in memory first: the message is done, or goes to the intake for a retry, or to the dead
letters. One transaction then writes the records of all settled messages and the new offsets. The handler works in its
own thread while this thread keeps polling the group, so the handler has no time limit.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from confluent_kafka import KafkaError, Message

from tarry.client.group_consumer import GroupClients, GroupLoop
from tarry.client.retry.core.journey import described
from tarry.client.retry.core.message import Incoming
from tarry.client.retry.core.partition import RetryPartition
from tarry.client.retry.halves import Halves
from tarry.client.retry.handling import Running
from tarry.client.retry.missing import Missing
from tarry.client.retry.takeover import WRITER, TakeOver
from tarry.client.retry.terms import Runtime, Terms
from tarry.client.retry.trimming import Trimming
from tarry.client.retry.writing import RefusedRecord, deliver
from tarry.errors import AbortableError, BrokerError, RejoinError, RetriableError
from tarry.headers import ErrorCode
from tarry.kafka.record_headers import read_headers, saved_headers
from tarry.kafka.settings import ALONE_BYTES, BATCH_BYTES
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import OffsetMetadata, Place

READ_MOST = 500
"""The most records that a turn reads."""

SERVE_EVERY_S = 0.05
"""How long to wait for the handler between two polls of the group, in seconds."""

SERVE_TAKE_OVER_MS = 5_000
"""The time between two polls of the group during a take-over.

They are few, because a partition that is revoked in mid-take-over is not released: its next owner fences this process.
"""

ASIDE_MS = 60_000
"""How long a partition stays aside whose dead letter the brokers refuse, before it is tried again."""

COMMIT_AFTER_MS = 200
"""The longest time from settling a message to its transaction; the loop commits sooner if there is nothing to read."""

COMMIT_MOST = 1_000
"""The most settled messages of one transaction."""

HAND_OVER_S = 20.0
"""How long a revoke waits for the handler, in seconds; if it takes longer, the next owner handles the message again."""


class UnsendableError(AbortableError):
    """The brokers permanently refuse a record that the handler sends, or that goes out for its message."""


class Loop(GroupLoop):
    """One consumer's loop; not thread-safe.

    Args:
        terms: the consumer's arguments.
        runtime: what the process gives it.
        clients: of this process's membership in the group.
        transactor: writes transactions.
        take_over: takes partitions over.
        missing: looks for messages that do not come back.
        trimming: deletes settled records of the retry topic.
    """

    def __init__(
        self,
        terms: Terms,
        runtime: Runtime,
        clients: GroupClients,
        transactor: Transactor,
        take_over: TakeOver,
        missing: Missing,
        trimming: Trimming,
    ) -> None:
        super().__init__(clients, runtime.clock, runtime.on_event)
        self.owned: dict[int, RetryPartition] = {}
        """The partitions that were taken over, by number."""
        self.exit: BaseException | None = None
        """The handler's SystemExit or KeyboardInterrupt; its message is not settled, and no more are handled."""
        self._names = terms.names
        self._halves = Halves(terms.names, runtime.clock, at_once=not clients.membership.is_incremental)
        self._max_key_queue = terms.max_key_queue
        self._runtime = runtime
        self._transactor = transactor
        self._take_over = take_over
        self._missing = missing
        self._trimming = trimming
        self._blocked: set[int] = set()
        self._running: Running | None = None
        self._settled = 0
        self._settled_at_ms = 0
        self._one_by_one = 0
        self._refused: dict[Place, dict[int, UnsendableError]] = {}
        self._aside: dict[int, int] = {}
        """Until when, by the monotonic clock, the partitions are not taken over whose dead letters are refused."""
        self._losses = 0
        """How often the group has taken partitions away."""

    def _consume(self) -> None:
        records, reached = self._reader.read(READ_MOST, self._runtime.pace.read_wait_s)
        for record in records:
            if self._runtime.stopping() or self.exit is not None:
                return
            self._membership.poll()  # a turn with many short calls of the handler may take long, too
            self._look_at(record)
        if self.exit is not None:
            return  # its message is not settled, and the reached ends are beyond its offset
        self._reach(reached)
        self._missing.turn(self.owned.values(), self._membership.poll)
        self._trimming.turn()
        self._commit()
        self._unblock()

    def hand_over(self) -> None:
        """Commit all settled messages, mark the partitions as released, and drop them."""
        self.revoked(sorted(self._assigned))

    # -- the group ----------------------------------------------------------------------------------------------------

    def assigned(self, places: Sequence[Place]) -> None:
        """Note an assignment; the next turn takes over the partitions of which it has both halves."""
        super().assigned(places)
        self._halves.assigned()

    def revoked(self, places: Sequence[Place]) -> None:
        """Commit the settled messages of these partitions, mark them as released, and drop them."""
        numbers = self._numbers(places)
        running = self._running
        if running is not None and running.message.partition in numbers:
            if running.wait(HAND_OVER_S):
                self._settle(running)
            else:
                self._on_event("handler_left_behind", source=running.message.journey.source)
            self._forget_running()
        try:
            if numbers:
                self._write(numbers)
        except BrokerError as error:
            # also for the partitions that stay assigned: the producer may be lost
            self._begin_anew("not_released", error)
        self.lost(places)

    def lost(self, places: Sequence[Place]) -> None:
        """Drop partitions without a commit: another member may own them already."""
        self._losses += 1
        super().lost(places)

    def _numbers(self, places: Collection[Place]) -> list[int]:
        return sorted({number for _, number in places}.intersection(self.owned))

    def _drop(self, places: Collection[Place]) -> None:
        numbers = self._numbers(places)
        if not numbers:
            return
        if self._running is not None and self._running.message.partition in numbers:
            self._forget_running()
        topics = (self._names.topic, self._names.retry)
        blocked = {(self._names.topic, number) for number in self._blocked}
        self._reader.shut([p for n in numbers for p in ((topic, n) for topic in topics) if p not in blocked])
        for number in numbers:
            del self.owned[number]
            self._blocked.discard(number)

    def _drop_all(self) -> None:
        self._drop([(self._names.topic, number) for number in self.owned])
        self._settled = 0
        self._transactor.close()  # its open transaction is aborted by its next registration, or by the next owner

    def _forget_running(self) -> None:
        if self._running is not None:
            self._running.abandon()
            self._running = None

    def _take_over_assigned(self) -> None:
        """Take over the partitions that are assigned in both topics: the topic and the retry topic."""
        whole, now_ms = self._halves.whole(self._assigned), self._clock.monotonic_ms()
        waiting = sorted(number for number in whole.difference(self.owned) if self._aside.get(number, 0) <= now_ms)
        if not waiting:
            return
        try:
            if not self._transactor.started:
                self._transactor.renew()
            taken = self._take_over.run(waiting, self._server_of_take_over())
        except RejoinError:
            raise
        except RetriableError as error:
            self._on_event("take_over_refused", reason=str(error))
            self._back_off()
            return
        self._reader.open({(topic, n): at for n, one in taken.items() for topic, at in one.positions.items()})
        self.owned.update(taken)
        self._on_event("taken_over", partitions=waiting, in_trouble=sum(len(one.key_queues) for one in taken.values()))

    def _server_of_take_over(self) -> Callable[[], None]:
        """Return a function that polls the group from time to time.

        It raises RetriableError when partitions were revoked: another member may have owned them since.
        """
        losses, poll_at_ms = self._losses, self._clock.monotonic_ms() + SERVE_TAKE_OVER_MS

        def serve() -> None:
            nonlocal poll_at_ms
            if self._clock.monotonic_ms() < poll_at_ms:
                return
            self._membership.poll()
            poll_at_ms = self._clock.monotonic_ms() + SERVE_TAKE_OVER_MS
            if self._losses != losses:
                raise RetriableError("the group has revoked partitions during the take-over")

        return serve

    # -- messages -----------------------------------------------------------------------------------------------------

    def _look_at(self, record: Message) -> None:
        topic, number = record.topic() or "", record.partition() or 0
        partition = self.owned.get(number)
        if partition is None or (topic == self._names.topic and number in self._blocked):
            return
        offset, timestamp_ms = record.offset() or 0, record.timestamp()[1]
        try:
            headers = list(read_headers(record) or [])
        except SystemError as error:
            saved = saved_headers(record, error)
            incoming = Incoming(topic, offset, timestamp_ms, record.key(), record.value(), saved)
            partition.refuse(incoming, ErrorCode.UNREADABLE_HEADERS, "a header's name is not UTF-8")
            return
        incoming = Incoming(topic, offset, timestamp_ms, record.key(), record.value(), headers)
        if partition.is_full(incoming, self._max_key_queue):
            self._blocked.add(number)
            self._reader.shut([(topic, number)])
            self._on_event("partition_waits", partition=number, key_queue=self._max_key_queue)
            return
        refused = self._refused.get((topic, number), {}).pop(offset, None)
        if refused is not None:
            self._on_event("unsendable", source=f"{topic}/{number}/{offset}", reason=str(refused))
            partition.refused(incoming, refused, self._clock.now_ms())
        elif (message := partition.look(incoming, self._clock.now_ms())) is not None:
            self._handle(self._runtime.handling.start(message))
        if self.exit is None:
            self._count_settled()

    def _reach(self, reached: Mapping[Place, int]) -> None:
        """Advance past control records at reached ends; otherwise retention could delete the next offset to read."""
        for (topic, number), position in reached.items():
            partition = self.owned.get(number)
            if partition is not None and not (topic == self._names.topic and number in self._blocked):
                partition.reach(topic, position)

    def _handle(self, running: Running) -> None:
        """Wait for the handler, and poll the group meanwhile."""
        self._running = running
        while self._running is running:
            if running.wait(SERVE_EVERY_S):
                self._settle(running)
                self._running = None
            else:
                self._membership.poll()
                if self._settled and self._clock.monotonic_ms() - self._settled_at_ms >= COMMIT_AFTER_MS:
                    self._commit()

    def _settle(self, running: Running) -> None:
        if running.exit is not None:
            self.exit = running.exit
            return
        message, error = running.message, running.error
        partition = self.owned[message.partition]
        if error is None:
            partition.succeeded(message, running.produced)
            return
        gave_up = partition.failed(message, error, self._clock.now_ms(), self._runtime.choose.random())
        self._on_event(
            "handler_failed",
            source=message.journey.source,
            attempt=message.attempt,
            error=described(error),
            gave_up=gave_up.value if gave_up else "",
        )

    def _count_settled(self) -> None:
        if not self._settled:
            self._settled_at_ms = self._clock.monotonic_ms()
        self._settled += 1
        late = self._clock.monotonic_ms() - self._settled_at_ms >= COMMIT_AFTER_MS
        if self._one_by_one or self._settled >= COMMIT_MOST or late:
            self._commit()

    def _unblock(self) -> None:
        """Resume paused partitions whose longest key queue has become short enough."""
        for number in sorted(self._blocked):
            partition = self.owned[number]
            if partition.key_queues.longest() < self._max_key_queue:
                self._blocked.discard(number)
                self._reader.open({(self._names.topic, number): partition.positions[self._names.topic]})

    # -- transactions -------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        numbers = [number for number, partition in self.owned.items() if partition.is_dirty]
        if numbers:
            self._write(numbers, WRITER + self._transactor.transactional_id)
        self._settled = 0
        if not self._one_by_one and self._transactor.batch_bytes != BATCH_BYTES:
            self._transactor.batch_bytes = BATCH_BYTES
            self._transactor.renew()

    def _write(self, numbers: Sequence[int], metadata: str = "") -> None:
        """Write the outgoing records and offsets of these partitions in one transaction."""
        partitions = [self.owned[number] for number in numbers]
        transactor = self._transactor
        transactor.begin()
        refused = deliver(transactor, (record for partition in partitions for record in partition.outgoing()))
        if refused is not None:
            self._isolate_refused(partitions, refused)
        offsets: dict[Place, OffsetMetadata] = {
            (topic, partition.partition): (position, metadata)
            for partition in partitions
            for topic, position in partition.positions.items()
        }
        try:
            transactor.send_offsets(offsets, self._membership.metadata())
            transactor.commit()
        except AbortableError:
            transactor.abort()
            raise
        for partition in partitions:
            partition.commit()
            self._trimming.committed(partition.partition, partition.positions[self._names.retry])
        self._one_by_one = max(0, self._one_by_one - 1)

    def _isolate_refused(self, partitions: Sequence[RetryPartition], refused: RefusedRecord) -> None:
        """Find the message of a refused record by committing one message at a time; that message counts as failed.

        If its dead letter is refused, nothing may follow it: its partition is set aside, and tried again later. Each
        record goes in a batch of its own: the brokers also refuse a batch that is too large for a topic that would take
        each of its records.
        """
        topic, error = refused
        self._transactor.abort()
        refusal = UnsendableError(f"could not send to {topic}: {error.str()}", error.name())
        if error.retriable() or error.code() == KafkaError._MSG_TIMED_OUT:
            raise refusal
        if self._one_by_one and len(partitions) == 1 and partitions[0].looked_at is not None:
            place, offset = partitions[0].looked_at
            if topic == self._names.dead:
                self._aside[place[1]] = self._clock.monotonic_ms() + ASIDE_MS
                source = f"{place[0]}/{place[1]}/{offset}"
                self._on_event("dead_letter_refused", source=source, reason=str(refusal))
            else:
                self._refused.setdefault(place, {})[offset] = refusal
        else:
            self._one_by_one = max(self._settled, 1)
            self._transactor.batch_bytes = ALONE_BYTES
        raise refusal
