"""A fake Kafka cluster for simulations, with one thread, one clock and one seed.

It implements the behaviour of Kafka on which the service relies: logs with transaction markers and last stable offsets,
transactions with epochs and fencing, groups of both protocols, and pending offsets of open transactions. The errors of
its clients have the codes and flags of librdkafka. The same contract tests run against it and against a real broker.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from confluent_kafka import KafkaError

from tarry.kafka.clients import Clients
from tarry.kafka.origins import text_of
from tarry.kafka.types import OffsetMetadata, Place
from tarry.testing.fake.classic_group import ClassicGroup
from tarry.testing.fake.clients import FakeClients
from tarry.testing.fake.log import Draft, Record
from tarry.testing.fake.server import Server
from tarry.testing.fake.steps import Hook
from tarry.testing.fake.wire import Wire
from tarry.testing.manual_clock import ManualClock


class FakeBroker:
    """The cluster, with methods for faults of the cluster and of its clients' processes.

    Args:
        clock: the clock of all parts; a client that waits advances it.
        seed: the seed of all random choices.
        marker_lag_ms: how long the marker of a transaction takes to reach a partition: minimum and maximum.
        latency_ms: how long a request takes: minimum and maximum.
        fetch_most: the largest number of records that a fetch returns, so that reading takes several fetches; None: no
            limit.
    """

    def __init__(
        self,
        clock: ManualClock,
        *,
        seed: int = 0,
        marker_lag_ms: tuple[int, int] = (0, 0),
        latency_ms: tuple[int, int] = (0, 0),
        fetch_most: int | None = None,
    ) -> None:
        self._server = Server(clock, Random(seed), marker_lag_ms, latency_ms, fetch_most)
        self._clock = clock

    def clients(self, process: str = "main", hook: Hook | None = None) -> Clients:
        """Return the factory for all clients of one process.

        Args:
            process: the process's name. After `kill`, the same name means a new process.
            hook: called for each step of the process.
        """
        return FakeClients(Wire(self._server, self._server.process(process, hook)))

    # -- topics -----------------------------------------------------------------------------------------------------

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic.

        Args:
            name: the topic's name.
            partitions: the number of partitions.
            config: Kafka's topic properties, with `_` instead of dots.
        """
        self._server.topics.make(name, partitions, {key.replace("_", "."): value for key, value in config.items()})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and the offsets that groups have committed for it."""
        self._server.topics.delete(name)

    def truncate(self, topic: str, end: int, partition: int = 0) -> None:
        """Drop the records of a partition from offset `end` on, as an unclean leader election does."""
        self._server.topics.log((topic, partition)).truncate(end)

    def name_too_low_an_end(self, topic: str, partition: int, by: int) -> list[int]:
        """Let the next one who asks for the end of a partition be told too low an end, as by a leader that is new.

        Args:
            topic: the topic.
            partition: the partition.
            by: how far below the present end.

        Returns:
            A list, to which the true end is added when it is asked for.
        """
        named: list[int] = []
        self._server.topics.of(topic).too_low[partition] = self.end(topic, partition) - by, named
        return named

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic until it has `partitions` of them."""
        self._server.topics.grow(name, partitions)

    def partitions(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if the topic does not exist."""
        return self._server.topics.count(name)

    def configure(self, name: str, **config: str) -> None:
        """Change properties of a topic, written with `_` instead of dots."""
        self._server.topics.of(name).config.update({key.replace("_", "."): value for key, value in config.items()})

    def records(self, topic: str, partition: int = 0, *, committed: bool = True) -> list[Record]:
        """Return the records that a reader sees in a partition, from its start."""
        log = self._server.topics.log((topic, partition))
        return log.read(log.start, log.end, committed=committed)[0]

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the high watermark of a partition."""
        return self._server.topics.log((topic, partition)).end

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str | bytes, bytes | None]] | None,
        partition: int = 0,
        timestamp_ms: int | None = None,
        *,
        compressed: bool = False,
    ) -> int:
        """Write a record outside of transactions, as a batch with one record.

        Args:
            topic: the topic.
            key: the record's key.
            value: the record's value.
            headers: the record's headers; a name that is not UTF-8 is bytes.
            partition: the partition of the topic.
            timestamp_ms: the record's timestamp; None: now.
            compressed: whether the batch is compressed.

        Returns:
            The record's offset.

        Raises:
            Refused: the topic refuses the record.
        """
        now_ms = self._clock.now_ms()
        draft = Draft(key, value, list(headers or []) or None, now_ms if timestamp_ms is None else timestamp_ms)
        self._server.topics.log((topic, partition))
        return self._server.topics.of(topic).append(partition, [draft], None, now_ms, compressed=compressed)

    def mend(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Replace the value of a record in the log, which is not possible in Kafka."""
        self._server.topics.log((topic, partition)).mend(offset, value)

    def take_away(self, topic: str, partition: int | None = None, *, markers_wait: bool = False) -> None:
        """Take partitions of a topic offline: they have no leader, and cannot be written or read.

        Args:
            topic: the topic.
            partition: the partition; None: all partitions.
            markers_wait: whether transaction markers wait for the leaders, as they do when all replicas are down.
        """
        self._server.topics.take_away(topic, partition, markers_wait=markers_wait)

    def bring_back(self, topic: str, partition: int | None = None) -> None:
        """Bring partitions of a topic online again: one partition, or all of them."""
        self._server.topics.bring_back(topic, partition)

    def slow_down(self, topic: str, fetch_ms: int) -> None:
        """Make each fetch of a topic that returns records take `fetch_ms`, as if it returned much more data."""
        self._server.topics.of(topic).fetch_ms = fetch_ms

    @property
    def ending(self) -> list[str]:
        """The transactional ids whose last transaction is decided, but not all of its markers are written yet."""
        return self._server.transactions.ending

    def undecided(self, topic: str, partition: int = 0) -> list[int]:
        """Return the offsets of records in transactions that are open, and of which it is not decided how they end."""
        return self._server.topics.of(topic).logs[partition].open_offsets(self._server.transactions.is_undecided)

    def committed(self, group: str, place: Place) -> OffsetMetadata | None:
        """Return an offset that a group has committed, as one who does not wait for open transactions sees it."""
        return self._server.groups.of(group).offsets.get(place)

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic, as Kafka's own tools show it."""
        return text_of(self._server.topics.of(topic).id)

    def hide(self, topic: str, *, hidden: bool = True) -> None:
        """Make the broker to which clients connect first forget a topic, as if it had lost its controllers.

        Args:
            topic: the topic.
            hidden: True: from now on; False: no longer.
        """
        (self._server.topics.hidden.add if hidden else self._server.topics.hidden.discard)(topic)

    def deny(self, topic: str, *, denied: bool = True) -> None:
        """Revoke the right to describe a topic. The cluster then refuses admin clients, but not other clients.

        Args:
            topic: the topic.
            denied: True: from now on; False: no longer.
        """
        (self._server.topics.denied.add if denied else self._server.topics.denied.discard)(topic)

    def deny_offsets(self, topic: str, *, denied: bool = True) -> None:
        """Revoke one part of the right to read a topic: no consumer may commit an offset for it.

        Args:
            topic: the topic.
            denied: True: from now on; False: no longer.
        """
        (self._server.topics.unreadable.add if denied else self._server.topics.unreadable.discard)(topic)

    # -- processes --------------------------------------------------------------------------------------------------

    def kill(self, process: str) -> None:
        """Kill a process, with all that its clients have not sent. Its sessions and transactions end by timeout."""
        if (found := self._server.living(process)) is not None:
            found.alive = False
            self._server.members = [one for one in self._server.members if one.process is not found]
            self._server.groups.fall_silent(found)

    def freeze(self, process: str) -> None:
        """Stop a process as by SIGSTOP; its heartbeats stop."""
        if (found := self._server.living(process)) is not None and not found.frozen:
            found.frozen = True
            found.freezes += 1
            self._server.groups.fall_silent(found)

    def thaw(self, process: str) -> None:
        """Continue a process as by SIGCONT; its heartbeats continue."""
        if (found := self._server.living(process)) is not None:
            found.frozen = False
            self._server.groups.look_again()

    # -- the cluster ------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of steps of all processes so far."""
        return self._server.steps

    def wait_at_most(self, longest_ms: int | None) -> None:
        """Have consumers wait for records for at most so long, whatever their timeout; None: as long as it.

        One thread runs all processes of a simulation. So while one waits, time passes for the others.
        """
        self._server.longest_wait_ms = longest_ms

    def throttle(self, bytes_per_s: int | None) -> None:
        """Limit the bytes that the producers of each process may write (`producer_byte_rate`); None: no limit."""
        self._server.quota.bytes_per_s = bytes_per_s

    def expire_offsets(self, group: str) -> None:
        """Expire the committed offsets of a group."""
        self._server.groups.of(group).offsets.expire()

    def miss_ends(self, group: str, *, missed: bool = True) -> None:
        """Let a group's coordinator miss the ends of transactions, as one that loads a group only in part.

        Offsets of these transactions stay pending until the same producer ends another transaction with offsets.
        """
        self._server.groups.of(group).offsets.misses_ends = missed

    def repeat_offsets(self, group: str, transactional_id: str) -> None:
        """Deliver a request that sent offsets in a transaction once more, after the transaction has ended.

        The coordinator keeps these offsets as pending until the same producer ends another transaction with offsets.
        """
        self._server.groups.of(group).offsets.repeat(self._server.transactions.producer_of(transactional_id))

    def load_in_part(self, group: str) -> Callable[[], None]:
        """Return a call that lets a group's coordinator know only the offsets that were committed before this call."""
        offsets = self._server.groups.of(group).offsets
        return partial(offsets.go_back, offsets.snapshot())

    def join_once_more(self, group: str, instance: str, *, answered: bool = False) -> None:
        """Deliver a delayed JoinGroup request to a classic group, after the request that the client sent instead of it.

        Args:
            group: the group.
            instance: the instance of the member that sent the request.
            answered: whether the client receives the answer. If so, it sends heartbeats under the new member id, even
                though a fatal error, the answer to a request under the old id, has ended it for the application.
        """

        def lives() -> bool:
            return answered and any(member.still_is(group, instance) for member in self._server.members)

        membership = self._server.groups.of_kind(group, ClassicGroup)
        for seat in list(membership.seats()):
            if seat.application.instance == instance:
                member = membership.join(replace(seat.application, member=""))
                self._server.groups.expire(group, member, seat.application.session_ms, lives)

    def forget_member_ids(self, group: str) -> None:
        """Make clients of a classic group forget their member ids; they are then fenced for requests without one.

        librdkafka does this after a session without brokers. The group keeps the members until their sessions end.
        """
        for member in self._server.members:
            if (member_id := member.id) and member.forget(group, KafkaError.FENCED_INSTANCE_ID):
                seats = self._server.groups.of(group).membership.seats()
                for seat in [seat for seat in seats if seat.id == member_id]:
                    self._server.groups.expire(group, member_id, 10 * seat.application.session_ms)

    def lose_group(self, group: str) -> None:
        """Remove all members of a KIP-848 group, as a killed coordinator may lose them; keep the group's offsets."""
        for member in self._server.members:
            if member.forget(group, KafkaError.GROUP_ID_NOT_FOUND):
                self._server.groups.of(group).membership.remove(member.id)

    def wedge_members(self, group: str) -> None:
        """Remove all members of a KIP-848 group. Their clients do not react until they are closed."""
        for member in self._server.members:
            if member.wedge(group):
                self._server.groups.of(group).membership.remove(member.id)

    def coordinator_away(self, group: str, ms: int) -> None:
        """Make a group's coordinator unavailable for `ms` milliseconds."""
        self._server.groups.of(group).away_until_ms = self._clock.monotonic_ms() + ms

    def stop(self) -> None:
        """Stop the whole cluster: it answers no request, and keeps all of its data."""
        self._server.stop()

    def undelete(self) -> None:
        """Restore recently deleted records, as after kill -9 of a broker that had not flushed its log start offsets."""
        for log in self._server.topics.logs():
            log.undelete()

    def start(self) -> None:
        """Start the cluster again after `stop`."""
        self._server.start()
