"""Which partitions are ours: given by the group, taken over, and released, lost or taken over anew.

A partition goes through: assigned → taken over (its state stands, the gate closed) → replayed (the gate opens) →
served → released or lost. A take-over may wait for brokers, and a callback of the group may not: so the callback notes
what is assigned, and the loop takes it over. What a classic group takes and gives back stands by meanwhile.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.core.recovered import Recovered
from tarry.errors import (
    AbortableError,
    BrokerError,
    FatalError,
    InstanceInUseError,
    MembershipLostError,
    RejoinError,
    RetriableError,
)
from tarry.kafka.place import OffsetMetadata, Place
from tarry.kafka.stall import StallWatch
from tarry.kafka.takeover import Identity, TakeOver
from tarry.kafka.transaction import fence
from tarry.metrics.families import REBALANCES, TAKEOVERS
from tarry.metrics.tally import Tally
from tarry.timer import TimingWheel
from tarry.worker.draining import Draining
from tarry.worker.edges import Edges
from tarry.worker.filing import Filer
from tarry.worker.firing import Firing
from tarry.worker.janitor import Janitor
from tarry.worker.parking import Parking
from tarry.worker.plan import Plan
from tarry.worker.pulse import Pulse, PulsingReader, View
from tarry.worker.reading import Reading
from tarry.worker.shut_out import ShutOut
from tarry.worker.standby import Standby

RETRY_MS = 100
"""How long a refused take-over waits before it begins again."""

REJOIN_MS = 300
"""How long until a member whose instance is in use asks again."""

GONE_MS = 5_000
"""How long a member waits before it makes anew a group that its coordinator does not know.

A broker that comes back after kill -9 may answer for a group that it has not read yet: Kafka takes the end of a load
that was given up for the end of the one that is running (`CoordinatorRuntime.load`, read in 4.1.0 to 4.3.1). Who makes
the group anew in that second writes what the broker then cannot read, and no member is served any more.
"""

LOST_MS = 20_000
"""How long a KIP-848 member that lost its partitions waits for others before it joins anew.

The client library joins again by itself; but it was seen to do nothing for minutes after a coordinator was killed.
"""

HAND_OVER_MS = 8_000
"""The budget of a release: what it does not reach, the next owner's fencing does."""


class Ownership:
    """The partitions of one process; the group tells it what comes and goes (`Rebalances`).

    Args:
        plan: what the process does.
        clock: wall and monotonic time.
        edges: its clients.
        reading: reads what is ours.
        firing: commits what is released.
        filer: is stopped before anything is given up.
        draining: forgets what is not ours.
        parking: is stopped before anything is given up.
        janitor: forgets what is not ours.
        pulse: is told of take-overs.
        tally: counts.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        edges: Edges,
        reading: Reading,
        firing: Firing,
        filer: Filer,
        draining: Draining,
        parking: Parking,
        janitor: Janitor,
        pulse: Pulse,
        tally: Tally,
        on_event: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._edges = edges
        self._reading = reading
        self._firing = firing
        self._filer = filer
        self._draining = draining
        self._parking = parking
        self._janitor = janitor
        self._pulse = pulse
        self._tally = tally
        self._on_event = on_event
        self.states: dict[Place, PartitionState] = {}
        """Those that are taken over."""
        self._standby = Standby(edges, lambda states: firing.commit_rest(states, released=False))
        self._shut_out = ShutOut(edges, clock, on_event)
        self._waiting: set[Place] = set()
        self._retry_at_ms = 0
        self._announced = False
        self._lost_producer: FatalError | None = None
        self._waits_for_instance = False
        self._joined = False
        self._rejoin_at_ms: int | None = None
        self._rejoined = False

    def view(self) -> View:
        """What there is to say of it."""
        return View(self._joined or self._edges.membership.joined, len(self._waiting), self.states)

    def turn(self) -> None:
        """Serve the group's callbacks, and take over what waits for it.

        Raises:
            RetriableError: a broker does not answer; go on.
            FatalError: a producer was lost: `begin_anew`.
            RejoinError: `join_again`.
            MembershipLostError: this member is out for good.
            UsageError: a partition can be served by nobody; one line says why.
        """
        self._serve_the_group()
        if self._lost_producer is not None:
            raise self._lost_producer
        if self._rejoin_at_ms is not None and self._clock.monotonic_ms() >= self._rejoin_at_ms:
            self._join_after_loss()
        if self._waiting and self._clock.monotonic_ms() >= self._retry_at_ms:
            self._take_over()

    def _serve_the_group(self) -> None:
        try:
            if not self._shut_out:
                self._edges.membership.poll()
        except MembershipLostError as error:
            self._lose_all()
            self._shut_out.begin(error)
        self._shut_out.turn()

    def _lose_all(self) -> None:
        """Drop what is ours, taken over or not: after an error that ends the membership nobody calls back about it."""
        self._joined = False
        self.lost(sorted({*self.states, *self._waiting}))

    def announce(self) -> None:
        """Say that all that is ours is served, once it is."""
        if self._announced or self._waiting or not self.states:
            return
        if any(state.replaying for state in self.states.values()):
            return
        self._announced = True
        self._pulse.serving()
        self._on_event("serving", partitions=_text(self.states))

    # -- the group's callbacks --------------------------------------------------------------------------------------

    def assigned(self, places: Sequence[Place]) -> None:
        """Note that these are to be taken over."""
        self._on_event("assigned", partitions=_text(places))
        self._waits_for_instance = False
        self._rejoin_at_ms, self._rejoined = None, False
        self._joined = True
        self._tally.count(REBALANCES, 1, "assigned")
        self._standby.keep(places)
        self._waiting.update(places)
        if places:
            self._pulse.taking_over()
        self._announced = False

    def revoked(self, places: Sequence[Place]) -> None:
        """Commit these as released and give them up. No transaction is open: the loop finishes each before it polls."""
        self._stop_side_producers()
        states = [self.states[place] for place in places if place in self.states]
        if states or self._waiting.intersection(places):  # at the end they are given up before the group asks
            self._tally.count(REBALANCES, 1, "revoked")
        released = self._release(states) if states else {}
        may_come_back = self._lost_producer is None and not self._edges.membership.is_incremental
        for state in self._part_with(places):
            if may_come_back and state.place in released and state.overflow.can_be_left:
                self._standby.put(state, released[state.place])
            else:
                state.close()
        self._on_event("revoked", partitions=_text(places))

    def hand_over(self) -> None:
        """Commit all that is ours as released, for others."""
        self.revoked(list(self.states))
        self._standby.clear()

    def lost(self, places: Sequence[Place]) -> None:
        """Drop these: they are somebody else's."""
        self._stop_side_producers()
        self._drop(places)
        self._standby.clear()
        if places and self._edges.membership.is_incremental:
            self._rejoin_at_ms = self._clock.monotonic_ms() + LOST_MS
        self._tally.count(REBALANCES, 1, "lost")
        self._on_event("lost", partitions=_text(places))

    def _stop_side_producers(self) -> None:
        for stop in (self._filer.stop, self._parking.stop):
            try:
                stop()
            except FatalError as error:
                self._lost_producer = error

    def _release(self, states: Sequence[PartitionState]) -> Mapping[Place, OffsetMetadata]:
        """What was committed; nothing, where it could not be."""
        deadline_ms = self._clock.monotonic_ms() + HAND_OVER_MS
        while True:
            try:
                return self._firing.commit_rest(states, released=True)
            except AbortableError as error:
                # The metadata is taken anew each time, so a moved generation is got over by trying again.
                if self._clock.monotonic_ms() > deadline_ms:
                    self._on_event("not_released", reason=str(error))
                    return {}
                self._clock.sleep(RETRY_MS / 1000)
            except BrokerError as error:
                self._on_event("not_released", reason=str(error))
                self._lost_producer = FatalError(str(error), error.code)
                return {}

    def _drop(self, places: Sequence[Place]) -> None:
        for state in self._part_with(places):
            state.close()

    def _part_with(self, places: Sequence[Place]) -> list[PartitionState]:
        """Do no more for these; the states of those that were taken over."""
        held = [place for place in places if place in self.states]
        if held:
            self._reading.shut(held)
        self._draining.forget(held)
        self._waiting.difference_update(places)
        self._janitor.forget(places)
        return [self.states.pop(place) for place in held]

    # -- beginning again --------------------------------------------------------------------------------------------

    def begin_anew(self, error: FatalError) -> None:
        """A transaction's fate is not known, or the producer is gone: take over all that is ours, from the start."""
        self._on_event("begin_anew", reason=str(error), code=error.code)
        self._lost_producer = None
        places = list(self.states)
        self._filer.forget()
        self._parking.forget()
        self._drop(places)
        self._standby.clear()
        for transactor in self._edges.transactors:
            transactor.close()
        self._waiting.update(places)
        self._pulse.taking_over()
        self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
        self._announced = False

    def join_again(self, error: RejoinError) -> None:
        """Join as a new member; under KIP-848 one that died keeps its instance until its session ends: wait for it."""
        wait_ms = REJOIN_MS
        if not isinstance(error, InstanceInUseError):
            self._on_event("group_gone", reason=str(error))
            self._lose_all()
            wait_ms = GONE_MS
        elif not self._waits_for_instance:
            self._on_event("instance_in_use", reason=str(error))
            self._waits_for_instance = True
        self._clock.sleep(wait_ms / 1000)
        self._edges.membership.rejoin()

    def _join_after_loss(self) -> None:
        """Nothing was assigned since partitions were lost: the second time only where the group has not taken us in."""
        self._rejoin_at_ms = None
        if self._rejoined and self._edges.membership.joined:
            return
        self._on_event("joining_anew", waited_ms=LOST_MS)
        self._edges.membership.rejoin()
        self._rejoined, self._rejoin_at_ms = True, self._clock.monotonic_ms() + LOST_MS

    # -- taking over ------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        places = sorted(self._waiting)
        began_ms = self._clock.monotonic_ms()
        cluster = self._plan.cluster
        journal = PulsingReader(
            cluster,
            lambda text: self._on_event("kafka_warning", reason=text),
            self._pulse,
            StallWatch(self._edges.offsets, self._clock),
        )
        take_over = TakeOver(
            self._edges.membership,
            self._edges.offsets,
            journal,
            Identity(
                self._edges.writer,
                {topic: intake.geometry for topic, intake in self._plan.intakes.items()},
            ),
            partial(fence, cluster),
            self._clock,
            self._on_event,
        )
        try:
            self._filer.settle()
            self._parking.settle()
            take_over.prove(places)
            # Only now: under a static instance's ids this fences whoever ran before, or runs still.
            cluster.clients.at_once([one.renew for one in self._edges.transactors if not one.started])
            self._pulse.turn()
            self._resume(places, began_ms)
            recovered = take_over.run(sorted(self._waiting)) if self._waiting else {}
        except (RetriableError, AbortableError) as error:
            self._on_event("take_over_refused", reason=str(error))
            self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
            return
        finally:
            journal.close()
        if recovered:
            others = list(self.states)
            self._stand(recovered, began_ms)
            self._reading.open({place: found.low for place, found in recovered.items()}, others)
        self._waiting.clear()

    def _resume(self, places: Sequence[Place], began_ms: int) -> None:
        """Go on with what stands by; it is served, whatever becomes of the others."""
        resumed = self._standby.resume(places)
        if not resumed:
            return
        others = list(self.states)
        self.states.update(resumed)
        self._reading.open({place: state.position for place, state in resumed.items()}, others)
        self._waiting.difference_update(resumed)
        self._on_event("resumed", partitions=_text(resumed), took_ms=self._clock.monotonic_ms() - began_ms)

    def _stand(self, recovered: Mapping[Place, Recovered], began_ms: int) -> None:
        now_ms = self._clock.now_ms()
        for place, found in recovered.items():
            intake = self._plan.intakes[place[0]]
            self.states[place] = PartitionState(
                *place, intake.reader, intake.fixed_delay, self._new_wheel, found, now_ms
            )
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

    def _new_wheel(self, start_ms: int) -> TimingWheel:
        return TimingWheel(self._plan.tick_ms, self._plan.wheel_size, start_ms)


def _text(places: Sequence[Place] | Mapping[Place, object]) -> list[str]:
    return [f"{topic}/{partition}" for topic, partition in sorted(places)]
