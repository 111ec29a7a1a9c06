"""Who waits for which key: the lists of a purgatory.

A list is looked through, never searched: an operation that was completed by other means than this key stays in it
until the key is next swept. Those are the leftovers that a purgatory purges. Each operation tells when it is settled,
so how many there are is known at any time.

Kafka spreads the keys over 512 locks. Where one interpreter runs one thread at a time that gains nothing
(`docs/performance.md`): one lock is held for one key at a time, and never while code of an operation runs.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tarry.timer.delayed_operation import DelayedOperation

if TYPE_CHECKING:
    from collections.abc import Hashable

Operation = TypeVar("Operation", bound=DelayedOperation)


class Watchers(Generic[Operation]):
    """Operations by key, each under one key or more, those of a key as they came. Safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[Hashable, list[Operation]] = {}
        self._entries = 0
        self._leftovers = 0

    def watch(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        """Put an operation under each of the keys, in one step."""
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
            if operation.is_settled:  # perhaps before it knew whom to tell
                self._count_left_over(operation)

    def watching(self, key: Hashable) -> list[Operation]:
        """Those under a key at this moment."""
        with self._lock:
            return list(self._by_key.get(key, ()))

    def remove(self, key: Hashable) -> list[Operation]:
        """Take all that are under a key from there; they stay under their other keys."""
        with self._lock:
            removed = self._by_key.pop(key, [])
            for operation in removed:
                self._let_go(operation)
            return removed

    def sweep(self, key: Hashable) -> int:
        """Take those that are settled from a key, and the key away where it has no others. O(those of the key).

        Returns:
            How many there were.
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
        """Sweep every key, one at a time: others get at the lists in between.

        Returns:
            How many entries are gone.
        """
        with self._lock:
            keys = list(self._by_key)
        purged = sum(map(self.sweep, keys))
        with self._lock:
            if not self._by_key:
                self._by_key.clear()  # an empty dict keeps the room that it had
        return purged

    def entries(self) -> int:
        """How many times operations stand under keys, the settled ones among them. O(1)."""
        return self._entries

    def leftovers(self) -> int:
        """How many settled operations stand under any key. O(1)."""
        return self._leftovers

    def tell_settled(self, operation: Operation) -> None:
        """Count an operation that has just been settled, where it is still under a key."""
        with self._lock:
            if operation.watched_by:
                self._count_left_over(operation)

    def _count_left_over(self, operation: Operation) -> None:
        """Count an operation once as a leftover. Needs the lock."""
        if not operation.is_left_over:
            operation.is_left_over = True
            self._leftovers += 1

    def _let_go(self, operation: Operation) -> None:
        """Count an operation out of one list. Needs the lock."""
        self._entries -= 1
        operation.watched_by -= 1
        if operation.is_left_over and not operation.watched_by:
            operation.is_left_over = False
            self._leftovers -= 1
