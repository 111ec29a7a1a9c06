"""The loop of one process, on one thread: serve the group, consume, place, advance, transact.

Everything that can wait for a broker waits on this thread, because a busy Python thread beside the client library's own
threads would slow both down by orders of magnitude.
"""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.errors import BrokerError, FatalError, LogError, MembershipLostError, RejoinError, RetriableError
from tarry.kafka.broker_time import BrokerTime
from tarry.kafka.reader import Reader
from tarry.kafka.settings import QUEUE_KBYTES
from tarry.kafka.stall import StallWatch
from tarry.service.metrics.tally import Tally
from tarry.service.worker.batches import rotated
from tarry.service.worker.bucket_counts import BucketCounts
from tarry.service.worker.connections import open_connections
from tarry.service.worker.counting import declare_counters
from tarry.service.worker.draining import Draining
from tarry.service.worker.filing import Filer
from tarry.service.worker.firing import Firing
from tarry.service.worker.health import Health, HealthReporter
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.maintenance import Maintenance
from tarry.service.worker.ownership import Ownership
from tarry.service.worker.parking import Parking
from tarry.service.worker.plan import Plan
from tarry.service.worker.publishing import Publishing
from tarry.service.worker.reading import Reading
from tarry.service.worker.rereading import Rereading
from tarry.service.worker.steady_clock import SteadyClock
from tarry.service.worker.targets import Targets
from tarry.service.worker.view import View

READ_WAIT_MS = 10
"""The longest that a turn waits for records.

It is short, because the client library waits until it has as many records as were asked for.
"""

DRAIN_WAIT_MS = 1
"""The same while buckets of level 1 are read, which are due soon."""

DRAIN_QUEUE_KBYTES = 16_384
"""How much the client library fetches ahead from buckets."""

REPLAY_REST_MS = 1_000
"""The least time between two firing transactions that include partitions in replay.

Such partitions have only messages ready that need no delivery. A transaction in each turn would delay the replay, and
so all overdue messages, by one commit a turn.
"""

METADATA_TIMEOUT_S = 5.0
"""How long the loop waits for the metadata of a target."""


class Worker:
    """One process of the service.

    Args:
        plan: its configuration.
        clock: wall and monotonic time.
        stopping: called once a turn; returns whether to release all partitions and end.
        on_event: takes an event's name and fields, for the log.
        tally: counts metrics.
        on_health: called about once a second while the loop goes round, with the health; must not wait.
        brokers_ms: the difference of the brokers' time and monotonic time, as measured at the start; None if unknown.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        stopping: Callable[[], bool],
        on_event: Callable[..., None],
        tally: Tally | None = None,
        on_health: Callable[[Health], None] = lambda _health: None,
        brokers_ms: int | None = None,
    ) -> None:
        tally = tally or Tally()
        declare_counters(tally, plan.intakes)
        self._interval_ms = plan.interval_ms
        brokers = BrokerTime(plan.cluster, list(plan.intakes), clock, on_event)
        clock = self._clock = self._steady = SteadyClock(clock, brokers, on_event, brokers_ms)
        self._stopping = stopping
        self._on_event = on_event
        self._next_transaction_ms = 0
        self._next_in_replay_ms = 0
        self._turns = 0
        connections = self._connections = open_connections(plan, clock, self._warn)
        targets = Targets(
            lambda topics: connections.topics.targets(topics, METADATA_TIMEOUT_S),
            connections.others,
            compresses=plan.cluster.compresses,
        )
        self._letters = LetterWriter(
            connections.letters, plan.cluster.clients, connections.membership, clock, on_event, tally
        )
        self._parking = Parking(
            connections.parking,
            connections.membership,
            targets,
            self._letters,
            Rereading(lambda: self._new_reader(plan), plan.memory_budget_bytes),
            plan.cluster.clients,
            clock,
            plan.most,
            on_event,
            tally,
        )
        self._firing = Firing(
            connections.firing,
            connections.membership,
            targets,
            self._parking,
            self._letters,
            clock,
            plan.most,
            on_event,
            tally,
        )
        self._maintenance = Maintenance(
            connections.offsets,
            clock,
            {topic: intake.keep_ms for topic, intake in plan.intakes.items()},
            lambda intakes: connections.origins.ask({topic: plan.intakes[topic].geometry for topic in intakes}),
            lambda states, summed_up: self._firing.commit_rest(states, released=False, summed_up=summed_up),
            lambda: not any(one.is_open for one in (self._filer, self._parking, self._letters)),
            plan.sum_up_after,
            on_event,
        )
        self._filer = Filer(
            connections.filing, plan.cluster.clients, connections.membership, clock, plan.most, on_event, tally
        )
        self._draining = Draining(
            connections.offsets,
            connections.membership,
            lambda: self._new_reader(plan, DRAIN_QUEUE_KBYTES),
            self._filer,
            lambda states: self._firing.commit_rest(states, released=False),
            plan.memory_budget_bytes,
            clock,
            on_event,
        )
        self._bucket_counts = BucketCounts(connections.offsets, clock)
        self._health = HealthReporter(self._steady, tally, plan.memory_budget_bytes, connections.offsets, on_health)
        self._reading = Reading(
            connections.reader, plan.intakes, plan.memory_budget_bytes, self._steady, tally, on_event
        )
        self._publishing = Publishing(
            plan.cluster,
            plan.name,
            {topic: intake.reader.policy for topic, intake in plan.intakes.items()},
            clock,
            on_event,
        )
        self._owned = Ownership(
            plan,
            clock,
            connections,
            self._reading,
            self._firing,
            self._filer,
            self._draining,
            self._parking,
            self._letters,
            self._maintenance,
            self._publishing,
            tally,
            on_event,
            lambda: self._health.turn(self.look),
        )
        connections.membership.join(self._owned)

    def run(self) -> None:
        """Serve until `stopping`, then release the partitions.

        Raises:
            MembershipLostError: this member is out permanently.
        """
        try:
            while not self._stopping():
                self.turn()
            self.hand_over()
        finally:
            self.close()

    def turn(self) -> None:
        """Go once around the loop.

        Raises:
            MembershipLostError: this member is out permanently.
        """
        owned = self._owned
        self._steady.turn()
        try:
            owned.turn()
            self._reading.turn(owned.states, self._patience_ms())
            self._draining.turn(owned.states)
            self._fire()
            if owned.states:
                states = list(owned.states.values())
                self._filer.turn(states, self._draining.held_up)
                self._parking.turn(states)
                self._letters.turn(states)
            self._maintenance.turn(owned.states)
            self._bucket_counts.turn(owned.states)
        except LogError as error:
            owned.quarantine(error)
        except RejoinError as error:
            owned.join_again(error)
        except RetriableError as error:
            self._warn(str(error))
        except MembershipLostError:
            raise
        except FatalError as error:
            owned.begin_anew(error)
        if owned.begins_to_serve():
            self._health.beat(self.look())
            self._on_event("serving", partitions=[f"{topic}/{partition}" for topic, partition in sorted(owned.states)])
        self._publishing.turn(owned.states)
        self._health.turn(self.look)

    def hand_over(self) -> None:
        """Release all our partitions."""
        self._owned.hand_over()
        self._health.beat(self.look())

    def close(self) -> None:
        """Leave the group, which releases the partitions that are still ours, and close the clients."""
        try:
            self._publishing.close()
            self._steady.close()
            self._draining.close()
            self._connections.close()
        except BrokerError as error:
            self._on_event("not_left", reason=str(error))

    def look(self) -> View:
        """Return the present state of the loop."""
        return self._owned.view()

    def _patience_ms(self) -> int:
        """Return how long to wait for records: at most until the next transaction has messages to fire."""
        if self._owned.is_taking_over:
            return 0
        wait_ms = DRAIN_WAIT_MS if self._draining.is_busy else READ_WAIT_MS
        now_ms = self._clock.now_ms()
        for state in self._owned.states.values():
            due_ms = state.next_due_ms()
            if due_ms is not None and due_ms - now_ms < wait_ms:
                wait_ms = due_ms - now_ms
        monotonic_ms = self._clock.monotonic_ms()
        return max(0, min(READ_WAIT_MS, max(wait_ms, self._not_before_ms - monotonic_ms)))

    @property
    def _not_before_ms(self) -> int:
        return max(self._next_transaction_ms, self._firing.resting_until_ms)

    def _fire(self) -> None:
        now_ms = self._clock.now_ms()
        monotonic_ms = self._clock.monotonic_ms()
        is_resting = monotonic_ms < self._next_in_replay_ms
        states = self._owned.states.values()
        ready = [state for state in states if state.collect(now_ms) and not (is_resting and state.replaying)]
        if not ready or monotonic_ms < self._not_before_ms:
            return
        self._next_transaction_ms = monotonic_ms + self._interval_ms
        if any(state.replaying for state in ready):
            self._next_in_replay_ms = monotonic_ms + REPLAY_REST_MS
        self._turns += 1
        self._firing.fire(rotated(ready, self._turns))

    def _new_reader(self, plan: Plan, queue_kbytes: int = QUEUE_KBYTES) -> Reader:
        return Reader(plan.cluster, self._warn, queue_kbytes, StallWatch(self._connections.offsets, self._clock))

    def _warn(self, text: str) -> None:
        self._on_event("kafka_warning", reason=text)
