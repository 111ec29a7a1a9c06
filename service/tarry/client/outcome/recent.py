"""The results that were read last, for those who begin to wait when theirs is there already."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping

from tarry.client.outcome.result import Key


class RecentResults:
    """The last results of all partitions, by key, and from which offset on none is missing.

    One thread puts, any may look.

    Args:
        most: how many are kept.
        starts: for each partition the offset from which on results are put.
    """

    def __init__(self, most: int, starts: Mapping[int, int]) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._begins = dict(starts)
        self._by_age: deque[tuple[Key, int]] = deque()
        self._by_key: dict[Key, deque[bytes | None]] = {}

    def put(self, key: Key, offset: int, value: bytes | None) -> None:
        """Keep a result, and forget the oldest where there are too many."""
        with self._lock:
            self._by_age.append((key, offset))
            self._by_key.setdefault(key, deque()).append(value)
            if len(self._by_age) > self._most:
                (oldest, at) = self._by_age.popleft()
                self._begins[oldest[0]] = at + 1
                values = self._by_key[oldest]
                values.popleft()
                if not values:
                    del self._by_key[oldest]

    def of(self, keys: Iterable[Key]) -> list[bytes | None]:
        """The values under some keys, key by key as they came."""
        with self._lock:
            return [value for key in keys for value in self._by_key.get(key, ())]

    def begin(self, partition: int) -> int:
        """The offset from which on nothing of a partition was forgotten."""
        return self._begins[partition]

    def __len__(self) -> int:
        return len(self._by_age)
