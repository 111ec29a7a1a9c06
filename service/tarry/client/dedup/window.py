"""A window of ids, bounded in number and in time: has this one been handled already?"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class DedupWindow(Generic[Key]):
    """Remembers keys, the last `most` of them, each for `keep_ms`.

    A key counts from when it was added first: adding it again while it is known does nothing. What is beyond either
    bound is forgotten, oldest first. Each call costs O(1), over all calls.

    Memory: about 150 bytes a key where keys are UUIDs as 128-bit integers (measured with CPython 3.11 on x86-64: 130 to
    150), so 150 MB for a million; for a moment a fifth more, while the table grows.

    It reads no clock. For one thread.

    Example:
        window = DedupWindow(most=2, keep_ms=1_000)
        window.add("a", 0), window.add("b", 10), window.add("c", 20)
        window.knows("a", 20)     # False: there was room for two
        window.knows("b", 1_009)  # True
        window.knows("b", 1_010)  # False: its second is over

    Args:
        most: how many keys, at least 1.
        keep_ms: how long each is remembered, at least 1.

    Raises:
        ValueError: a bound is less than 1.
    """

    def __init__(self, most: int, keep_ms: int) -> None:
        if most < 1 or keep_ms < 1:
            raise ValueError(f"most and keep_ms: at least 1: {most}, {keep_ms}")
        self._most = most
        self._keep_ms = keep_ms
        self._added_ms: dict[Key, int] = {}
        # Beside the dict: to take the oldest key from a dict means to step over all that were deleted before it.
        self._oldest: deque[Key] = deque()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._oldest)

    def knows(self, key: Key, now_ms: int) -> bool:
        """Tell whether a key was added, and is not forgotten.

        Args:
            key: to look for.
            now_ms: from any start; a time before that of an earlier call counts as that.
        """
        self._forget(now_ms)
        return key in self._added_ms

    def add(self, key: Key, now_ms: int) -> bool:
        """Remember a key.

        Args:
            key: to remember.
            now_ms: as in `knows`.

        Returns:
            Whether it was not known.
        """
        self._forget(now_ms)
        if key in self._added_ms:
            return False
        if len(self._oldest) == self._most:
            del self._added_ms[self._oldest.popleft()]
        self._added_ms[key] = self._now_ms
        self._oldest.append(key)
        return True

    def _forget(self, now_ms: int) -> None:
        self._now_ms = now_ms = max(now_ms, self._now_ms)
        while self._oldest and self._added_ms[self._oldest[0]] + self._keep_ms <= now_ms:
            del self._added_ms[self._oldest.popleft()]
