"""Obeying the pauses of targets, which people write to `I.control` (ADR 34).

    take-over  the gate of the partition is closed (`knows_pauses`); the end of the log is asked for
    read       the log is read with the intakes, from its first record, and then followed
    obey       read up to that end: the gate may open; messages for paused targets are parked from now on (`parking`)
    confirm    no transaction that began before has messages for a paused target: the checkpoint says up to which offset
               the partition obeys, and is committed soon, under the fencing of the group

What is known stays in force while the log cannot be read. An intake without that topic is served without pauses.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Obeyed
from tarry.core.request.pause import Pause, read_pause
from tarry.core.request.pauses import Pauses
from tarry.errors import AbortableError, BrokerError, RetriableError
from tarry.kafka.control_log import AskedControlLog, ControlLog, NoControlLog, control_log_of
from tarry.kafka.reader import Reader
from tarry.kafka.topics import Target
from tarry.kafka.types import Place
from tarry.service.metrics.families import UNREADABLE_PAUSES
from tarry.service.worker.context import Context
from tarry.units import format_instant

ASK_AGAIN_MS = 500
"""How long to wait after an answer that does not let the log be read, while a partition waits for it."""

LOOK_EVERY_MS = 60_000
"""How often to look whether the topic was created, or created again."""

PATIENCE_MS = 10_000
"""How long a partition waits for what may not come: see `_Waiting.may_go_on`."""

COMMIT_EVERY_MS = 100
"""The least time between two commits that only say what is obeyed."""

AGAIN_MS = 200
"""How long to wait after such a commit was aborted."""


@dataclass(slots=True)
class _Waiting:
    """A partition whose gate is closed, because it is not known yet which targets are paused.

    Attributes:
        state: of the partition.
        since_ms: when it was taken over; monotonic.
        end: the end of the log, asked for after the take-over; None before the answer.
    """

    state: PartitionState
    since_ms: int
    end: int | None = None

    def may_go_on(self, now_ms: int) -> bool:
        """Whether to serve the partition although the log cannot be read.

        No pause of the partition was ever confirmed if no owner has read the log so far. Else it waits: somebody was
        told that nothing is delivered.
        """
        return self.state.obeyed is None and now_ms - self.since_ms >= PATIENCE_MS


@dataclass(slots=True)
class _Followed:
    """The log of pauses of one intake.

    Attributes:
        intake: the intake.
        log: what is open; None: nothing is.
        known: what is in force.
        fresh: what was read since the log was opened, until its end is reached: then this is in force.
        active: the targets that are paused now.
        waiting: the partitions that wait for it.
        asked: the question under way.
        asked_for: the partitions for which it was asked.
        ask_at_ms: when to ask next; monotonic.
        missing_since_ms: since when the brokers say that there is no such topic; monotonic.
        told: what was said last about a log that cannot be read.
        told_start: the topic, and the first offset that it held, when it was said last that records were deleted.
    """

    intake: str
    log: ControlLog | None = None
    known: Pauses = field(default_factory=Pauses)
    fresh: Pauses | None = None
    active: frozenset[str] = frozenset()
    waiting: dict[Place, _Waiting] = field(default_factory=dict)
    asked: AskedControlLog | None = None
    asked_for: list[_Waiting] = field(default_factory=list)
    ask_at_ms: int = 0
    missing_since_ms: int | None = None
    told: str = ""
    told_start: tuple[str, int] = ("", 0)

    @property
    def is_current(self) -> bool:
        """Whether all that was in the log when it was opened is in force."""
        return self.log is not None and self.fresh is None

    @property
    def read(self) -> Pauses:
        """What takes the records."""
        return self.known if self.fresh is None else self.fresh

    def reach(self, position: int) -> None:
        """Note the reader's position."""
        self.read.reach(position)
        if self.fresh is not None and self.log is not None and self.fresh.position >= self.log.end:
            self.known, self.fresh = self.fresh, None


class Pausing:
    """Knows which targets are paused.

    Args:
        intakes: those whose pauses are obeyed.
        reader: the consumer of the intakes.
        ask: asks the brokers for an intake's log, without waiting.
        ask_others: asks other brokers about topics.
        commit_checkpoints: commits checkpoints of partitions.
        context: time, the log and the metrics.
    """

    def __init__(
        self,
        intakes: Sequence[str],
        reader: Reader,
        ask: Callable[[str], AskedControlLog],
        ask_others: Callable[[Collection[str]], Mapping[str, Target]],
        commit_checkpoints: Callable[[Sequence[PartitionState]], object],
        context: Context,
    ) -> None:
        self._reader = reader
        self._ask = ask
        self._ask_others = ask_others
        self._commit_checkpoints = commit_checkpoints
        self._clock = context.clock
        self._on_event = context.on_event
        self._tally = context.tally
        self._followed = {intake: _Followed(intake) for intake in intakes}
        self._by_topic = {control_log_of(intake)[0]: one for intake, one in self._followed.items()}
        self._not_before_ms = 0
        """When the next commit that only says what is obeyed may begin; monotonic."""

    @property
    def is_reading(self) -> bool:
        """Whether a log is being read."""
        return any(one.log is not None for one in self._followed.values())

    def paused(self, intake: str) -> frozenset[str]:
        """Return the targets of an intake that are paused now."""
        one = self._followed.get(intake)
        return frozenset() if one is None else one.active

    def pauses(self) -> Mapping[str, Sequence[Pause]]:
        """Return the pauses in force, by intake."""
        return {intake: one.known.of(one.active) for intake, one in self._followed.items() if one.active}

    def taken_over(self, states: Mapping[Place, PartitionState]) -> None:
        """Close the gate of partitions until it is known which targets are paused."""
        now_ms = self._clock.monotonic_ms()
        for place, state in states.items():
            if (one := self._followed.get(place[0])) is not None:
                state.knows_pauses = False
                one.waiting[place] = _Waiting(state, now_ms)
                one.ask_at_ms = now_ms

    # -- reading ------------------------------------------------------------------------------------------------------

    def accept(self, record: Message) -> bool:
        """Take in a record; return whether it is of a log of pauses."""
        one = self._by_topic.get(record.topic() or "")
        if one is None:
            return False
        offset = record.offset() or 0
        if one.log is not None and offset >= one.read.position:
            pause = read_pause(record.key(), record.value(), record.timestamp()[1])
            if pause is None or pause.unreadable:
                self._tally.count(UNREADABLE_PAUSES, 1, one.intake)
                reason = "its key is not the name of a topic" if pause is None else pause.unreadable
                target = None if pause is None else pause.target
                self._on_event("pause_unreadable", topic=record.topic(), offset=offset, target=target, reason=reason)
            one.read.take(offset, pause)
            one.reach(offset + 1)
        return True

    def reach(self, reached: Mapping[Place, int]) -> None:
        """Note the ends that the reader has reached."""
        for (topic, _), position in reached.items():
            if (one := self._by_topic.get(topic)) is not None:
                one.reach(position)

    def lost(self, log: Place | None) -> bool:
        """Read a log from the start again, because it does not hold the next record; return whether it is ours."""
        one = None if log is None else self._by_topic.get(log[0])
        if one is None:
            return False
        self._shut(one)
        return True

    def _shut(self, one: _Followed) -> None:
        """Stop reading; what is known stays in force."""
        if one.log is not None:
            self._reader.shut([control_log_of(one.intake)])
        one.log, one.fresh = None, None
        one.ask_at_ms = self._clock.monotonic_ms()

    # -- obeying ------------------------------------------------------------------------------------------------------

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Ask for the logs, open gates, and let pauses begin and end. Call this before anything fires.

        Raises:
            RetriableError: refused for now; go on.
        """
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
        for one in self._followed.values():
            if one.waiting:
                one.waiting = {p: waits for p, waits in one.waiting.items() if states.get(p) is waits.state}
            if one.asked is None and now_ms >= one.ask_at_ms and (one.waiting or self._is_owner(one, states)):
                one.asked, one.asked_for = self._ask(one.intake), list(one.waiting.values())
                one.ask_at_ms = now_ms + LOOK_EVERY_MS
            if one.asked is not None and (answer := one.asked.answer()) is not None:
                one.asked = None
                self._learn(one, answer, now_ms)
            self._show(one, wall_ms)
            if one.waiting:
                self._open_gates(one, now_ms)

    @staticmethod
    def _is_owner(one: _Followed, states: Mapping[Place, PartitionState]) -> bool:
        return any(intake == one.intake for intake, _ in states)

    def _learn(self, one: _Followed, answer: ControlLog | NoControlLog, now_ms: int) -> None:
        if isinstance(answer, NoControlLog):
            self._do_without(one, answer, now_ms)
            return
        one.missing_since_ms, one.told = None, ""
        self._tell_deleted(one, answer)
        is_same = one.log is not None and one.log.topic_id == answer.topic_id
        for waits in one.asked_for:
            waits.end = min(waits.end, answer.end) if is_same and waits.end is not None else answer.end
        if not is_same:
            self._shut(one)  # another topic of the same name
            self._reader.open({control_log_of(one.intake): answer.start})
            one.log, one.fresh = answer, Pauses()
            one.reach(answer.start)
        elif one.log is not None and answer.end < one.log.end:  # the log has lost its end
            one.log = answer
            one.reach(answer.start)
        # Partitions that were taken over while this was asked need the answer of another question.
        is_due = any(waits.end is None for waits in one.waiting.values())
        one.ask_at_ms = now_ms if is_due else now_ms + (PATIENCE_MS if one.waiting else LOOK_EVERY_MS)

    def _tell_deleted(self, one: _Followed, log: ControlLog) -> None:
        """Say that records of the log were deleted, each time that there are more. What is known stays in force."""
        if log.start and one.told_start != (log.topic_id, log.start):
            one.told_start = log.topic_id, log.start
            self._on_event("pauses_lost", topic=one.intake, start=log.start)

    def _do_without(self, one: _Followed, answer: NoControlLog, now_ms: int) -> None:
        """Go on with what is known; serve partitions in which nothing was ever paused."""
        if answer.is_missing and one.missing_since_ms is None:
            one.missing_since_ms = now_ms
        elif not answer.is_missing:
            one.missing_since_ms = None
        is_gone = self._is_gone(one, now_ms)
        for place, waits in list(one.waiting.items()):
            is_new = waits.state.obeyed is None and (answer.is_missing or answer.is_denied)
            if is_new or is_gone or waits.may_go_on(now_ms):
                self._open_gate(one, place)
        if one.waiting:
            one.ask_at_ms = now_ms + ASK_AGAIN_MS
        is_long = any(now_ms - waits.since_ms >= PATIENCE_MS for waits in one.waiting.values())
        if answer.reason != one.told and (not one.waiting or answer.is_denied or is_long):
            one.told = answer.reason
            self._on_event("pausing_not_possible", topic=one.intake, reason=answer.reason, waiting=len(one.waiting))

    def _is_gone(self, one: _Followed, now_ms: int) -> bool:
        """Whether the topic is missing for good: a broker that has lost its controllers answers from old metadata."""
        if one.missing_since_ms is None or now_ms - one.missing_since_ms < PATIENCE_MS or not one.waiting:
            return False
        topic = control_log_of(one.intake)[0]
        try:
            found = self._ask_others([topic]).get(topic)
        except RetriableError:
            return False
        if found is not None and not found.partitions:
            return True
        one.missing_since_ms = now_ms
        return False

    def _open_gates(self, one: _Followed, now_ms: int) -> None:
        """Open the gates of the partitions that know all pauses; of others if there is nothing to wait for."""
        for place, waits in list(one.waiting.items()):
            position, obeyed = one.known.position, waits.state.obeyed
            if not one.is_current or waits.end is None or position < waits.end:
                if waits.may_go_on(now_ms):
                    self._on_event("pauses_not_read", topic=one.intake, partition=place[1])
                    self._open_gate(one, place)
                continue
            is_same = obeyed is not None and one.log is not None and obeyed.topic_id == one.log.topic_id
            if obeyed is None or not is_same or position >= obeyed.offset:
                self._open_gate(one, place)
            elif now_ms - waits.since_ms >= PATIENCE_MS:  # as after an unclean election
                self._on_event("pauses_lost", topic=one.intake, partition=place[1], end=position, obeyed=obeyed.offset)
                self._open_gate(one, place)

    @staticmethod
    def _open_gate(one: _Followed, place: Place) -> None:
        one.waiting.pop(place).state.knows_pauses = True

    def _show(self, one: _Followed, wall_ms: int) -> None:
        """Let pauses begin and end, and say so."""
        active = one.known.paused_at(wall_ms)
        if active == one.active:
            return
        for pause in one.known.of(active - one.active):
            self._on_event(
                "target_paused",
                topic=one.intake,
                target=pause.target,
                reason=pause.reason or pause.unreadable,
                who=pause.who,
                since=format_instant(pause.at_ms),
                until=None if pause.until_ms is None else format_instant(pause.until_ms),
            )
        for target in sorted(one.active - active):
            self._on_event("target_resumed", topic=one.intake, target=target)
        one.active = active

    # -- confirming ---------------------------------------------------------------------------------------------------

    def confirm(
        self,
        states: Sequence[PartitionState],
        is_trying: Callable[[PartitionState, frozenset[str]], bool],
    ) -> None:
        """Let the checkpoints say what is obeyed. No firing transaction is open.

        Args:
            states: of our partitions.
            is_trying: whether an open transaction may deliver messages of a partition to one of some targets.

        Raises:
            RetriableError: no producer can be built for now.
            FatalError: a transaction's fate is unknown: drop the states and take over again.
        """
        behind = [state for state in states if self._is_behind(state, is_trying)]
        now_ms = self._clock.monotonic_ms()
        if not behind or now_ms < self._not_before_ms:
            return
        self._not_before_ms = now_ms + COMMIT_EVERY_MS
        try:
            self._commit_checkpoints(behind)
        except AbortableError as error:
            self._not_before_ms = now_ms + AGAIN_MS
            self._on_event("pauses_not_confirmed", reason=str(error))
        except BrokerError:
            self._not_before_ms = now_ms + AGAIN_MS
            raise

    def _is_behind(self, state: PartitionState, is_trying: Callable[[PartitionState, frozenset[str]], bool]) -> bool:
        """Put what is obeyed into the checkpoint; return whether the committed one does not say so yet."""
        one = self._followed.get(state.intake)
        if one is None or one.log is None or one.fresh is not None or not state.knows_pauses:
            return False
        if one.active and is_trying(state, one.active):
            return False
        return state.obey(Obeyed(one.known.position, one.log.topic_id))
