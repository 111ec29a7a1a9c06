"""Which messages of the hot window are known, so that a second one with the same id and due time is noticed.

A message is known from when it is in the hot window until some time after it was due. No index of all that waits is
kept: only of what is in memory anyway, by the second in which it is due, and of what was delivered a moment ago.
"""

from collections.abc import Iterable

from tarry.core.message import HeldMessage

SLICE_MS = 1_000

DONE_BYTES = 120
"""What is taken by knowing a message that is done, or not held whole: its id, and its place in the index. Measured."""

_MOMENTS = tuple(range(SLICE_MS))
"""When in its slice something was due: shared by all, or each would have a number of its own."""

_Key = bytes | tuple[bytes, int]


class Matching:
    """What is known of the messages of one partition's hot window.

    Args:
        keep_ms: how long a message is known after its due time.
    """

    __slots__ = ("_done", "_done_count", "_keep_ms", "_slices")

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._slices: dict[int, dict[_Key, HeldMessage | int]] = {}
        self._done: dict[int, int] = {}
        """How many of each slice are done."""
        self._done_count = 0

    @property
    def size_bytes(self) -> int:
        """What those take that are done; one that is held counts as a message does."""
        return DONE_BYTES * self._done_count

    def remember(self, message: HeldMessage) -> bool:
        """Know a message from now on; False where one like it is known already."""
        due_ms, id_ = message.due_ms, message.id
        known = self._slices.get(due_ms // SLICE_MS)
        if known is None:
            known = self._slices[due_ms // SLICE_MS] = {}
        if (id_, due_ms) in known:  # whatever has become of the one that came before it
            return False
        first = known.setdefault(id_, message)
        if first is message:
            return True
        if _moment(first) == due_ms % SLICE_MS:
            return False
        # The same id at another time, within a second.
        known[id_, due_ms] = message
        return True

    def like(self, record: HeldMessage) -> HeldMessage | int | None:
        """What is known with the id and the due time of a message or a cancel; of a message that is done a number."""
        known = self._slices.get(record.due_ms // SLICE_MS, {})
        for key in (record.id, (record.id, record.due_ms)):
            found = known.get(key)
            if found is not None and _moment(found) == record.due_ms % SLICE_MS:
                return found
        return None

    def forget(self, message: HeldMessage) -> None:
        """A message was cancelled: one like it may come anew."""
        known = self._slices.get(message.due_ms // SLICE_MS, {})
        for key in (message.id, (message.id, message.due_ms)):
            if known.get(key) is message:
                del known[key]

    def done(self, messages: Iterable[HeldMessage]) -> None:
        """These are delivered, or their places alone are kept: they are known by id and due time alone."""
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
        """Forget what was due too long ago."""
        if not self._slices:
            return
        last = (now_ms - self._keep_ms) // SLICE_MS
        if min(self._slices) < last:
            for slice_ in [slice_ for slice_ in self._slices if slice_ < last]:
                del self._slices[slice_]
                self._done_count -= self._done.pop(slice_, 0)

    def shed(self, limit_bytes: int) -> None:
        """Keep no more of those that are done than fit into so many bytes: what was due first is forgotten first."""
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
    """When in its slice it was due."""
    return known if isinstance(known, int) else known.due_ms % SLICE_MS
