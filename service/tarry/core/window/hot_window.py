"""What a partition holds in memory because it is due soon.

Here messages meet their cancels, and others like them, at the latest: what comes of that needs no delivery. All others
wait in the wheel until they are due.

    comes        while there is known            then
    message      -                               it is held
    message      a cancel behind it              withheld: the cancel takes it
    message      one like it                     undecided; then a duplicate, or held, if a cancel has taken that one
    cancel       a message in front of it        that is withheld, unless it was handed out; undecided
    cancel       -                               undecided; having taken nothing by then, it came too late
"""

from collections.abc import Callable, Iterable

from tarry.core.batch import Batch, Resolution
from tarry.core.message import HeldCancel, HeldMessage, OrderKey
from tarry.core.window.gated_wheel import GatedWheel
from tarry.core.window.matching import Matching
from tarry.core.window.memory import Memory
from tarry.core.window.ready import Ready
from tarry.core.window.undecided import Undecided
from tarry.headers import Outcome
from tarry.timer import TimingWheel


class HotWindow:
    """The messages of one partition that are due soon.

    Args:
        gate: what stands at it or behind it, by due time and offset in the intake, does not fire.
        known_below: an offset of the intake: nothing below it is unread.
        new_wheel: makes an empty wheel that starts at a time.
        ready: takes what is due, and what needs no delivery.
        memory: is told of what a withheld message takes no more.
        keep_ms: how long a message is known after its due time, so that one like it is a duplicate.
        now_ms: wall time.
    """

    __slots__ = ("_gate", "_known_below", "_matching", "_memory", "_ready", "_undecided", "_wheel")

    def __init__(
        self,
        gate: Callable[[], OrderKey],
        known_below: Callable[[], int],
        new_wheel: Callable[[int], TimingWheel],
        ready: Ready,
        memory: Memory,
        keep_ms: int,
        now_ms: int,
    ) -> None:
        self._gate = gate
        self._known_below = known_below
        self._ready = ready
        self._memory = memory
        self._wheel = GatedWheel(gate, new_wheel, ready.due, now_ms)
        self._matching = Matching(keep_ms)
        self._undecided = Undecided()

    def __len__(self) -> int:
        return len(self._wheel) + len(self._undecided)

    def hold(self, message: HeldMessage, now_ms: int) -> None:
        """Take in what is due soon."""
        if type(message) is HeldCancel:
            self._undecided.add(message)
            known = self._matching.like(message)
            if isinstance(known, HeldMessage) and known.sequence < message.sequence and self._wheel.cancel(known):
                self._matching.forget(known)
                self._withhold(known)
        elif not self._place(message, now_ms):
            self._undecided.add(message)

    def _place(self, message: HeldMessage, now_ms: int) -> bool:
        """Withhold a message, or hold it in the wheel; False where one like it is known."""
        if self._undecided.is_cancelled(message) and not self._was_handed_out(message):
            self._withhold(message)
            return True
        if not self._matching.remember(message):
            return False
        self._wheel.hold(message, now_ms)
        return True

    def _was_handed_out(self, message: HeldMessage) -> bool:
        """Whether one like a message is delivered, or about to be: no cancel can say any more that it was in time."""
        known = self._matching.like(message)
        return known is not None and not (isinstance(known, HeldMessage) and known in self._wheel)

    def _withhold(self, message: HeldMessage) -> None:
        """Keep a message for its cancel: where no pass brings it again, only that it is there."""
        if (message.due_ms, message.sequence) < self._gate():
            if self._undecided.withholds_like(message):
                self._ready.resolutions.append(Resolution(Outcome.DUPLICATE, message))
                return
            self._memory.held_bytes -= message.empty()
        self._undecided.withhold(message)

    def take_back(self, message: HeldMessage) -> None:
        """Let go of a message as if it had not come yet: the gate stands in front of it, and nothing is decided."""
        if self._wheel.cancel(message):
            self._matching.forget(message)
        else:
            self._undecided.take_back(message)

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now, None where it would wait for the gate, or for ever."""
        return 0 if self._can_decide() else self._wheel.next_due_ms()

    def decide(self, now_ms: int) -> None:
        """Decide what the gate has passed, in the order of the intake."""
        while self._can_decide():
            record = self._undecided.pop()
            if type(record) is HeldCancel:
                self._answer(record)
            elif not self._place(record, now_ms):
                self._ready.resolutions.append(Resolution(Outcome.DUPLICATE, record))

    def _can_decide(self) -> bool:
        """Whether all that stands in front of the first undecided record was read: in buckets, and in a replay."""
        first = self._undecided.first()
        return first is not None and first < self._gate() and first[1] < self._known_below()

    def _answer(self, cancel: HeldMessage) -> None:
        """Settle a cancel, behind all that it takes: who takes over finds it as long as it finds any of that."""
        message, *others = self._undecided.taken_by(cancel) or (None,)
        self._ready.resolutions += [Resolution(Outcome.DUPLICATE, other) for other in others]
        self._ready.resolutions.append(
            Resolution(Outcome.CANCEL_TOO_LATE, cancel)
            if message is None
            else Resolution(Outcome.CANCELLED, message, cancel)
        )

    def collect(self, now_ms: int) -> None:
        """Make ready what is due by now."""
        due = self._ready.due
        due.extend(self._wheel.collect(now_ms))
        # What is about to be delivered stays known, however long ago it was due: a cancel must not take one like it.
        self._matching.advance(min(now_ms, self._gate()[0], due[0].due_ms if due else now_ms))

    @property
    def known_bytes(self) -> int:
        """What is taken by knowing messages that are not held any more."""
        return self._matching.size_bytes

    def shed_known(self, limit_bytes: int) -> None:
        """Know no more messages that are not held any more than fit into so many bytes."""
        self._matching.shed(limit_bytes)

    def done(self, batch: Batch) -> None:
        """These were delivered, or are dead."""
        self.let_go(batch.due)
        self.let_go(batch.retired)

    def let_go(self, messages: Iterable[HeldMessage]) -> None:
        """They are held here no more, whatever becomes of them: only their ids are known any more."""
        self._matching.done(messages)

    def close(self) -> None:
        """Let go of what is held: the wheel's rings refer to themselves, and full collections are switched off."""
        self._wheel.close()
