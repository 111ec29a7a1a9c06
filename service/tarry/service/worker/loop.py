"""The loop of one process, on one thread: serve the group, consume, place, advance, transact.

Everything that can wait for a broker waits on this thread, because a busy Python thread beside the client library's own
threads would slow both down by orders of magnitude.
"""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.errors import BrokerError, FatalError, LogError, MembershipLostError, RejoinError, RetriableError
from tarry.kafka.broker_time import BrokerTime
from tarry.service.metrics.tally import Tally
from tarry.service.worker.connections import open_connections
from tarry.service.worker.context import Context
from tarry.service.worker.counting import declare_counters
from tarry.service.worker.health import Health, HealthReporter
from tarry.service.worker.ownership import Ownership
from tarry.service.worker.parts import make_parts
from tarry.service.worker.plan import Plan
from tarry.service.worker.steady_clock import SteadyClock
from tarry.service.worker.view import View

READ_WAIT_MS = 10
"""The longest that a turn waits for records while there are some.

It is short, because the client library waits until it has as many records as were asked for.
"""

DRAIN_WAIT_MS = 1
"""The same while buckets of level 1 are read, which are due soon, or what was passed over is read again."""


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
        brokers = BrokerTime(plan.cluster, list(plan.intakes), clock, on_event)
        self._clock = SteadyClock(clock, brokers, on_event, brokers_ms)
        self._context = context = Context(self._clock, on_event, tally)
        self._stopping = stopping
        self._idle_wait_ms = plan.idle_wait_ms
        connections = self._connections = open_connections(plan, context)
        parts = self._parts = make_parts(plan, connections, self._clock, context)
        self._health = HealthReporter(
            self._clock,
            tally,
            plan.memory_budget_bytes,
            connections.offsets,
            parts.pausing.pauses,
            parts.open_transactions.seconds,
            on_health,
        )
        self._owned = Ownership(plan, connections, parts, context, lambda: self._health.turn(self.look))
        connections.membership.join(self._owned)
        self._turns = 0

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
        owned, parts = self._owned, self._parts
        self._clock.turn()
        try:
            owned.turn()
            parts.reading.turn(owned.states, self._patience_ms())
            parts.pausing.turn(owned.states)
            self._fill()
            states = list(owned.states.values())
            parts.firing.turn(states)
            if states:
                parts.filer.turn(states, parts.draining.held_up, is_hurried=parts.reading.is_hurried)
                parts.parking.turn(states)
                parts.letters.turn(states)
                parts.pausing.confirm(states, parts.parking.is_trying)
            parts.maintenance.turn(owned.states)
        except LogError as error:
            owned.quarantine(error)
        except RejoinError as error:
            owned.join_again(error)
        except RetriableError as error:
            self._context.warn(str(error))
        except MembershipLostError:
            raise
        except FatalError as error:
            owned.begin_anew(error)
        if owned.begins_to_serve():
            self._health.beat(self.look())
            self._context.on_event(
                "serving", partitions=[f"{topic}/{partition}" for topic, partition in sorted(owned.states)]
            )
        parts.open_transactions.turn(lambda: owned.not_aside)
        parts.publishing.turn(self.look)
        self._health.turn(self.look)

    def _fill(self) -> None:
        """Read buckets, and what was passed over: in turn, one of both is first to use the room for what is filed."""
        parts, states = self._parts, self._owned.states
        self._turns += 1
        if self._turns % 2:
            parts.draining.turn(states)
        parts.second_reading.turn(states, is_hurried=parts.reading.is_hurried)
        if self._turns % 2 == 0:
            parts.draining.turn(states)

    def hand_over(self) -> None:
        """Release all our partitions."""
        self._owned.hand_over()
        self._health.beat(self.look())

    def close(self) -> None:
        """Leave the group, which releases the partitions that are still ours, and close the clients."""
        try:
            self._parts.publishing.close()
            self._clock.close()
            self._parts.second_reading.close()
            self._parts.draining.close()
            self._connections.close()
        except BrokerError as error:
            self._context.on_event("not_left", reason=str(error))

    def look(self) -> View:
        """Return the present state of the loop."""
        return self._owned.view()

    def _patience_ms(self) -> int:
        """Return how long to wait for records: at most until the next transaction has messages to fire."""
        if self._owned.is_taking_over:
            return 0
        is_busy = self._parts.draining.is_busy or self._parts.second_reading.is_busy
        longest_ms = self._idle_wait_ms if self._is_idle() else READ_WAIT_MS
        wait_ms = DRAIN_WAIT_MS if is_busy else longest_ms
        now_ms = self._clock.now_ms()
        for state in self._owned.states.values():
            due_ms = state.next_due_ms()
            if due_ms is not None and due_ms - now_ms < wait_ms:
                wait_ms = due_ms - now_ms
        monotonic_ms = self._clock.monotonic_ms()
        return max(0, min(longest_ms, max(wait_ms, self._parts.firing.not_before_ms - monotonic_ms)))

    def _is_idle(self) -> bool:
        """Return whether nothing is to be done before a record arrives, a message is due, or a second has passed."""
        parts, states = self._parts, self._owned.states.values()
        if not parts.reading.is_quiet or parts.draining.is_reading or parts.second_reading.is_busy:
            return False
        if any(one.is_open for one in parts.side_transactions):
            return False
        now_ms = self._clock.now_ms()
        return not any(
            state.is_gated or len(state.parked) or state.letters.waiting or state.has_to_file(now_ms)
            for state in states
        )
