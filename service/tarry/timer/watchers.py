"""The watch lists of a purgatory: the operations under each key.

A list is only swept as a whole: an operation that was settled otherwise than through this key stays in the list until
the key is swept next. Those entries are the leftovers that a purgatory purges. Each operation reports when it is
settled, so their number is always known.

Kafka spreads the keys over 512 locks. In an interpreter that runs one thread at a time this gains nothing
(`docs/performance.md`): here one lock is held for one key at a time, and never while code of an operation runs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tarry.timer.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Hashable

Operation = TypeVar("Operation", bound=DelayedOperation)


class Watchers(Generic[Operation]):
    """Operations by key, each under one or more keys, those of a key in the order of arrival. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[Hashable, list[Operation]] = {}
        self._entries = 0
        self._leftovers = 0

    def watch(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        """Add an operation to the lists of its keys, in one atomic step."""
        with self._lock:
            for key in keys:
                watching = self._by_key.get(key)
                if watching is None:
                    self._by_key[key] = [operation]
                else:
                    watching.append(operation)
            operation.watchers = self
            operation.watched_by = len(keys)
            self._entries += len(keys)
            if operation.is_settled:  # perhaps before its `watchers` was set
                self._count_left_over(operation)

    def watching(self, key: Hashable) -> list[Operation]:
        """Return the operations under a key now."""
        with self._lock:
            return list(self._by_key.get(key, ()))

    def remove(self, key: Hashable) -> list[Operation]:
        """Remove all operations from a key's list; they stay in the lists of their other keys."""
        with self._lock:
            removed = self._by_key.pop(key, [])
            for operation in removed:
                self._let_go(operation)
            return removed

    def sweep(self, key: Hashable) -> int:
        """Remove the settled operations from a key's list, and the key if its list is empty. O(entries of the key).

        Returns:
            The number of removed entries.
        """
        with self._lock:
            watching = self._by_key.get(key)
            if watching is None:
                return 0
            kept = []
            for operation in watching:
                if operation.is_settled:
                    self._let_go(operation)
                else:
                    kept.append(operation)
            if kept:
                self._by_key[key] = kept
            else:
                del self._by_key[key]
            return len(watching) - len(kept)

    def purge(self) -> int:
        """Sweep every key, one at a time; other threads can use the lists in between.

        Returns:
            The number of removed entries.
        """
        with self._lock:
            keys = list(self._by_key)
        purged = sum(map(self.sweep, keys))
        with self._lock:
            if not self._by_key:
                self._by_key.clear()  # an emptied dict keeps its memory until it is cleared
        return purged

    def entries(self) -> int:
        """Return the number of entries in all lists, settled ones included. O(1)."""
        return self._entries

    def leftovers(self) -> int:
        """Return the number of settled operations that are still in a list. O(1)."""
        return self._leftovers

    def tell_settled(self, operation: Operation) -> None:
        """Count an operation that has just been settled, if it is still in a list."""
        with self._lock:
            if operation.watched_by:
                self._count_left_over(operation)

    def _count_left_over(self, operation: Operation) -> None:
        """Count an operation once as a leftover. The caller holds the lock."""
        if not operation.is_left_over:
            operation.is_left_over = True
            self._leftovers += 1

    def _let_go(self, operation: Operation) -> None:
        """Count an operation out of one list. The caller holds the lock."""
        self._entries -= 1
        operation.watched_by -= 1
        if operation.is_left_over and not operation.watched_by:
            operation.is_left_over = False
            self._leftovers -= 1
