"""The waiting calls: operations in a purgatory, each with a future.

    caller                                      reader of results
    watch(wanted) -> future                     arrive(key, offset, value)
      1. checks the recent results                1. adds the result to the recent results
      2. is watched under its keys                2. completes the operations watched under its key
      3. checks the recent results again
      4. searches the log for results that
         were forgotten before step 3

So one of these steps sees each result that is written after the message: step 2 on the right, if the result arrives
after step 2 on the left; step 3 on the left, if it arrived earlier and is still remembered; step 4 otherwise.
"""

import math
import threading
from concurrent.futures import Future

from tarry.client.outcome.recent import RecentResults
from tarry.client.outcome.result import OutcomeKey, Result, Wanted
from tarry.clock import Clock
from tarry.errors import FatalError, TarryError
from tarry.timer import DelayedOperation, DelayedOperationPurgatory, SystemTimer

_NO_LIMIT_MS = 100 * 365 * 86_400_000
"""The delay of an operation without a time-out: 100 years."""


class AwaitedOutcome(DelayedOperation):
    """One waiting call.

    Args:
        wanted: the awaited message or cancel.
        recent: the recent results.
        timeout_s: how long to wait, in seconds; None: no limit.
    """

    def __init__(self, wanted: Wanted, recent: RecentResults, timeout_s: float | None) -> None:
        super().__init__(_NO_LIMIT_MS if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1_000))
        self.wanted = wanted
        self.future: Future[Result] = Future()
        self._recent = recent
        self._result: Result | None = None
        self._error: TarryError | None = None

    def try_complete(self) -> bool:
        """Complete the operation if its answer is among the recent results."""
        return any(map(self.offer, self._recent.of(self.wanted.result_keys())))

    def offer(self, value: bytes | None) -> bool:
        """Complete the operation if this result is its answer."""
        result = self.wanted.answer(value)
        if result is None:
            return False
        self._result = result
        return self.force_complete()

    def fail(self, error: TarryError) -> None:
        """Complete the operation with an error."""
        self._error = error
        self.force_complete()

    def on_complete(self) -> None:
        """Resolve the future; without a result or an error the operation has timed out."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self._result is not None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(
                self._error or TimeoutError(f"no outcome of {self.wanted.handle} within {self.delay_ms / 1_000:g} s")
            )


class PendingOutcomes:
    """All waiting calls of one intake. Thread-safe; `arrive` is called in one thread.

    Args:
        name: the name of its threads.
        recent: remembers the results that arrive.
        clock: measures the time-outs.
    """

    def __init__(self, name: str, recent: RecentResults, clock: Clock) -> None:
        self._recent = recent
        self._purgatory = DelayedOperationPurgatory[AwaitedOutcome](name, SystemTimer(name, clock))
        self._lock = threading.Lock()
        self._waiting: dict[Future[Result], AwaitedOutcome] = {}
        self._failure: TarryError | None = None
        # One callback for all futures, so that no operation is part of a reference cycle.
        self._on_done = self._leave

    def start(self) -> None:
        """Start the threads that expire operations."""
        self._purgatory.start()

    def watch(self, wanted: Wanted, timeout_s: float | None) -> AwaitedOutcome:
        """Begin to wait for a result.

        Raises:
            TarryError: the reader has failed or was closed.
        """
        operation = AwaitedOutcome(wanted, self._recent, timeout_s)
        with self._lock:
            self._refuse_after_failure()
            self._waiting[operation.future] = operation
        operation.future.add_done_callback(self._on_done)
        try:
            self._purgatory.try_complete_else_watch(operation, *wanted.result_keys())
        except RuntimeError:
            # The purgatory was shut down meanwhile, and has withdrawn the operation.
            with self._lock:
                self._waiting.pop(operation.future, None)
                self._refuse_after_failure()
            raise
        return operation

    def arrive(self, key: OutcomeKey, offset: int, value: bytes | None) -> None:
        """Remember a result, and complete the operations that wait for it."""
        self._recent.put(key, offset, value)
        self._purgatory.check_and_complete(key)

    def fail(self, error: TarryError) -> None:
        """Fail all waiting calls and all future ones; of several errors the first one counts."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            waiting = list(self._waiting.values())
        for operation in waiting:
            operation.fail(_lost(error))

    def shutdown(self) -> None:
        """End the threads; call `fail` first."""
        self._purgatory.shutdown()

    def _leave(self, future: Future[Result]) -> None:
        with self._lock:
            operation = self._waiting.pop(future, None)
        if operation is not None and future.cancelled() and operation.withdraw():
            future.set_running_or_notify_cancel()  # else `concurrent.futures.wait` would wait for it

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise _lost(self._failure)

    @property
    def waiting(self) -> int:
        """The number of waiting operations."""
        return len(self._waiting)

    def watched(self) -> int:
        """Return the number of entries in the watch lists; settled operations count until a purge."""
        return self._purgatory.watched()

    def delayed(self) -> int:
        """Return the number of operations in the timing wheel."""
        return self._purgatory.delayed()


def _lost(error: TarryError) -> FatalError:
    """Return a new FatalError for each caller, because raising an exception adds to its traceback."""
    return FatalError(str(error), getattr(error, "code", ""))
