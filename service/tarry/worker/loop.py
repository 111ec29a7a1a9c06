"""One process's loop: serve the group, take over, consume, place, advance, transact. One thread.

A partition goes through: assigned → taken over (its state stands, the gate closed) → replayed (the gate opens) →
served → released or lost. Everything that can wait for a broker waits on this thread, because a busy Python thread
beside the client library's own would slow both down by orders of magnitude.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.errors import (
    AbortableError,
    BrokerError,
    FatalError,
    InstanceInUseError,
    MembershipLostError,
    RetriableError,
)
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.place import Place
from tarry.kafka.reader import Reader
from tarry.kafka.takeover import Identity, TakeOver
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor, fence
from tarry.metrics.families import REBALANCES, TAKEOVERS
from tarry.metrics.tally import Tally
from tarry.timer import TimingWheel
from tarry.worker.counting import count_placed, count_received
from tarry.worker.firing import Firing
from tarry.worker.janitor import Janitor
from tarry.worker.parking import Parking
from tarry.worker.plan import Plan
from tarry.worker.pulse import Health, Pulse, PulsingReader, View
from tarry.worker.targets import Targets

if TYPE_CHECKING:
    from tarry.core.message import Headers

READ_MOST = 5_000
READ_WAIT_MS = 10
"""The longest a turn waits for records: short, since the client library waits for all that were asked for."""

RETRY_MS = 100
"""How long a refused take-over waits before it begins again."""

METADATA_TIMEOUT_S = 5.0
"""How long the loop waits to be told about a target."""

REJOIN_MS = 300
"""How long until a member whose instance is in use asks again."""

HAND_OVER_MS = 8_000
"""The budget of a release: what it does not reach, the next owner's fencing does."""

RESUME_AT = 0.8
"""Reading goes on when what is held has fallen to this share of the budget."""


class Worker:
    """One process of the service.

    Args:
        plan: what it does.
        clock: wall and monotonic time.
        stopping: asked once a turn whether to hand over and end.
        on_event: takes an event's name and fields, for the log.
        tally: counts.
        on_pulse: told about once a second that the loop goes round, and whether all is taken over; may not wait.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        stopping: Callable[[], bool],
        on_event: Callable[..., None],
        tally: Tally | None = None,
        on_pulse: Callable[[Health], None] = lambda _health: None,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._stopping = stopping
        self._on_event = on_event
        self._states: dict[Place, PartitionState] = {}
        self._order: list[PartitionState] = []
        self._waiting: set[Place] = set()
        self._retry_at_ms = 0
        self._next_transaction_ms = 0
        self._paused = False
        self._announced = False
        self._lost_producer: FatalError | None = None
        self._waits_for_instance = False
        self._joined = False
        self._tally = tally or Tally()
        cluster = plan.cluster
        admin = cluster.clients.admin(cluster.client())
        self._offsets = Offsets(admin, plan.group, cluster)
        self._reader = Reader(cluster, self._warn)
        self._transactor = Transactor(cluster, f"{plan.name}-fire")
        self._membership = Membership(cluster.clients, plan.member, list(plan.intakes), self, self._warn)
        self._parker = Transactor(cluster, f"{plan.name}-park")
        targets = Targets(lambda topic: self._transactor.partitions_of(topic, METADATA_TIMEOUT_S))
        self._parking = Parking(self._parker, self._membership, targets, clock, plan.most, on_event, self._tally)
        self._firing = Firing(
            self._transactor,
            self._membership,
            targets,
            self._parking,
            TopicAdmin(admin).denied,
            clock,
            plan.most,
            on_event,
            self._tally,
        )
        self._janitor = Janitor(
            self._offsets,
            clock,
            {topic: intake.keep_ms for topic, intake in plan.intakes.items()},
            lambda states: self._firing.commit_rest(states, released=False),
            on_event,
        )
        self._pulse = Pulse(clock, self._tally, plan.memory_budget_bytes, self._offsets, self._look, on_pulse)

    def run(self) -> None:
        """Serve until `stopping`, then hand the partitions over.

        Raises:
            UsageError: a partition can be served by nobody; one line says why.
            MembershipLostError: this member is out for good.
        """
        try:
            while not self._stopping():
                self.turn()
            self.revoked(list(self._states))
            self._pulse.beat()
        finally:
            self._close()

    def turn(self) -> None:
        """Go once around the loop."""
        try:
            self._membership.poll()
            if self._lost_producer is not None:
                raise self._lost_producer
            if self._waiting and self._clock.monotonic_ms() >= self._retry_at_ms:
                self._take_over()
            self._read()
            self._fire()
            if self._order and not any(state.replaying for state in self._order):
                self._parking.turn(self._order)
            self._janitor.turn(self._states)
        except InstanceInUseError as error:
            self._join_again(error)
        except RetriableError as error:
            self._warn(str(error))
        except MembershipLostError:
            raise
        except FatalError as error:
            self._begin_anew(error)
        self._announce()
        self._pulse.turn()

    # -- the group's callbacks --------------------------------------------------------------------------------------

    def assigned(self, places: Sequence[Place]) -> None:
        """Take these over, from the loop: a take-over may wait, and a callback may not."""
        self._on_event("assigned", partitions=_text(places))
        self._waits_for_instance = False
        self._joined = True
        self._tally.count(REBALANCES, 1, "assigned")
        self._waiting.update(places)
        if places:
            self._pulse.taking_over()
        self._announced = False

    def revoked(self, places: Sequence[Place]) -> None:
        """Commit these as released and drop them. No transaction is open: the loop finishes each before it polls."""
        self._stop_parking()
        states = [self._states[place] for place in places if place in self._states]
        if states or self._waiting.intersection(places):  # at the end they are given up before the group asks
            self._tally.count(REBALANCES, 1, "revoked")
        if states:
            self._release(states)
        self._drop(places)
        self._on_event("revoked", partitions=_text(places))

    def lost(self, places: Sequence[Place]) -> None:
        """Drop these: they are somebody else's."""
        self._stop_parking()
        self._drop(places)
        self._tally.count(REBALANCES, 1, "lost")
        self._on_event("lost", partitions=_text(places))

    def _stop_parking(self) -> None:
        try:
            self._parking.stop()
        except FatalError as error:
            self._lost_producer = error

    def _release(self, states: Sequence[PartitionState]) -> None:
        deadline_ms = self._clock.monotonic_ms() + HAND_OVER_MS
        while True:
            try:
                self._firing.commit_rest(states, released=True)
            except AbortableError as error:
                # The metadata is taken anew each time, so a moved generation is got over by trying again.
                if self._clock.monotonic_ms() > deadline_ms:
                    self._on_event("not_released", reason=str(error))
                    return
                self._clock.sleep(RETRY_MS / 1000)
            except BrokerError as error:
                self._on_event("not_released", reason=str(error))
                self._lost_producer = FatalError(str(error), error.code)
                return
            else:
                return

    def _drop(self, places: Sequence[Place]) -> None:
        held = [place for place in places if place in self._states]
        if held:
            self._reader.shut(held)
        for place in held:
            self._states.pop(place).close()
        self._waiting.difference_update(places)
        self._order = list(self._states.values())
        self._janitor.forget(places)

    def _begin_anew(self, error: FatalError) -> None:
        """A transaction's fate is not known, or the producer is gone: take over all that is ours, from the start."""
        self._on_event("begin_anew", reason=str(error), code=error.code)
        self._lost_producer = None
        places = list(self._states)
        self._parking.forget()
        self._drop(places)
        self._transactor.close()
        self._parker.close()
        self._waiting.update(places)
        self._pulse.taking_over()
        self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
        self._announced = False

    def _join_again(self, error: InstanceInUseError) -> None:
        """Under KIP-848 a member that died keeps its instance until its session ends: wait for that."""
        if not self._waits_for_instance:
            self._on_event("instance_in_use", reason=str(error))
            self._waits_for_instance = True
        self._clock.sleep(REJOIN_MS / 1000)
        self._membership.rejoin()

    # -- taking over ------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        places = sorted(self._waiting)
        began_ms = self._clock.monotonic_ms()
        journal = PulsingReader(self._plan.cluster, self._warn, self._pulse)
        take_over = TakeOver(
            self._membership,
            self._offsets,
            journal,
            Identity(
                (self._transactor.transactional_id, self._parker.transactional_id),
                {topic: intake.geometry for topic, intake in self._plan.intakes.items()},
            ),
            partial(fence, self._plan.cluster),
            self._on_event,
        )
        try:
            take_over.prove(places)
            # Only now: under a static instance's ids this fences whoever ran before, or runs still.
            self._plan.cluster.clients.at_once(
                [one.renew for one in (self._transactor, self._parker) if not one.started]
            )
            self._pulse.turn()
            recovered = take_over.run(places)
        except RetriableError as error:
            self._on_event("take_over_refused", reason=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            return
        finally:
            journal.close()
        now_ms = self._clock.now_ms()
        for place, found in recovered.items():
            intake = self._plan.intakes[place[0]]
            state = PartitionState(*place, intake.reader, intake.fixed_delay, self._new_wheel, found, now_ms)
            self._states[place] = state
            self._tally.count(TAKEOVERS, 1, place[0])
            self._on_event(
                "taken_over",
                topic=place[0],
                partition=place[1],
                low=found.low,
                done_above=len(found.done),
                replay_to=found.replay_end,
                took_ms=self._clock.monotonic_ms() - began_ms,
            )
        if self._paused:  # a replay is read to its end, and then the budget is looked at anew
            self._paused = False
            self._reader.resume([place for place in self._states if place not in recovered])
        self._reader.open({place: found.low for place, found in recovered.items()})
        self._order = list(self._states.values())
        self._waiting.clear()

    def _look(self) -> View:
        return View(self._joined or self._membership.joined, len(self._waiting), self._states)

    def _new_wheel(self, start_ms: int) -> TimingWheel:
        return TimingWheel(self._plan.tick_ms, self._plan.wheel_size, start_ms)

    def _announce(self) -> None:
        if self._announced or self._waiting or not self._states or any(s.replaying for s in self._order):
            return
        self._announced = True
        self._pulse.serving()
        self._on_event("serving", partitions=_text(self._states))

    # -- messages ---------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self._mind_the_budget()
        records, reached = self._reader.read(READ_MOST, self._patience_ms() / 1000)
        if not records and not reached:
            return
        states, now_ms = self._states, self._clock.now_ms()
        held = [state.held for state in self._order]
        topic, partition, state = None, None, None
        for record in records:
            if record.partition() != partition or record.topic() != topic:  # they come in runs
                topic, partition = record.topic() or "", record.partition() or 0
                state = states.get((topic, partition))
            if state is None:
                continue
            offset = record.offset() or 0
            try:
                headers: Headers | None = record.headers()  # type: ignore[assignment]  # bytes, from the wire
            except SystemError:
                # A name that is not UTF-8. Asking a second time would hand out broken objects.
                state.accept_unreadable(offset, record.key(), record.value())
                continue
            state.accept(offset, record.timestamp()[1], record.key(), record.value(), headers, now_ms)
        for place, position in reached.items():
            if place in states:
                states[place].reach(position)
        count_received(self._tally, self._plan.intakes, records)
        count_placed(self._tally, self._order, held)

    def _patience_ms(self) -> int:
        """How long to wait for records: no longer than until the next transaction has something to do."""
        wait_ms = READ_WAIT_MS
        now_ms = self._clock.now_ms()
        for state in self._order:
            due_ms = state.next_due_ms()
            if due_ms is not None and due_ms - now_ms < wait_ms:
                wait_ms = due_ms - now_ms
        monotonic_ms = self._clock.monotonic_ms()
        not_before_ms = max(self._next_transaction_ms, self._firing.resting_until_ms)
        return max(0, min(READ_WAIT_MS, max(wait_ms, not_before_ms - monotonic_ms)))

    def _mind_the_budget(self) -> None:
        """Stop reading while more is held than the budget allows; a replay is read to its end, or none would fire."""
        held = sum(state.held_bytes for state in self._order)
        budget = self._plan.memory_budget_bytes
        if not self._paused and held > budget and not any(state.replaying for state in self._order):
            self._paused = True
            self._reader.pause(self._states)
            self._on_event("reading_paused", held_bytes=held, budget_bytes=budget)
        elif self._paused and held < budget * RESUME_AT:
            self._paused = False
            self._reader.resume(self._states)
            self._on_event("reading_resumed", held_bytes=held)

    def _fire(self) -> None:
        now_ms = self._clock.now_ms()
        ready = [state for state in self._order if state.collect(now_ms)]
        if not ready:
            return
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms < max(self._next_transaction_ms, self._firing.resting_until_ms):
            return
        self._next_transaction_ms = monotonic_ms + self._plan.interval_ms
        self._firing.fire(ready)
        # Whoever came first comes last next time: a herd in one partition must not starve the others.
        self._order.append(self._order.pop(0))

    # -- the end ----------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        try:
            self._membership.close()
        except BrokerError as error:
            self._on_event("not_left", reason=str(error))
        self._reader.close()
        self._transactor.close()
        self._parker.close()
        self._offsets.close()

    def _warn(self, text: str) -> None:
        self._on_event("kafka_warning", reason=text)


def _text(places: Sequence[Place] | Mapping[Place, object]) -> list[str]:
    return [f"{topic}/{partition}" for topic, partition in sorted(places)]
