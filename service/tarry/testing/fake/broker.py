"""A fake Kafka cluster for simulations: one thread, one clock, one seed.

It keeps Kafka's rules as the service rests on them: logs with markers and last stable offsets, transactions with
epochs and fencing, groups by both protocols, offsets that are unstable while a transaction is open. What its clients
raise carries the codes and the flags that librdkafka gives. The same contract tests run over it and over a real broker.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from confluent_kafka import KafkaError

from tarry.kafka.clients import Clients
from tarry.testing.fake.classic_group import ClassicGroup
from tarry.testing.fake.clients import FakeClients
from tarry.testing.fake.log import Draft, Record
from tarry.testing.fake.server import Server
from tarry.testing.fake.steps import Hook
from tarry.testing.fake.wire import Wire
from tarry.testing.manual_clock import ManualClock


class FakeBroker:
    """The cluster, and what may happen to it and to its clients' processes.

    Args:
        clock: of everything; whoever waits moves it.
        seed: of every choice.
        marker_lag_ms: how long a transaction's marker takes to each partition, at least and at most.
        latency_ms: how long a request takes, at least and at most.
        fetch_most: the most records that a fetch brings, so that reading takes several; None for no limit.
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
        """All clients of one process.

        Args:
            process: its name; after `kill` a process of the same name is another one.
            hook: is told of its steps.
        """
        return FakeClients(Wire(self._server, self._server.process(process, hook)))

    # -- topics -----------------------------------------------------------------------------------------------------

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic.

        Args:
            name: of it.
            partitions: how many.
            config: Kafka's properties, with `_` for dots.
        """
        self._server.topics.make(name, partitions, {key.replace("_", "."): value for key, value in config.items()})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and the offsets that groups have committed of it."""
        self._server.topics.delete(name)

    def truncate(self, topic: str, end: int, partition: int = 0) -> None:
        """What a partition holds from an offset on is lost, as by an unclean election."""
        self._server.topics.log((topic, partition)).truncate(end)

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, up to a number."""
        self._server.topics.grow(name, partitions)

    def partitions(self, name: str) -> int:
        """How many a topic has; 0 where there is none."""
        return self._server.topics.count(name)

    def configure(self, name: str, **config: str) -> None:
        """Change properties of a topic, written with `_` for dots."""
        self._server.topics.of(name).config.update({key.replace("_", "."): value for key, value in config.items()})

    def records(self, topic: str, partition: int = 0, *, committed: bool = True) -> list[Record]:
        """What a reader gets of a partition, from its start."""
        log = self._server.topics.log((topic, partition))
        return log.read(log.start, log.end, committed=committed)[0]

    def end(self, topic: str, partition: int = 0) -> int:
        """The high watermark of a partition."""
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
        """Write a record outside of any transaction, as a batch of its own.

        Args:
            topic: which.
            key: of the record.
            value: of the record.
            headers: of the record; a name that is not UTF-8 as bytes.
            partition: of the topic.
            timestamp_ms: of the record; None: now.
            compressed: whether the batch is.

        Returns:
            Its offset.

        Raises:
            Refused: the topic does not take it.
        """
        now_ms = self._clock.now_ms()
        draft = Draft(key, value, list(headers or []) or None, now_ms if timestamp_ms is None else timestamp_ms)
        self._server.topics.log((topic, partition))
        return self._server.topics.of(topic).append(partition, [draft], None, now_ms, compressed=compressed)

    def mend(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Put another value in the place of a record's, which nobody can do in Kafka."""
        self._server.topics.log((topic, partition)).mend(offset, value)

    def take_away(self, topic: str, partition: int | None = None, *, markers_wait: bool = False) -> None:
        """Take leaders of a topic away: nothing is written to their partitions or read from them.

        Args:
            topic: which.
            partition: which; None for all of them.
            markers_wait: whether markers of transactions wait for the leaders, as they do where all replicas are gone.
        """
        self._server.topics.take_away(topic, partition, markers_wait=markers_wait)

    def bring_back(self, topic: str, partition: int | None = None) -> None:
        """The leader of a partition is back, or those of all."""
        self._server.topics.bring_back(topic, partition)

    def slow_down(self, topic: str, fetch_ms: int) -> None:
        """Whoever fetches of a topic waits so long for each answer that brings anything, as if much more came."""
        self._server.topics.of(topic).fetch_ms = fetch_ms

    @property
    def ending(self) -> list[str]:
        """The transactional ids that nobody can go on with: their last transaction is decided, and not ended."""
        return self._server.transactions.ending

    def hide(self, topic: str, *, hidden: bool = True) -> None:
        """The broker that clients come to first has lost touch with its controllers: it does not know a topic.

        Args:
            topic: which.
            hidden: whether it is so from now on, or no longer.
        """
        (self._server.topics.hidden.add if hidden else self._server.topics.hidden.discard)(topic)

    def deny(self, topic: str, *, denied: bool = True) -> None:
        """The right to describe a topic is taken away from everybody; admin clients are refused it, and others are not.

        Args:
            topic: which.
            denied: whether it is so from now on, or no longer.
        """
        (self._server.topics.denied.add if denied else self._server.topics.denied.discard)(topic)

    def deny_offsets(self, topic: str, *, denied: bool = True) -> None:
        """The right to read a topic is taken away, in so far as no consumer may commit an offset of it.

        Args:
            topic: which.
            denied: whether it is so from now on, or no longer.
        """
        (self._server.topics.unreadable.add if denied else self._server.topics.unreadable.discard)(topic)

    # -- processes --------------------------------------------------------------------------------------------------

    def kill(self, process: str) -> None:
        """A process is gone, with what its clients had not sent; its sessions and transactions end by time-out."""
        if (found := self._server.living(process)) is not None:
            found.alive = False
            self._server.members = [one for one in self._server.members if one.process is not found]
            self._server.groups.fall_silent(found)

    def freeze(self, process: str) -> None:
        """SIGSTOP: its heartbeats stop."""
        if (found := self._server.living(process)) is not None and not found.frozen:
            found.frozen = True
            found.freezes += 1
            self._server.groups.fall_silent(found)

    def thaw(self, process: str) -> None:
        """SIGCONT: its heartbeats go on."""
        if (found := self._server.living(process)) is not None:
            found.frozen = False
            self._server.groups.look_again()

    # -- the cluster ------------------------------------------------------------------------------------------------

    def throttle(self, bytes_per_s: int | None) -> None:
        """Let the producers of each process write no more than so much (`producer_byte_rate`); None: as they like."""
        self._server.quota.bytes_per_s = bytes_per_s

    def expire_offsets(self, group: str) -> None:
        """A group's committed offsets are gone."""
        self._server.groups.of(group).offsets.expire()

    def join_once_more(self, group: str, instance: str, *, answered: bool = False) -> None:
        """A request to join a classic group that was held up on its way arrives, behind the one sent in its place.

        Args:
            group: the group.
            instance: of the member that sent it.
            answered: whether its client takes the answer: then it sends heartbeats under the new member id, although a
                fatal error, the answer to what it sent under the old one, has ended it for the application.
        """

        def lives() -> bool:
            return answered and any(member.still_is(group, instance) for member in self._server.members)

        membership = self._server.groups.of_kind(group, ClassicGroup)
        for seat in list(membership.seats()):
            if seat.application.instance == instance:
                member = membership.join(replace(seat.application, member=""))
                self._server.groups.expire(group, member, seat.application.session_ms, lives)

    def forget_member_ids(self, group: str) -> None:
        """Clients of a classic group forget their member ids, and are shut out for what they send without.

        As librdkafka does after a session without brokers. The group knows them still, until their sessions end.
        """
        for member in self._server.members:
            if (member_id := member.id) and member.forget(group, KafkaError.FENCED_INSTANCE_ID):
                seats = self._server.groups.of(group).membership.seats()
                for seat in [seat for seat in seats if seat.id == member_id]:
                    self._server.groups.expire(group, member_id, 10 * seat.application.session_ms)

    def lose_group(self, group: str) -> None:
        """A KIP-848 group's members are lost, as a coordinator may lose them that was killed; its offsets are kept."""
        for member in self._server.members:
            if member.forget(group, KafkaError.GROUP_ID_NOT_FOUND):
                self._server.groups.of(group).membership.remove(member.id)

    def wedge_members(self, group: str) -> None:
        """A KIP-848 group's members are lost, and their clients do nothing more about it until they are closed."""
        for member in self._server.members:
            if member.wedge(group):
                self._server.groups.of(group).membership.remove(member.id)

    def coordinator_away(self, group: str, ms: int) -> None:
        """A group's coordinator does not answer for so long."""
        self._server.groups.of(group).away_until_ms = self._clock.monotonic_ms() + ms

    def stop(self) -> None:
        """The whole cluster answers nobody; nothing of it is lost."""
        self._server.stop()

    def undelete(self) -> None:
        """What was deleted of late is there again, as after kill -9 of a broker, which had not noted it on disk."""
        for log in self._server.topics.logs():
            log.undelete()

    def start(self) -> None:
        """It answers again."""
        self._server.start()
