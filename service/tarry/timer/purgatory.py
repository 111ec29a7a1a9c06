"""Kafka's purgatory: operations wait for events, each at most for its delay.

A caller that must wait, for example for a response, creates an operation and watches it under the keys of the events
that may complete it. The thread that causes such an event calls `check_and_complete` with the event's key. If no event
completes the operation, it expires: it is also in a timing wheel, which removes it in O(1) if an event comes first, the
usual case.

    purgatory.try_complete_else_watch(operation, "answer-7", "answer-8")    it waits: watched 2, delayed 1
    purgatory.check_and_complete("answer-7")                                completes it: watched 1, delayed 0
    purgatory.check_and_complete("answer-8")                                finds it settled: watched 0

The list of "answer-8" does not notice that its operation is settled. If no event comes for such a key, the entry is
*purged*: the reaper sweeps all keys once there are enough settled operations.

No event is missed: after an operation is in the lists of its keys, `try_complete` is called once more. A later event
finds it in a list; an earlier event has changed the result of that call.

Two things differ from Kafka's purgatory. First, this one counts the settled operations in its lists, while Kafka's
counts all operations since the last purge that do not wait. So the usual case, an event that removes its operation from
its only list, does not bring a purge closer, and no purge sweeps lists without settled operations. Second, cancelling
settles an operation under all its keys in the same atomic step as a completion, so that it is either cancelled or
completed.

Source: Kafka's `DelayedOperationPurgatory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Self

from tarry.timer.reaper import Reaper
from tarry.timer.watchers import Operation, Watchers

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import TracebackType

    from tarry.timer.timer import Timer

PURGE_INTERVAL: Final = 1_000
"""How many settled operations the lists may hold before a purge, as in Kafka."""


class DelayedOperationPurgatory(Generic[Operation]):
    """Waiting operations, by key and by time. Thread-safe.

    Operations expire only while `advance_clock` is called. From `start` to `shutdown`, or in a `with` block, the
    purgatory's own thread calls it.

    `try_complete` and `on_complete` run in the thread that calls `check_and_complete`: that thread must not hold a lock
    that they take.

    Args:
        name: the name of its threads.
        timer: a timer for this purgatory only, which shuts it down; its executor completes expired operations.
        purge_interval: how many settled operations the lists may hold before a purge. The limit is a quarter of the
            waiting operations if that is more, and 0 if none wait.
    """

    def __init__(self, name: str, timer: Timer, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers = Watchers[Operation]()
        self._reaper = Reaper(self, name=f"expired operation reaper {name}")

    def try_complete_else_watch(self, operation: Operation, key: Hashable, *keys: Hashable) -> bool:
        """Complete an operation if it can be completed now; otherwise let it wait for its keys and its delay.

        Args:
            operation: an operation that was in no purgatory before.
            key: the key to watch it under.
            keys: more keys to watch it under.

        Returns:
            Whether this call completed it. False: it waits, or another thread has settled it.

        Raises:
            RuntimeError: the purgatory has been shut down. The operation is withdrawn.
        """
        if operation.maybe_try_complete():
            return True
        if operation.is_settled:
            return False
        self._watchers.watch(operation, (key, *keys))
        try:
            return operation.maybe_try_complete()
        finally:
            self._limit(operation)

    def check_and_complete(self, key: Hashable) -> int:
        """Complete the operations under a key that can be completed. Call it after the event has happened.

        Returns:
            The number of operations that this call completed.

        Raises:
            ExceptionGroup: the exceptions of operations; raised after all operations under the key were tried.
        """
        completed = 0
        errors = []
        watching = self._watchers.watching(key)
        for operation in watching:
            try:
                completed += operation.maybe_try_complete()
            except Exception as error:  # noqa: BLE001 - raised below, after the other operations were tried
                errors.append(error)
        if watching:
            self._watchers.sweep(key)
        if errors:
            raise ExceptionGroup(f"{len(errors)} of the operations under {key!r} failed", errors)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Withdraw the operations under a key; this settles them under their other keys, too.

        Returns:
            The withdrawn operations, in the order of arrival.
        """
        return [operation for operation in self._watchers.remove(key) if operation.withdraw()]

    def advance_clock(self, timeout_ms: int) -> bool:
        """Hand expired operations to the timer's executor, waiting up to `timeout_ms` for one; purge if necessary.

        Returns:
            Whether a bucket of the timer expired.
        """
        advanced = self._timer.advance_clock(timeout_ms)
        # A purge checks all entries: with a share of them as the limit, that is O(1) for each settled operation. If
        # none wait, it checks settled ones only; a few scattered ones could keep much memory from being freed.
        delayed = self._timer.size()
        bound = max(self._purge_interval, delayed // 4) if delayed else 0
        if self._watchers.leftovers() > bound:
            self._watchers.purge()
        return advanced

    def watched(self) -> int:
        """Return the number of entries in the lists, one for each key of each operation; settled ones until a purge."""
        return self._watchers.entries()

    def delayed(self) -> int:
        """Return the number of waiting operations."""
        return self._timer.size()

    def start(self) -> None:
        """Start the thread that expires operations.

        Raises:
            RuntimeError: it was started before.
        """
        self._reaper.start()

    def shutdown(self) -> None:
        """Stop the threads, and wait for them. Waiting operations stay as they are. May be called repeatedly.

        An operation must not call it.
        """
        self._reaper.shutdown()
        self._timer.shutdown()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _limit(self, operation: Operation) -> None:
        """Add an operation to the timer, so that it expires when its delay is over."""
        if not operation.is_settled:
            try:
                self._timer.add(operation)
            except RuntimeError:
                operation.withdraw()
                raise
        if operation.is_settled:  # perhaps just before the add, when it was not in the timer yet
            operation.cancel()
