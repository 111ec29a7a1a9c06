"""Which partitions are ours: assigned by the group, taken over, then released, lost or taken over again.

The lives of a partition and of the membership are tables: `tarry.core.lifecycle`. A take-over may wait for brokers, but
a rebalance callback must not. So the callback only notes the assigned partitions, and the loop takes them over. A
classic group revokes all partitions at a rebalance and gives most of them back: their states stand by meanwhile. A
partition that cannot be served is set aside (`Aside`); the others go on.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from tarry.core.lifecycle import Event, Lives, MemberEvent, MemberLife, MemberPhase, Phase
from tarry.core.partition import PartitionState
from tarry.core.progress.recovered import Recovered
from tarry.errors import (
    AbortableError,
    BrokerError,
    FatalError,
    InstanceInUseError,
    LogError,
    MembershipLostError,
    RejoinError,
    RetriableError,
    UsageError,
)
from tarry.kafka.own_logs import LogStates
from tarry.kafka.partition_logs import logs_of
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.metrics.families import REBALANCES, TAKEOVER_SECONDS, TAKEOVERS
from tarry.service.worker.aside import Aside
from tarry.service.worker.connections import Connections
from tarry.service.worker.context import Context
from tarry.service.worker.parts import Parts
from tarry.service.worker.plan import Plan
from tarry.service.worker.standby import Standby
from tarry.service.worker.static_member import StaticMember
from tarry.service.worker.takeovers import TakenOver, TakeOverRefused, TakeOvers
from tarry.service.worker.view import View
from tarry.timer import TimingWheel

RETRY_MS = 100
"""How long to wait after a refused take-over before it begins again."""

REJOIN_MS = 300
"""How long a member whose instance is in use waits before it tries to join again."""

GONE_MS = 5_000
"""How long a member waits before it creates a group again that its coordinator does not know.

A broker that restarts after kill -9 may answer for a group that it has not loaded yet: Kafka mistakes the end of an
abandoned load for the end of the running one (`CoordinatorRuntime.load`, read in 4.1.0 to 4.3.1). A member that creates
the group in that second writes records that the broker then cannot read, and no member is served any more.
"""

LOST_MS = 20_000
"""How long a KIP-848 member that lost its partitions waits for an assignment before it joins again.

The client library rejoins by itself, but we saw it do nothing for minutes after a coordinator was killed.
"""

HAND_OVER_MS = 8_000
"""The budget of a release. If it runs out, the next owner fences this process instead."""


class Ownership:
    """The partitions of one process; implements the group's callbacks (`Rebalances`).

    Args:
        plan: the configuration of the process.
        connections: its clients.
        parts: the parts of its loop, which begin and stop to work on partitions.
        context: time, the log and the metrics.
        on_long_step: called after a step that may have taken seconds, to show that the process lives.
    """

    def __init__(
        self, plan: Plan, connections: Connections, parts: Parts, context: Context, on_long_step: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._connections = connections
        self._parts = parts
        self._clock = context.clock
        self._on_event = context.on_event
        self._tally = context.tally
        self._on_long_step = on_long_step
        self._lives = Lives()
        self._member = MemberLife()
        self.states: dict[Place, PartitionState] = {}
        """The partitions that are taken over."""
        self._standby = Standby(connections, lambda states: parts.firing.commit_checkpoints(states, released=False))
        self._static_member = StaticMember(connections, context)
        self._taking_over = TakeOvers(plan, connections, context)
        self._aside = Aside(context)
        self._away: set[Place] = set()
        """Partitions with a log that had no leader, or could not be read, at the last look."""
        self._one_by_one = False
        """Whether each partition is taken over separately, because a take-over was refused."""
        self._tries = 0
        """How many separate take-overs were begun; selects another partition each time."""
        self._has_uncommitted_ids = False
        """Whether the committed checkpoints do not have our new transactional ids yet."""
        self._retry_at_ms = 0
        self._announced = False
        self._taking_over_since_ms: int | None = None
        self._lost_producer: FatalError | None = None

    def view(self) -> View:
        """Return the state of our partitions, for the health report."""
        joined = self._member.phase is MemberPhase.MEMBER or self._connections.membership.joined
        return View(joined, len(self._unserved), self.states, self._aside, self._lives.having(Phase.STANDING_BY))

    def turn(self) -> None:
        """Serve the group's callbacks, and take over the partitions that wait for it.

        Raises:
            RetriableError: a broker does not answer; go on.
            FatalError: a producer was lost; call `begin_anew`.
            RejoinError: call `join_again`.
            MembershipLostError: this member is out permanently.
        """
        self._serve_the_group()
        if self._lost_producer is not None:
            raise self._lost_producer
        if self._member.has_waited(LOST_MS, self._clock.monotonic_ms()):
            self._join_after_loss()
        self._replace_stuck_ids()
        seen = self._connections.own_logs.turn(self._ours)
        if seen is not None:
            self._act_on_logs(seen)
        set_aside = self._lives.having(Phase.AWAY, Phase.QUARANTINED)
        self._lives.move(Event.DUE, set_aside.intersection(self._aside.due(self._away)))
        if self._waiting and self._clock.monotonic_ms() >= self._retry_at_ms:
            self._take_over()

    @property
    def _ours(self) -> list[Place]:
        """All partitions that the group has assigned to us."""
        return sorted(self._lives.having(*Phase) - self._lives.having(Phase.STANDING_BY))

    @property
    def not_aside(self) -> list[Place]:
        """Our partitions without those that are set aside: they are served, or will be soon."""
        return [place for place in self._ours if place not in self._aside]

    @property
    def _waiting(self) -> set[Place]:
        """Our partitions that are to be taken over; for some a take-over is under way."""
        return self._lives.having(Phase.WAITING, Phase.TAKING_OVER)

    @property
    def _unserved(self) -> list[Place]:
        """The waiting partitions without those that were set aside and are only being retried."""
        return [place for place in self._waiting if place not in self._aside]

    def _serve_the_group(self) -> None:
        if self._member.phase is not MemberPhase.SHUT_OUT:
            try:
                self._connections.membership.poll()
            except MembershipLostError as error:
                # No callback follows an error that ends the membership.
                self.lost(self._ours)
                self._move_member(MemberEvent.ENDED)
                self._static_member.begin(error)
        if self._member.phase is MemberPhase.SHUT_OUT and self._static_member.turn():
            self._move_member(MemberEvent.REJOINED)
            self._connections.membership.rejoin()

    def _move_member(self, event: MemberEvent) -> None:
        self._member.move(event, self._clock.monotonic_ms())

    @property
    def is_taking_over(self) -> bool:
        """Whether a take-over is under way, so that the loop should come back soon."""
        return bool(self._taking_over.places)

    def begins_to_serve(self) -> bool:
        """Return, once, that all our partitions are served, except those that are set aside."""
        if self._announced or not self.states or self._unserved:
            return False
        if any(state.is_gated for state in self.states.values()):
            return False
        self._announced = True
        if self._taking_over_since_ms is not None:
            took_ms = self._clock.monotonic_ms() - self._taking_over_since_ms
            self._taking_over_since_ms = None
            self._tally.observe(TAKEOVER_SECONDS, took_ms / 1000)
        return True

    def _note_take_over(self) -> None:
        """Partitions of ours are to be taken over: begin to measure how long that takes."""
        self._announced = False
        if self._taking_over_since_ms is None:
            self._taking_over_since_ms = self._clock.monotonic_ms()

    # -- the group's callbacks --------------------------------------------------------------------------------------

    def assigned(self, places: Sequence[Place]) -> None:
        """Note these partitions for a take-over."""
        self._on_event("assigned", partitions=_text(places))
        self._move_member(MemberEvent.ASSIGNED)
        self._tally.count(REBALANCES, 1, "assigned")
        self._standby.keep(places)
        self._forget_standby()
        self._lives.move(Event.ASSIGNED, places)
        self._announced = False
        if places:
            self._note_take_over()

    def revoked(self, places: Sequence[Place]) -> None:
        """Release these partitions. No firing transaction is open: the loop finishes each one before it polls."""
        self._stop_side_producers()
        states = [self.states[place] for place in places if place in self.states]
        places = [place for place in places if place in self._lives]
        if states or self._waiting.intersection(places):  # at shutdown `hand_over` has released them already
            self._tally.count(REBALANCES, 1, "revoked")
        self._taking_over.give_up(places)
        released = self._release(states) if states else {}
        may_come_back = self._lost_producer is None and not self._connections.membership.is_incremental
        for state in self._detach(places):
            can_be_left = state.overflow.can_be_left and not state.lost_ends
            if may_come_back and state.place in released and can_be_left:
                self._standby.put(state, released[state.place])
            else:
                state.close()
        # A partition that is revoked before it was resumed goes on standing by.
        kept = {place for place in places if place in self._standby}
        self._lives.move(Event.KEPT, kept)
        self._lives.move(Event.GIVEN_UP, [place for place in places if place not in kept])
        self._forget(places)
        self._on_event("revoked", partitions=_text(places))

    def hand_over(self) -> None:
        """Release all our partitions, for other owners."""
        self.revoked([*self.states, *self._taking_over.places])
        self._lives.move(Event.GIVEN_UP, self._lives.having(Phase.AWAY, Phase.QUARANTINED))
        self._aside.clear()
        self._clear_standby()

    def lost(self, places: Sequence[Place]) -> None:
        """Drop these partitions: they belong to another member."""
        self._stop_side_producers()
        self._drop(places)
        self._lives.move(Event.GIVEN_UP, [place for place in places if place in self._lives])
        self._forget(places)
        self._clear_standby()
        if places and self._connections.membership.is_incremental:
            self._move_member(MemberEvent.LOST)
        self._tally.count(REBALANCES, 1, "lost")
        self._on_event("lost", partitions=_text(places))

    def _forget(self, places: Sequence[Place]) -> None:
        """Forget all about these partitions, which belong to others."""
        self._aside.forget(places)
        self._taking_over.part_with(places)
        self._parts.open_transactions.forget(places)

    def _stop_side_producers(self) -> None:
        for one in self._parts.side_transactions:
            try:
                one.stop()
            except FatalError as error:
                self._lost_producer = error

    def _release(self, states: Sequence[PartitionState]) -> Mapping[Place, OffsetMetadata]:
        """Commit these partitions as released; return the committed offsets, empty if that failed."""
        deadline_ms = self._clock.monotonic_ms() + HAND_OVER_MS
        while True:
            try:
                return self._parts.firing.commit_checkpoints(states, released=True)
            except AbortableError as error:
                # Each try takes the group metadata again, so a retry succeeds after the generation has changed.
                if self._clock.monotonic_ms() > deadline_ms:
                    self._on_event("not_released", reason=str(error))
                    return {}
                self._clock.sleep(RETRY_MS / 1000)
                states = self._writable(states)
            except BrokerError as error:
                self._on_event("not_released", reason=str(error))
                self._lost_producer = FatalError(str(error), error.code)
                return {}

    def _writable(self, states: Sequence[PartitionState]) -> Sequence[PartitionState]:
        """Return the partitions whose logs are all available: one that is not would block the others' release."""
        self._rename_stuck()
        try:
            seen = self._connections.own_logs.look([state.place for state in states])
        except BrokerError:  # then the next try fails too, and reports why
            return states
        return [state for state in states if state.place not in {*seen.away, *seen.missing}]

    def _drop(self, places: Sequence[Place]) -> None:
        for state in self._detach(places):
            state.close()

    def _detach(self, places: Sequence[Place]) -> list[PartitionState]:
        """Stop all work on these partitions; return the states of those that were taken over."""
        held = [place for place in places if place in self.states]
        if held:
            self._parts.reading.shut(held)
        self._parts.draining.forget(held)
        self._taking_over.forget(places)
        self._note_stopped()
        self._parts.maintenance.forget(places)
        return [self.states.pop(place) for place in held]

    def _note_stopped(self) -> None:
        """Take-overs that are not under way any more are to begin again."""
        self._lives.move(Event.STOPPED, self._lives.having(Phase.TAKING_OVER) - self._taking_over.places)

    def _clear_standby(self) -> None:
        self._standby.clear()
        self._forget_standby()

    def _forget_standby(self) -> None:
        """Give up the partitions whose kept states were dropped."""
        standing = self._lives.having(Phase.STANDING_BY)
        self._lives.move(Event.GIVEN_UP, [place for place in standing if place not in self._standby])

    # -- beginning again --------------------------------------------------------------------------------------------

    def begin_anew(self, error: FatalError) -> None:
        """Take over all our partitions from the start: a transaction's fate is unknown, or a producer is lost."""
        self._on_event("begin_anew", reason=str(error), code=error.code)
        self._lost_producer = None
        places = list(self.states)
        for one in self._parts.side_transactions:
            one.forget()
        self._drop(places)
        self._lives.move(Event.RESTARTED, places)
        self._taking_over.clear()
        self._note_stopped()
        self._clear_standby()
        for transactor in self._connections.transactors:
            transactor.close()
        self._note_take_over()
        self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS

    def join_again(self, error: RejoinError) -> None:
        """Join as a new member, after a wait; under KIP-848 a dead member keeps its instance until its session ends."""
        wait_ms = REJOIN_MS
        if not isinstance(error, InstanceInUseError):
            self._on_event("group_gone", reason=str(error))
            self._move_member(MemberEvent.GROUP_GONE)
            self.lost(self._ours)
            wait_ms = GONE_MS
        elif self._member.phase is not MemberPhase.INSTANCE_IN_USE:
            self._on_event("instance_in_use", reason=str(error))
            self._move_member(MemberEvent.INSTANCE_TAKEN)
        self._clock.sleep(wait_ms / 1000)
        self._connections.membership.rejoin()

    def _join_after_loss(self) -> None:
        """Join again, because none was assigned since partitions were lost; a confirmed member stays in the group."""
        if self._member.phase is MemberPhase.REJOINED and self._connections.membership.joined:
            self._move_member(MemberEvent.CONFIRMED)
            return
        self._move_member(MemberEvent.WAITED)
        self._on_event("joining_anew", waited_ms=LOST_MS)
        self._connections.membership.rejoin()

    # -- set aside --------------------------------------------------------------------------------------------------

    def quarantine(self, error: LogError) -> None:
        """Stop serving the partitions that have these faulty logs, until an operator has repaired them."""
        reasons = {one.log: str(one) for one in (*error.further, error)}
        found: dict[Place, str] = {}
        for place in self._ours:
            logs = logs_of(place, self._plan.intakes[place[0]].geometry)
            if why := next((reasons[log] for log in logs if log in reasons), None):
                found[place] = why
        self._quarantine(found)

    def _act_on_logs(self, seen: LogStates) -> None:
        """Set aside partitions that cannot be served in the present state of their logs.

        If only the intake of a partition cannot be read, and the partition is taken over, it stays in service: the
        messages that were read already still fire.
        """
        unreadable = {place: why for place, why in seen.unreadable.items() if place not in self.states}
        self._away = {*seen.away, *unreadable}
        self._set_aside({**unreadable, **seen.away}, Event.LEADERLESS, self._aside.set_away)
        self._quarantine(seen.missing)

    def _quarantine(self, reasons: Mapping[Place, str]) -> None:
        self._set_aside(reasons, Event.FAULTY, self._aside.quarantine)

    def _set_aside(self, reasons: Mapping[Place, str], event: Event, put: Callable[[Place, str], None]) -> None:
        """Stop serving these partitions, and release them, so that the next owner need not fence us."""
        states = [self.states[place] for place in reasons if place in self.states]
        if states:
            self._stop_side_producers()
            self._release_by_plain_commit(states)
        self._taking_over.give_up(list(reasons))
        self._drop(list(reasons))
        self._standby.drop(list(reasons))
        self._parts.open_transactions.forget(reasons)
        self._lives.move(event, reasons)
        for place, why in reasons.items():
            put(place, why)

    def _release_by_plain_commit(self, states: Sequence[PartitionState]) -> None:
        """Release by a plain commit: no transaction of theirs is open, and a journal may be unavailable for one."""
        try:
            self._connections.membership.commit(
                {state.place: state.plain_checkpoint(released=True) for state in states}
            )
        except BrokerError as error:
            self._on_event("not_released", reason=str(error))

    # -- other transactional ids ------------------------------------------------------------------------------------

    def _replace_stuck_ids(self) -> None:
        """Replace stuck transactional ids; no transaction begins before all committed checkpoints have the new ones.

        Raises:
            RetriableError: a rebalance is going on, or there is no answer; try again.
        """
        if self._rename_stuck():
            # Most likely one of our logs has no leader: keep its partition out of the next transaction.
            self._act_on_logs(self._connections.own_logs.look(self._ours))
        if self._has_uncommitted_ids:
            if self.states:
                self._connections.membership.commit(
                    {place: state.plain_checkpoint() for place, state in self.states.items()}
                )
            for state in self.states.values():
                state.confirm_checkpoint()
            self._has_uncommitted_ids = False

    def _rename_stuck(self) -> bool:
        """Give stuck transactors new transactional ids; return whether any was stuck."""
        stuck = [transactor for transactor in self._connections.transactors if transactor.is_stuck]
        if not stuck:
            return False
        for transactor in stuck:
            transactor.rename()
        self._on_event("names_changed", transactional_ids=[transactor.transactional_id for transactor in stuck])
        for state in self.states.values():
            state.sign(self._connections.writer)
        self._taking_over.clear()
        self._note_stopped()
        self._has_uncommitted_ids = True
        return True

    # -- taking over ------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Begin the take-overs that wait, and continue those under way."""
        try:
            if self._lives.having(Phase.WAITING):
                self._begin_to_take_over()
            for outcome in self._taking_over.turn():
                if isinstance(outcome, TakenOver):
                    self._install(outcome)
                else:
                    self._on_refused(outcome)
        except (RetriableError, AbortableError) as error:
            self._try_again(error)
        finally:
            self._note_stopped()
        self._one_by_one = self._one_by_one and bool(self._waiting)

    def _on_refused(self, refused: TakeOverRefused) -> None:
        """Set aside a partition that no process can take over, once it is known which one; take over one by one."""
        if not isinstance(refused.error, UsageError):
            self._try_again(refused.error)
        elif len(refused.places) == 1:
            self._quarantine({refused.places[0]: str(refused.error)})
        self._one_by_one = True

    def _try_again(self, error: BrokerError) -> None:
        self._on_event("take_over_refused", reason=str(error))
        self._retry_at_ms = self._clock.monotonic_ms() + RETRY_MS
        self._one_by_one = True

    def _to_begin(self) -> list[Place]:
        """Return the partitions to begin: all that wait; after a refusal one, another one each time."""
        places = sorted(self._lives.having(Phase.WAITING))
        if not self._one_by_one or not places:
            return places
        self._tries += 1
        return [places[self._tries % len(places)]]

    def _begin_to_take_over(self) -> None:
        began_ms = self._clock.monotonic_ms()
        self._act_on_logs(self._connections.own_logs.look(self._ours))
        if not (places := self._to_begin()):
            return
        for one in self._parts.side_transactions:
            one.settle()
        try:
            self._taking_over.prove(places)
        except UsageError as refusal:
            self._on_refused(TakeOverRefused(places, refusal))
            return
        self._on_long_step()
        self._resume(places, began_ms)
        self._on_long_step()
        if others := sorted(self._lives.having(Phase.WAITING).intersection(places)):
            self._taking_over.begin(others, began_ms)
            self._lives.move(Event.BEGUN, others)

    def _resume(self, places: Sequence[Place], began_ms: int) -> None:
        """Resume the partitions that stand by; they are served, whether or not the others' take-over succeeds."""
        resumed = self._standby.resume(places)
        if not resumed:
            return
        others = list(self.states)
        self.states.update(resumed)
        self._parts.pausing.taken_over(resumed)
        self._parts.reading.open({place: state.position for place, state in resumed.items()}, others)
        self._lives.move(Event.RESUMED, resumed)
        self._on_event("resumed", partitions=_text(resumed), took_ms=self._clock.monotonic_ms() - began_ms)

    def _states_of(self, recovered: Mapping[Place, Recovered]) -> dict[Place, PartitionState]:
        """Build the states of partitions that were taken over; write a copy first if none may name their topic ids.

        If the intake is recreated, a take-over might otherwise use a copy without topic ids. Then it would apply
        the journal's done offsets, which belong to the former intake, to the new one.
        """
        now_ms = self._clock.now_ms()
        states = {}
        with ExitStack() as unless_all_is_well:
            for place, found in recovered.items():
                intake = self._plan.intakes[place[0]]
                state = PartitionState(*place, intake.reader, intake.fixed_delay, self._new_wheel, found, now_ms)
                state.names.limit = intake.names_limit
                state.limit_occurrences(intake.most_occurrences)
                state.overflow.upkeep, state.parked.park_after_ms = self._plan.upkeep, self._plan.park_after_ms
                intake.reader.partitions = found.partitions
                states[place] = state
                unless_all_is_well.callback(state.close)
            if uncopied := [state for place, state in states.items() if recovered[place].is_uncopied]:
                self._parts.firing.commit_checkpoints(uncopied, released=False)
            unless_all_is_well.pop_all()
        return states

    def _install(self, taken: TakenOver) -> None:
        others = list(self.states)
        states = self._states_of(taken.recovered)
        self._parts.pausing.taken_over(states)
        self.states.update(states)
        for place, found in taken.recovered.items():
            self._tally.count(TAKEOVERS, 1, place[0])
            self._on_event(
                "taken_over",
                topic=place[0],
                partition=place[1],
                low=found.low,
                done_above=len(found.done),
                replay_to=found.replay_end,
                took_ms=taken.took_ms,
            )
        self._parts.reading.open({place: found.low for place, found in taken.recovered.items()}, others)
        self._lives.move(Event.TAKEN_OVER, taken.recovered)
        self._parts.publishing.taken_over(taken.recovered)
        self._aside.back(taken.recovered)

    def _new_wheel(self, start_ms: int) -> TimingWheel:
        return TimingWheel(self._plan.tick_ms, self._plan.wheel_size, start_ms)


def _text(places: Sequence[Place] | Mapping[Place, object]) -> list[str]:
    return [f"{topic}/{partition}" for topic, partition in sorted(places)]
