"""The index of the hot window by id and due time, so that a duplicate is noticed.

A message is known from its arrival in the hot window until some time after its due time. There is no index of all
waiting messages. The index covers only the messages in memory, by the second in which they are due, and the ids of
messages that were delivered a short time ago.
"""

from collections.abc import Iterable

from tarry.core.message import HeldMessage

SLICE_MS = 1_000
"""The index has one dictionary for the due times of each slice, so that old ones are dropped as a whole."""

DONE_BYTES = 120
"""The memory of the index for a message that is done, or of which only the place is kept: the id and its entry.

Measured.
"""

_MOMENTS: tuple[HeldMessage | int, ...] = tuple(range(SLICE_MS))
"""Milliseconds within a slice, as shared objects: otherwise each entry would have an int object of its own.

Typed as what the index holds: compiled code would read a plain int by value, and make a new object of it.
"""

_Key = bytes | tuple[bytes, int]
"""The id; or id and due time, if the slice has the same id with another due time."""


class Matching:
    """The known messages of one partition's hot window.

    Args:
        keep_ms: how long a message stays known after its due time.
    """

    __slots__ = ("_done", "_done_count", "_keep_ms", "_slices")

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._slices: dict[int, dict[_Key, HeldMessage | int]] = {}
        self._done: dict[int, int] = {}
        """The number of done messages of each slice."""
        self._done_count = 0

    @property
    def size_bytes(self) -> int:
        """The memory for done messages; messages that are held are counted elsewhere."""
        return DONE_BYTES * self._done_count

    def remember(self, message: HeldMessage) -> bool:
        """Add a message; return False if one with its id and due time is known already."""
        due_ms, id_ = message.due_ms, message.id
        known = self._slices.get(due_ms // SLICE_MS)
        if known is None:
            known = self._slices[due_ms // SLICE_MS] = {}
        if (id_, due_ms) in known:  # also if that one is done
            return False
        first = known.setdefault(id_, message)
        if first is message:
            return True
        if _moment(first) == due_ms % SLICE_MS:
            return False
        # The same id with another due time in the same slice.
        known[id_, due_ms] = message
        return True

    def find(self, record: HeldMessage) -> HeldMessage | int | None:
        """Return the known message with the id and due time of a message or cancel; a number if it is done."""
        return self.known(record.id, record.due_ms)

    def known(self, id_: bytes, due_ms: int) -> HeldMessage | int | None:
        """Return the known message with an id and a due time; a number if it is done."""
        known = self._slices.get(due_ms // SLICE_MS, {})
        for key in (id_, (id_, due_ms)):
            found = known.get(key)
            if found is not None and _moment(found) == due_ms % SLICE_MS:
                return found
        return None

    def forget(self, message: HeldMessage) -> None:
        """Remove a message, because it was cancelled or taken back: a new one with its id and due time may come."""
        known = self._slices.get(message.due_ms // SLICE_MS, {})
        for key in (message.id, (message.id, message.due_ms)):
            if known.get(key) is message:
                del known[key]

    def forget_done(self, id_: bytes, due_ms: int) -> None:
        """Remove a message that is done: a new one with its id and due time may come."""
        slice_ = due_ms // SLICE_MS
        known = self._slices.get(slice_, {})
        for key in (id_, (id_, due_ms)):
            found = known.get(key)
            if isinstance(found, int) and found == due_ms % SLICE_MS:
                del known[key]
                self._done[slice_] -= 1
                self._done_count -= 1

    def done(self, messages: Iterable[HeldMessage]) -> None:
        """Keep only id and due time of messages that were delivered, or of which only the places are kept."""
        for message in messages:
            due_ms = message.due_ms
            known = self._slices.get(due_ms // SLICE_MS)
            if known is not None:
                key: _Key = message.id if known.get(message.id) is message else (message.id, due_ms)
                if known.get(key) is message:
                    known[key] = _MOMENTS[due_ms % SLICE_MS]
                    self._done[due_ms // SLICE_MS] = self._done.get(due_ms // SLICE_MS, 0) + 1
                    self._done_count += 1

    def advance(self, now_ms: int) -> None:
        """Forget messages that were due more than `keep_ms` ago."""
        if not self._slices:
            return
        last = (now_ms - self._keep_ms) // SLICE_MS
        if min(self._slices) < last:
            for slice_ in [slice_ for slice_ in self._slices if slice_ < last]:
                del self._slices[slice_]
                self._done_count -= self._done.pop(slice_, 0)

    def shed(self, limit_bytes: int) -> None:
        """Remember done messages in at most `limit_bytes`; forget those with the earliest due times."""
        while self._done and self.size_bytes > limit_bytes:
            first = min(self._done)
            self._done_count -= self._done.pop(first)
            known = self._slices.pop(first)
            waiting: dict[_Key, HeldMessage | int] = {
                k: one for k, one in known.items() if isinstance(one, HeldMessage)
            }
            if waiting:
                self._slices[first] = waiting


def _moment(known: HeldMessage | int) -> int:
    """Return the milliseconds of a due time within its slice."""
    return known if isinstance(known, int) else known.due_ms % SLICE_MS
