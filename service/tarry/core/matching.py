"""Cancels that meet their messages, and messages that come a second time.

A cancel is placed by its handle's due time, as its message was: so the two meet in the hot window at the latest,
whichever came first and through whatever buckets. And a second message with the same id and due time is known for one,
while the first is in the hot window and for some time after it was due. No index of all that waits is kept: only of
what is in memory anyway, by the second in which it is due.

    admitted      known already            then
    message       -                        held
    message       its cancel               both are done: cancelled
    message       one like it              done: a duplicate
    cancel        its message, in the wheel    both are done: cancelled
    cancel        -                        held; due without having met anything, it came too late
"""

from collections.abc import Iterable

from tarry.core.message import HeldCancel, HeldMessage

SLICE_MS = 1_000
MOST_KNOWN = 1_000_000
"""Beyond so many, those that were due long ago are forgotten first."""

_Key = bytes | tuple[bytes, int]


class Matching:
    """What is known of the messages and cancels of one partition's hot window.

    Args:
        keep_ms: how long a message is known after its due time.
    """

    __slots__ = ("_cancels", "_keep_ms", "_slices")

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._slices: dict[int, dict[_Key, HeldMessage | int]] = {}
        self._cancels: dict[tuple[bytes, int], HeldCancel] = {}

    def cancel_of(self, message: HeldMessage) -> HeldCancel | None:
        """The cancel that waits for a message, once."""
        return self._cancels.pop((message.id, message.due_ms), None) if self._cancels else None

    def remember(self, message: HeldMessage) -> bool:
        """Know a message from now on; False where one like it is known already."""
        due_ms, id_ = message.due_ms, message.id
        known = self._slices.get(due_ms // SLICE_MS)
        if known is None:
            known = self._slices[due_ms // SLICE_MS] = {}
        first = known.setdefault(id_, message)
        if first is message:
            return True
        if _due_ms(first) == due_ms:
            return False
        # The same id at another time, within a second.
        return known.setdefault((id_, due_ms), message) is message

    def message_of(self, cancel: HeldCancel) -> HeldMessage | None:
        """The message that a cancel is for, if it is known and not done."""
        known = self._slices.get(cancel.due_ms // SLICE_MS, {})
        for key in (cancel.id, (cancel.id, cancel.due_ms)):
            found = known.get(key)
            if isinstance(found, HeldMessage) and found.due_ms == cancel.due_ms:
                return found
        return None

    def forget(self, message: HeldMessage) -> None:
        """A message was cancelled: one like it may come anew."""
        known = self._slices.get(message.due_ms // SLICE_MS, {})
        for key in (message.id, (message.id, message.due_ms)):
            if known.get(key) is message:
                del known[key]

    def wait(self, cancel: HeldCancel) -> None:
        """Have a cancel wait for its message; of several for one message the first."""
        self._cancels.setdefault((cancel.id, cancel.due_ms), cancel)

    def expire(self, cancel: HeldCancel) -> None:
        """A cancel is due, and waits no longer."""
        if self._cancels.get((cancel.id, cancel.due_ms)) is cancel:
            del self._cancels[cancel.id, cancel.due_ms]

    def done(self, messages: Iterable[HeldMessage]) -> None:
        """These are delivered: they are known by id and due time alone."""
        for message in messages:
            due_ms = message.due_ms
            known = self._slices.get(due_ms // SLICE_MS)
            if known is not None:
                key: _Key = message.id if known.get(message.id) is message else (message.id, due_ms)
                if key in known:
                    known[key] = due_ms

    def advance(self, now_ms: int) -> None:
        """Forget what was due too long ago."""
        if not self._slices:
            return
        last = (now_ms - self._keep_ms) // SLICE_MS
        first = min(self._slices)
        if first < last:
            for slice_ in [slice_ for slice_ in self._slices if slice_ < last]:
                del self._slices[slice_]
        elif first < now_ms // SLICE_MS and sum(map(len, self._slices.values())) > MOST_KNOWN:
            del self._slices[first]


def _due_ms(known: HeldMessage | int) -> int:
    return known if isinstance(known, int) else known.due_ms
