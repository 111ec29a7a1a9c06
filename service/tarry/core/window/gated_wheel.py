"""The timing wheel of one partition. It does not pass the gate, and it goes back when the clock steps back.

**Gate**: a key of (due time, offset). A message at the gate or after it must not fire yet, because a message that is
still unread, in a bucket or in the part of the intake that a take-over replays, or that was passed over there, may come
before it.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import cast

from tarry.core.message import BY_DUE, NEVER_MS, HeldMessage, OrderKey, order_key
from tarry.timer import TimingWheel


class GatedWheel:
    """The messages that are due soon.

    Args:
        gate: returns the gate: messages at this key or a higher one do not fire.
        new_wheel: makes an empty timing wheel that starts at a given time.
        ready: messages that are due and not taken yet, in order. They are held again if the clock steps back.
        now_ms: wall time.
    """

    def __init__(
        self,
        gate: Callable[[], OrderKey],
        new_wheel: Callable[[int], TimingWheel],
        ready: deque[HeldMessage],
        now_ms: int,
    ) -> None:
        self._gate = gate
        self._new_wheel = new_wheel
        self._now_ms = now_ms
        self._wheel = new_wheel(self._gated(now_ms))
        self._late: dict[int, HeldMessage] = {}
        self._ready = ready

    def __len__(self) -> int:
        return len(self._wheel) + len(self._late)

    def __contains__(self, message: HeldMessage) -> bool:
        return message.bucket is not None or message.sequence in self._late

    def hold(self, message: HeldMessage, now_ms: int) -> None:
        """Take in a message."""
        if self._wheel.add(message):
            return
        if message.due_ms > now_ms:
            self._turn_back(now_ms)
            if self._wheel.add(message):
                return
        # Due now, or within the current tick: such a due time was rounded to a tick of another size, configured before.
        self._late[message.sequence] = message

    def cancel(self, message: HeldMessage) -> bool:
        """Take a message out of the wheel; return False if `collect` has already returned it."""
        return self._wheel.cancel(message) or self._late.pop(message.sequence, None) is not None

    def first_due_ms(self) -> int | None:
        """Return the earliest due time of the messages that are held and did not fire yet; None if there is none."""
        dues = [message.due_ms for message in self._late.values()]
        dues += [message.due_ms for message in islice(self._ready, 1)]
        if (next_ms := self._wheel.next_due_ms) is not None:
            dues.append(next_ms)
        return min(dues, default=None)

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now; None if it has nothing before the gate moves."""
        gate = self._gate()
        if self._ready or (self._late and any(order_key(message) < gate for message in self._late.values())):
            return 0
        due_ms = self._wheel.next_due_ms
        return due_ms if due_ms is not None and (due_ms, 0) < gate else None

    def collect(self, now_ms: int) -> list[HeldMessage]:
        """Take out the messages that are due now and before the gate; return them in order."""
        if now_ms < self._now_ms:
            self._turn_back(now_ms)
        self._now_ms = now_ms
        due = cast("list[HeldMessage]", self._wheel.advance(self._gated(now_ms)))
        if self._late:
            due = sorted([*due, *self._late.values()], key=BY_DUE)
            self._late = {}
        gate = self._gate()
        if due and order_key(due[-1]) >= gate:  # messages with the gate's due time may be after it by their offset
            self._late = {message.sequence: message for message in due if order_key(message) >= gate}
            due = [message for message in due if order_key(message) < gate]
        return due

    def close(self) -> None:
        """Free the messages: the wheel's rings are reference cycles, and full garbage collections are switched off."""
        self._wheel.close()

    def _gated(self, now_ms: int) -> int:
        due_ms, sequence = self._gate()
        return max(0, min(now_ms, due_ms if sequence >= 0 else due_ms - 1))

    def _turn_back(self, now_ms: int) -> None:
        """Hold again all messages that are not due by the new time: the clock stepped back."""
        self._now_ms = now_ms
        waiting = cast("list[HeldMessage]", self._wheel.advance(NEVER_MS))
        messages = [*self._ready, *self._late.values(), *waiting]
        messages.sort(key=BY_DUE)
        self._ready.clear()
        self._wheel.close()
        self._wheel = self._new_wheel(self._gated(now_ms))
        self._late = {message.sequence: message for message in messages if not self._wheel.add(message)}
