"""The results that were read last, for callers that begin to wait when their result is already there."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping

from tarry.client.outcome.result import OutcomeKey


class RecentResults:
    """The last results of all partitions by key, and for each partition the offset from which all are remembered.

    One thread calls `put`; any thread may read.

    Args:
        most: the most results to remember.
        starts: for each partition of the results, the offset of the first `put`.
    """

    def __init__(self, most: int, starts: Mapping[int, int]) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._begins = dict(starts)
        self._by_age: deque[tuple[OutcomeKey, int]] = deque()
        self._by_key: dict[OutcomeKey, deque[bytes | None]] = {}

    def put(self, key: OutcomeKey, offset: int, value: bytes | None) -> None:
        """Remember a result, and forget the oldest if there are too many."""
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

    def of(self, keys: Iterable[OutcomeKey]) -> list[bytes | None]:
        """Return the values under some keys, those of a key in the order of arrival."""
        with self._lock:
            return [value for key in keys for value in self._by_key.get(key, ())]

    def begin(self, partition: int) -> int:
        """Return the offset of a partition from which no result was forgotten."""
        return self._begins[partition]

    def __len__(self) -> int:
        return len(self._by_age)
