"""Kafka's purgatory: where operations wait for an event of theirs, each no longer than its delay.

Somebody who has to wait for something, an answer for example, makes an operation of it, and has it watched under
the keys of the events that may complete it. Whoever brings such an event about calls `check_and_complete` with its
key. What no event completes expires: it stands in a timing wheel, which takes it out in O(1) where an event came
first, as it mostly does.

    purgatory.try_complete_else_watch(operation, "answer-7", "answer-8")    it waits: watched 2, delayed 1
    purgatory.check_and_complete("answer-7")                                completes it: watched 1, delayed 0
    purgatory.check_and_complete("answer-8")                                finds it settled: watched 0

Nothing tells "answer-8" that its operation is settled. Where no event comes to such a key, the entry is *purged*:
the reaper sweeps all keys once there are enough of them.

No event is missed: an operation is asked whether it can be completed once more after it stands under its keys. An
event from then on finds it there; one before that has changed the answer.

Two things differ from Kafka's purgatory. It knows how many settled operations its lists hold, where Kafka's counts all
that came since the last purge and do not wait: so an event that takes its operation out of its only list, the usual
case, brings no purge closer, and no herd that waits to be completed is looked for in vain. And what is cancelled is
settled, under all of its keys, in the same step in which a completion would be: so it is one or the other.

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
"""How many settled operations may stand in the lists, as in Kafka."""


class DelayedOperationPurgatory(Generic[Operation]):
    """Operations that wait, by key and by time. Safe for any number of threads.

    Operations expire while somebody calls `advance_clock`: from `start` to `shutdown`, or for a `with` block, a
    thread of the purgatory's own does.

    Call `check_and_complete` with no lock held that `try_complete` or `on_complete` of an operation takes: they run
    in the thread that calls.

    Args:
        name: of its threads.
        timer: the purgatory's alone, which also shuts it down; expired operations are completed on its executor.
        purge_interval: how many settled operations may stand in the lists before they are purged; a quarter of
            those that wait, where that is more, and none where nothing waits.
    """

    def __init__(self, name: str, timer: Timer, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers = Watchers[Operation]()
        self._reaper = Reaper(self, name=f"expired operation reaper {name}")

    def try_complete_else_watch(self, operation: Operation, key: Hashable, *keys: Hashable) -> bool:
        """Complete an operation where it can be at once; else let it wait for its keys and its delay.

        Args:
            operation: one that was in no purgatory before.
            key: what it is watched under.
            keys: what else it is watched under.

        Returns:
            Whether this call has completed it. False: it waits, or another thread has settled it.

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
        """Complete what waits for a key and can be completed: to be called after the event has come to pass.

        Returns:
            How many this call has completed.

        Raises:
            ExceptionGroup: what operations raised, once all of them were asked.
        """
        completed = 0
        errors = []
        watching = self._watchers.watching(key)
        for operation in watching:
            try:
                completed += operation.maybe_try_complete()
            except Exception as error:  # noqa: BLE001 - raised below: whatever one raises, the next must be asked
                errors.append(error)
        if watching:
            self._watchers.sweep(key)
        if errors:
            raise ExceptionGroup(f"{len(errors)} of the operations under {key!r} failed", errors)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[Operation]:
        """Withdraw what waits for a key: nothing becomes of it, under its other keys neither.

        Returns:
            What was withdrawn, in the order in which it came.
        """
        return [operation for operation in self._watchers.remove(key) if operation.withdraw()]

    def advance_clock(self, timeout_ms: int) -> bool:
        """Hand what expires to the timer's executor, waiting up to `timeout_ms` for that; purge where it is time to.

        Returns:
            Whether a bucket of the timer expired.
        """
        advanced = self._timer.advance_clock(timeout_ms)
        # A purge looks at all that is watched: with a share of it as the bound that is O(1) for each one settled. Where
        # nothing waits it looks at leftovers only, and some of them, scattered, could keep all memory from being freed.
        delayed = self._timer.size()
        bound = max(self._purge_interval, delayed // 4) if delayed else 0
        if self._watchers.leftovers() > bound:
            self._watchers.purge()
        return advanced

    def watched(self) -> int:
        """How many times operations stand under keys: one for each key of each, settled ones until they are purged."""
        return self._watchers.entries()

    def delayed(self) -> int:
        """How many operations wait."""
        return self._timer.size()

    def start(self) -> None:
        """Begin to let operations expire.

        Raises:
            RuntimeError: it has been started before.
        """
        self._reaper.start()

    def shutdown(self) -> None:
        """End, and wait for the threads. What still waits stays as it is; harmless when repeated.

        Not to be called by an operation.
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
        """Let an operation expire when its delay is over."""
        if not operation.is_settled:
            try:
                self._timer.add(operation)
            except RuntimeError:
                operation.withdraw()
                raise
        if operation.is_settled:  # perhaps just before the add, when there was nothing in the timer to take out
            operation.cancel()
