"""What a partition holds in memory because it is due soon.

Here messages meet their cancels, and others like them, at the latest: what comes of that needs no delivery. All others
wait in the wheel until they are due.
"""

from collections.abc import Callable

from tarry.core.batch import Batch, Outcome
from tarry.core.gated_wheel import GatedWheel
from tarry.core.matching import Matching
from tarry.core.message import HeldCancel, HeldMessage
from tarry.core.passes import Key
from tarry.core.ready import Ready
from tarry.headers import Outcome as Result
from tarry.timer import TimingWheel


class HotWindow:
    """The messages of one partition that are due soon.

    Args:
        gate: what stands at it or behind it, by due time and offset in the intake, does not fire.
        new_wheel: makes an empty wheel that starts at a time.
        ready: takes what is due, and what needs no delivery.
        keep_ms: how long a message is known after its due time, so that one like it is a duplicate.
        now_ms: wall time.
    """

    __slots__ = ("_gate", "_matching", "_ready", "_wheel")

    def __init__(
        self,
        gate: Callable[[], Key],
        new_wheel: Callable[[int], TimingWheel],
        ready: Ready,
        keep_ms: int,
        now_ms: int,
    ) -> None:
        self._gate = gate
        self._ready = ready
        self._wheel = GatedWheel(gate, new_wheel, ready.due, now_ms)
        self._matching = Matching(keep_ms)

    def __len__(self) -> int:
        return len(self._wheel)

    def hold(self, message: HeldMessage, now_ms: int) -> None:
        """Take in what is due soon, unless it meets its cancel, or its message, or one like it is known."""
        matching = self._matching
        if type(message) is HeldCancel:
            cancelled = matching.message_of(message)
            if cancelled is not None and self._wheel.cancel(cancelled):
                matching.forget(cancelled)
                self._ready.outcomes.append(Outcome(Result.CANCELLED, cancelled, message))
                return
            matching.wait(message)
        else:
            cancel = matching.cancel_of(message)
            if cancel is not None and self._wheel.cancel(cancel):
                self._ready.outcomes.append(Outcome(Result.CANCELLED, message, cancel))
                return
            if not matching.remember(message):
                self._ready.outcomes.append(Outcome(Result.DUPLICATE, message))
                return
        self._wheel.hold(message, now_ms)

    def take_back(self, message: HeldMessage) -> bool:
        """Let go of a message as if it had not come yet; False where it met its cancel, or was known."""
        if not self._wheel.cancel(message):
            return False
        self._matching.forget(message)
        return True

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now, None where it would wait for the gate, or for ever."""
        return self._wheel.next_due_ms()

    def collect(self, now_ms: int) -> None:
        """Make ready what is due by now; a cancel that is due has found nothing."""
        due = self._wheel.collect(now_ms)
        if due:
            if any(type(message) is HeldCancel for message in due):
                due = [message for message in due if not self._is_too_late(message)]
            self._ready.due.extend(due)
        self._matching.advance(min(now_ms, self._gate()[0]))

    def _is_too_late(self, message: HeldMessage) -> bool:
        if type(message) is not HeldCancel:
            return False
        self._matching.expire(message)
        self._ready.outcomes.append(Outcome(Result.CANCEL_TOO_LATE, message))
        return True

    def done(self, batch: Batch) -> None:
        """These were delivered, or are dead: only their ids are known any more."""
        self._matching.done(batch.due)
        self._matching.done(batch.retired)

    def close(self) -> None:
        """Let go of what is held: the wheel's rings refer to themselves, and full collections are switched off."""
        self._wheel.close()
