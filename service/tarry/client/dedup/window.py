"""A window of known keys, bounded in number and in time."""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class DedupWindow(Generic[Key]):
    """Remembers the last `most` keys, each for `keep_ms`.

    The time of a key runs from its first `add`; adding it again while it is known does nothing. Keys beyond either
    bound are forgotten, oldest first. Each call costs amortised O(1).

    Memory: about 150 bytes for a key that is a UUID as a 128-bit integer (130 to 150, measured with CPython 3.11 on
    x86-64), so 150 MB for a million keys; briefly a fifth more while the table grows.

    It reads no clock. Not thread-safe.

    Example:
        window = DedupWindow(most=2, keep_ms=1_000)
        window.add("a", 0), window.add("b", 10), window.add("c", 20)
        window.knows("a", 20)     # False: the window has room for two keys
        window.knows("b", 1_009)  # True
        window.knows("b", 1_010)  # False: 1,000 ms have passed

    Args:
        most: the most keys to remember, at least 1.
        keep_ms: how long to remember each, at least 1.

    Raises:
        ValueError: a bound is less than 1.
    """

    def __init__(self, most: int, keep_ms: int) -> None:
        if most < 1 or keep_ms < 1:
            raise ValueError(f"most and keep_ms: must be at least 1: {most}, {keep_ms}")
        self._most = most
        self._keep_ms = keep_ms
        self._added_ms: dict[Key, int] = {}
        # Not only the dict: finding the oldest key of a dict steps over all keys deleted before it.
        self._oldest: deque[Key] = deque()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._oldest)

    def knows(self, key: Key, now_ms: int) -> bool:
        """Return whether a key was added and is not forgotten.

        Args:
            key: the key.
            now_ms: the time, from any origin; a time before that of an earlier call counts as the earlier call's.
        """
        self._forget(now_ms)
        return key in self._added_ms

    def add(self, key: Key, now_ms: int) -> bool:
        """Remember a key.

        Args:
            key: the key.
            now_ms: as in `knows`.

        Returns:
            Whether the key was new.
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
