"""The hot window: the messages of a partition that are due soon, held in memory.

Here messages are matched with their cancels and duplicates, which have the same id and due time. A duplicate or a
cancelled message is completed without a delivery. All other messages wait in the wheel until they are due. A superseded
message of a name is dropped as soon as it is met.

    arrives      known already                   then
    message      -                               the message is held
    message      a cancel after it               the message is withheld: the cancel takes it
    message      one with its id and due time    undecided; later a duplicate, or held if a cancel took the other one
    cancel       a message before it             that message is withheld, unless it was handed out; cancel undecided
    cancel       -                               undecided; if it takes nothing until it is decided, it came too late
"""

from collections.abc import Callable, Iterable

from tarry.core.batch import Batch, Resolution
from tarry.core.message import HeldCancel, HeldMessage, HeldPurge, OrderKey, order_key
from tarry.core.progress.name_index import NameEntry
from tarry.core.progress.source import INTAKE, PARKED
from tarry.core.window.gated_wheel import GatedWheel
from tarry.core.window.matching import Matching
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names
from tarry.core.window.ready import Ready
from tarry.core.window.undecided import Undecided
from tarry.headers import Outcome, id_text, occurrence_id
from tarry.timer import TimingWheel


class HotWindow:
    """The messages of one partition that are due soon.

    Args:
        gate: returns the gate: messages at this key or a higher one do not fire.
        known_below: returns an offset of the intake below which all is read.
        new_wheel: makes an empty timing wheel that starts at a given time.
        ready: takes messages that are due, and messages and cancels that need no delivery.
        memory: is reduced when a withheld message drops its content.
        names: knows which messages are superseded, and takes them.
        keep_ms: how long the id of a message is known after its due time, so that a second one is a duplicate.
        now_ms: wall time.
    """

    __slots__ = ("_gate", "_known_below", "_matching", "_memory", "_names", "_ready", "_undecided", "_wheel")

    def __init__(
        self,
        gate: Callable[[], OrderKey],
        known_below: Callable[[], int],
        new_wheel: Callable[[int], TimingWheel],
        ready: Ready,
        memory: Memory,
        names: Names,
        keep_ms: int,
        now_ms: int,
    ) -> None:
        self._gate = gate
        self._known_below = known_below
        self._ready = ready
        self._memory = memory
        self._names = names
        self._wheel = GatedWheel(gate, new_wheel, ready.due, now_ms)
        self._matching = Matching(keep_ms)
        self._undecided = Undecided()

    def __len__(self) -> int:
        return len(self._wheel) + len(self._undecided)

    def hold(self, message: HeldMessage, now_ms: int) -> None:
        """Take in a message or a cancel that is due soon."""
        if type(message) is HeldCancel:
            self._undecided.add(message)
            known = self._matching.find(message)
            if isinstance(known, HeldMessage) and known.sequence < message.sequence and self._wheel.cancel(known):
                self._matching.forget(known)
                self._withhold(known)
        elif not self._place(message, now_ms):
            self._undecided.add(message)

    def recall(self, superseded: NameEntry) -> None:
        """Drop a message that has just been superseded, if it waits in the wheel; else it is dropped when it is met.

        A message with its id and due time is new from now on.
        """
        due_ms, id_ = superseded.due_ms, id_text(superseded.id)
        known = self._matching.known(id_, due_ms)
        if known is None:  # the entry of an occurrence has the id of its schedule
            id_ = occurrence_id(id_, due_ms)
            known = self._matching.known(id_, due_ms)
        if isinstance(known, int):
            # It is in the parked log, so its id is known; unless that is of another message.
            if not self._undecided.has(id_, due_ms, superseded.offset):
                self._matching.forget_done(id_, due_ms)
        elif known is not None and known.sequence == superseded.offset:
            self._matching.forget(known)
            # The range of a message that was read from a bucket may still have it.
            if known.source == INTAKE and self._wheel.cancel(known):
                self._names.drop(known)

    def hold_purge(self, purge: HeldPurge, now_ms: int) -> None:
        """Take in a purge: it is due after all messages that are due before it."""
        self._wheel.hold(purge, now_ms)

    def has_delivered(self, message: HeldMessage) -> bool:
        """Whether a message with the same id and due time is known, and held no more: delivered, or parked."""
        return isinstance(self._matching.find(message), int)

    def _place(self, message: HeldMessage, now_ms: int) -> bool:
        """Withhold a message, or hold it in the wheel; return False if one with its id and due time is known."""
        if message.name is not None and self._names.is_superseded(message):
            self._names.drop(message)
            return True
        if self._undecided.is_cancelled(message) and not self._was_handed_out(message):
            self._withhold(message)
            return True
        if not self._matching.remember(message):
            known = self._matching.find(message)
            if not isinstance(known, HeldMessage) or not self._names.is_superseded(known):
                return False
            self._matching.forget(known)  # it will not be delivered, so this is no duplicate of it
            self._matching.remember(message)
        self._wheel.hold(message, now_ms)
        return True

    def _was_handed_out(self, message: HeldMessage) -> bool:
        """Whether a message with the same id and due time was handed out to be delivered: a cancel is too late."""
        known = self._matching.find(message)
        return known is not None and not (isinstance(known, HeldMessage) and known in self._wheel)

    def _withhold(self, message: HeldMessage) -> None:
        """Keep a message for its cancel. If no pass will read it again, drop its content."""
        if self._names.is_superseded(message):
            self._names.drop(message)
            return
        if order_key(message) < self._gate():
            if self._undecided.withholds_another(message, self._names.is_superseded):
                self._ready.resolutions.append(Resolution(Outcome.DUPLICATE, message, is_taken=True))
                return
            self._memory.held_bytes -= message.drop_content()
        self._undecided.withhold(message)

    def take_back(self, message: HeldMessage) -> bool:
        """Forget a message as if it had not arrived. It is after the gate, so nothing about it is decided yet.

        Returns:
            Whether it was held: a superseded message may have been dropped.
        """
        if self._wheel.cancel(message):
            self._matching.forget(message)
            return True
        return self._undecided.take_back(message)

    def next_due_ms(self) -> int | None:
        """When `decide` or `collect` has something to do next: 0 for now; None if nothing before the gate moves."""
        return 0 if self._can_decide() else self._wheel.next_due_ms()

    def first_due_ms(self) -> int | None:
        """Return the earliest due time of the messages that are held and did not fire yet; None if there is none."""
        return self._wheel.first_due_ms()

    def is_gate_before(self, key: OrderKey) -> bool:
        """Whether the gate is before a key: then nothing to fire does not mean that all before the key has fired."""
        return self._gate() < key

    def decide(self, now_ms: int) -> None:
        """Decide the undecided records that the gate has passed, in order."""
        while self._can_decide():
            record = self._undecided.pop()
            if type(record) is HeldCancel:
                self._answer(record)
            elif not self._place(record, now_ms):
                self._ready.resolutions.append(Resolution(Outcome.DUPLICATE, record))

    def _can_decide(self) -> bool:
        """Whether all records before the first undecided record are read, in buckets and in a replay."""
        first = self._undecided.first()
        return first is not None and first < self._gate() and first[1] < self._known_below()

    def _answer(self, cancel: HeldMessage) -> None:
        """Complete a cancel, after the messages that it takes.

        So a process that takes over still finds the cancel as long as it finds one of those messages.
        """
        taken: list[HeldMessage] = []
        for one in self._undecided.taken_by(cancel):
            if self._names.is_superseded(one):
                self._names.drop(one)
            else:
                taken.append(one)
        message, *others = taken or (None,)
        self._ready.resolutions += [Resolution(Outcome.DUPLICATE, other, is_taken=True) for other in others]
        self._ready.resolutions.append(
            Resolution(Outcome.CANCEL_TOO_LATE, cancel)
            if message is None
            else Resolution(Outcome.CANCELLED, message, cancel)
        )

    def collect(self, now_ms: int) -> None:
        """Make ready the messages that are due now."""
        due = self._ready.due
        due.extend(self._wheel.collect(now_ms))
        # A message about to be delivered stays known, however late it is: no cancel may take one with its id.
        self._matching.advance(min(now_ms, self._gate()[0], due[0].due_ms if due else now_ms))

    @property
    def known_bytes(self) -> int:
        """The memory for the ids of messages that are no longer held."""
        return self._matching.size_bytes

    def shed_known(self, limit_bytes: int) -> None:
        """Remember the ids of messages that are no longer held in at most `limit_bytes`."""
        self._matching.shed(limit_bytes)

    def done(self, batch: Batch) -> None:
        """Note that the messages of a batch were delivered: only their ids stay known.

        What became a dead letter is forgotten: it may be sent again, and is no duplicate then.
        """
        self.let_go(batch.due)
        self.forget(batch.retired)
        for copy in batch.dropped:
            if isinstance(copy, HeldMessage):
                self._matching.forget(copy)

    def forget(self, messages: Iterable[HeldMessage]) -> None:
        """Forget messages that became dead letters."""
        for message in messages:
            self._matching.forget(message)
            if message.source.level == PARKED:  # only its id is known, since it was filed
                self._matching.forget_done(message.id, message.due_ms)

    def let_go(self, messages: Iterable[HeldMessage]) -> None:
        """Note that messages are not held here any more; only their ids stay known."""
        self._matching.done(messages)

    def close(self) -> None:
        """Free the messages: the wheel's rings are reference cycles, and full garbage collections are switched off."""
        self._wheel.close()
