"""Those who wait for results: operations in Kafka's purgatory, each with a future.

    caller                                      reader of results
    watch(wanted) -> future                     arrive(key, offset, value)
      1. looks among the recent results           1. keeps it among the recent results
      2. is watched under its keys                2. checks its key: who waits under it looks again
      3. looks again
      4. what was forgotten before 3 is to be
         searched for in the log

Whatever is written after the message is thus seen by one of these: by 2 on the right, where it comes after 2 on the
left; by 3 on the left, where it came before and is still remembered; by 4 where it is not.
"""

import math
import threading
from concurrent.futures import Future

from tarry.client.outcome.recent import RecentResults
from tarry.client.outcome.result import Key, Result, Wanted
from tarry.clock import Clock
from tarry.errors import FatalError, TarryError
from tarry.timer import DelayedOperation, DelayedOperationPurgatory, SystemTimer

_FOR_EVER_MS = 100 * 365 * 86_400_000


class AwaitedOutcome(DelayedOperation):
    """One who waits.

    Args:
        wanted: for what.
        recent: where its answer would be found.
        timeout_s: how long; None: without an end.
    """

    def __init__(self, wanted: Wanted, recent: RecentResults, timeout_s: float | None) -> None:
        super().__init__(_FOR_EVER_MS if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1_000))
        self.wanted = wanted
        self.future: Future[Result] = Future()
        self._recent = recent
        self._result: Result | None = None
        self._error: TarryError | None = None

    def try_complete(self) -> bool:
        """Complete it with its answer, if that is among the recent results."""
        return any(map(self.offer, self._recent.of(self.wanted.result_keys())))

    def offer(self, value: bytes | None) -> bool:
        """Complete it with a result, if that is its answer."""
        result = self.wanted.answer(value)
        if result is None:
            return False
        self._result = result
        return self.force_complete()

    def fail(self, error: TarryError) -> None:
        """Complete it with an error."""
        self._error = error
        self.force_complete()

    def on_complete(self) -> None:
        """Answer the future; a completion without a result or an error is that of the delay."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self._result is not None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(
                self._error or TimeoutError(f"no outcome of {self.wanted.handle} within {self.delay_ms / 1_000:g} s")
            )


class WaitingRoom:
    """All who wait for results of one intake. Safe for any number of threads; results arrive in one.

    Args:
        name: of its threads.
        recent: keeps the results that arrive.
        clock: for time-outs.
    """

    def __init__(self, name: str, recent: RecentResults, clock: Clock) -> None:
        self._recent = recent
        self._purgatory = DelayedOperationPurgatory[AwaitedOutcome](name, SystemTimer(name, clock))
        self._lock = threading.Lock()
        self._waiting: dict[Future[Result], AwaitedOutcome] = {}
        self._failure: TarryError | None = None
        # One for all, which knows none of them: no operation is part of a cycle, so each is freed when it is over.
        self._on_done = self._leave

    def start(self) -> None:
        """Begin to let time-outs come."""
        self._purgatory.start()

    def watch(self, wanted: Wanted, timeout_s: float | None) -> AwaitedOutcome:
        """Begin to wait.

        Raises:
            TarryError: nothing arrives any more, for this reason.
        """
        operation = AwaitedOutcome(wanted, self._recent, timeout_s)
        with self._lock:
            self._refuse_after_failure()
            self._waiting[operation.future] = operation
        operation.future.add_done_callback(self._on_done)
        try:
            self._purgatory.try_complete_else_watch(operation, *wanted.result_keys())
        except RuntimeError:
            # Shut down meanwhile, and withdrawn.
            with self._lock:
                self._waiting.pop(operation.future, None)
                self._refuse_after_failure()
            raise
        return operation

    def arrive(self, key: Key, offset: int, value: bytes | None) -> None:
        """Take a result."""
        self._recent.put(key, offset, value)
        self._purgatory.check_and_complete(key)

    def fail(self, error: TarryError) -> None:
        """Let all fail who wait, and who would wait from now on. The first error stays."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            waiting = list(self._waiting.values())
        for operation in waiting:
            operation.fail(_lost(error))

    def shutdown(self) -> None:
        """End the threads; after `fail`."""
        self._purgatory.shutdown()

    def _leave(self, future: Future[Result]) -> None:
        with self._lock:
            operation = self._waiting.pop(future, None)
        if operation is not None and future.cancelled():
            operation.withdraw()

    def _refuse_after_failure(self) -> None:
        if self._failure is not None:
            raise _lost(self._failure)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def watched(self) -> int:
        """How many entries stand under keys, settled ones until they are purged."""
        return self._purgatory.watched()

    def delayed(self) -> int:
        """How many stand in the timing wheel."""
        return self._purgatory.delayed()


def _lost(error: TarryError) -> FatalError:
    """That the reader is lost, whatever may be done again: one of its own each time, for raising adds to its trace."""
    return FatalError(str(error), getattr(error, "code", ""))
