"""Operations of a purgatory: each is completed once, by an event or by its delay.

An event completes an operation through `try_complete`, which any thread may request after any change that may matter.
Two threads must not run it for one operation at the same time. Neither may one thread wait for the other: a thread that
holds a lock of its own could deadlock. So a thread that finds `try_complete` running sets a flag, and the running
thread calls it again:

    thread A                        thread B
    try_complete: not yet
                                    makes the operation completable
                                    finds A running, sets the flag, and returns
    finds the flag, tries again
    completes it

Without the flag the operation would wait for its delay although it could be completed. Kafka had this bug (KAFKA-6653).
It came back (KAFKA-8334) while the lock of `try_complete` could also be held by threads for other purposes, which never
checked the flag. Here only a thread that runs `try_complete` counts as running, and it checks the flag and stops
running in one atomic step.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from tarry.timer.task import TimerTask

if TYPE_CHECKING:
    from tarry.timer.watchers import Watchers

# One mutex for all operations, held for a few assignments and never while code of an operation runs. A lock for each
# would take a quarter of an operation's memory, and threads that share one interpreter would gain nothing.
_MUTEX: Final = threading.Lock()


class DelayedOperation(TimerTask):
    """An operation that waits for an event, at most for its delay.

    It is *settled* exactly once: completed by the first thread that does so, or withdrawn. It may be added to one
    purgatory, once.

    Args:
        delay_ms: how long it waits at most, from the moment when it is watched.
    """

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.watchers: Watchers[Any] | None = None
        """The lists that it is in. Only the purgatory uses this and the next two fields, under its lock."""
        self.watched_by = 0
        """The number of lists that it is in."""
        self.is_left_over = False
        """Whether it is counted as settled but still in a list."""
        self._settled = False
        self._completed = False
        self._trying = False
        self._try_requested = False

    @abstractmethod
    def try_complete(self) -> bool:
        """Complete the operation through `force_complete` if it can be completed; return whether this call did.

        `maybe_try_complete` calls it in any thread, never in two at the same time, with no lock held. Another thread
        may complete the operation meanwhile, for example because its delay is over; then `force_complete` returns
        False.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Act on the completion. Called once at most, in the thread that completes the operation, with no lock held."""

    def on_expiration(self) -> None:
        """Act on an expiration. Called after `on_complete` if the delay completed the operation."""

    @property
    def is_completed(self) -> bool:
        """Whether it has been completed; `on_complete` may still be running."""
        return self._completed

    @property
    def is_settled(self) -> bool:
        """Whether it has been completed or withdrawn; this is final."""
        return self._settled

    def force_complete(self) -> bool:
        """Complete the operation, without asking `try_complete`.

        Returns:
            True: this call completed it, and `on_complete` has returned. False: it was already settled.
        """
        if not self._settle(completed=True):
            return False
        self.on_complete()
        return True

    def withdraw(self) -> bool:
        """Withdraw the operation: it will neither be completed nor expire.

        Returns:
            True: this call withdrew it. False: it was already settled.
        """
        return self._settle(completed=False)

    def maybe_try_complete(self) -> bool:
        """Call `try_complete`, or make the thread that is running it call it again. Never waits for another thread.

        Either way a call of `try_complete` begins after this call began, unless the operation is settled. So no
        completion is lost.

        Returns:
            Whether this call completed the operation.
        """
        with _MUTEX:
            self._try_requested = True
            if self._trying:
                return False
            self._trying = True
        completed = False
        while self._takes_request():
            try:
                completed = self.try_complete()
            except BaseException:
                if self._stops_trying():
                    self.maybe_try_complete()  # the thread that set the flag relies on this one
                raise
        return completed

    def run(self) -> None:
        """Expire; the timer calls it when the delay is over."""
        if self.force_complete():
            self.on_expiration()

    def _settle(self, *, completed: bool) -> bool:
        with _MUTEX:
            if self._settled:
                return False
            self._settled = True
            self._completed = completed
        self.cancel()
        if self.watchers is not None:
            self.watchers.tell_settled(self)
        return True

    def _takes_request(self) -> bool:
        """Clear the flag, and return whether to try again; if not, stop running in the same atomic step."""
        with _MUTEX:
            self._trying = self._try_requested and not self._settled
            self._try_requested = False
            return self._trying

    def _stops_trying(self) -> bool:
        """Stop running; return whether another thread has set the flag."""
        with _MUTEX:
            self._trying = False
            return self._try_requested
