"""What waits in a purgatory: an operation that is completed by an event, or by its delay, and only once.

A completion begins with one question, `try_complete`, which anybody may ask after anything that may have changed
the answer. Two threads must not ask it of one operation at the same time, and none must wait for another: who
holds a lock of its own while it asks could wait for ever. So a thread that finds the question being asked leaves
word, and the one at it asks again:

    thread A                        thread B
    asks: not yet
                                    makes it completable
                                    finds A at it, leaves word, and goes on
    finds the word, asks again
    completes it

Without the word the operation would wait for its delay, though nothing was missing. Kafka had that fault
(KAFKA-6653), and again (KAFKA-8334) while the lock could be one that others held for purposes of their own, who
never looked for a word. Here whoever holds is at the question, and looking for a word and going are one step.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from tarry.timer.task import TimerTask

if TYPE_CHECKING:
    from tarry.timer.watchers import Watchers

# One for all operations, held for some assignments and never while code of an operation runs. A lock for each
# would take a quarter of an operation's memory, and threads that take turns at one interpreter gain nothing by it.
_MUTEX: Final = threading.Lock()


class DelayedOperation(TimerTask):
    """An operation that is to be completed when something has come to pass, or else when its delay is over.

    It is *settled* once: completed, by whoever is first, or withdrawn. It goes to one purgatory, once.

    Args:
        delay_ms: how long it waits at most, from the moment it is watched.
    """

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.watchers: Watchers[Any] | None = None
        """Where it is watched. This and the next two are the purgatory's own business, under its lock."""
        self.watched_by = 0
        """In how many lists it is."""
        self.is_left_over = False
        """Whether it is counted as settled and still in a list."""
        self._settled = False
        self._completed = False
        self._asking = False
        self._asked = False

    @abstractmethod
    def try_complete(self) -> bool:
        """Complete it by `force_complete` where it can be; whether this call has done so.

        Called by `maybe_try_complete` in any thread, never in two at a time, with no lock held. It may be running
        while another thread completes the operation, by its delay for example: then `force_complete` says False.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Do what a completion is for. Called exactly once, in the thread that completes it, with no lock held."""

    def on_expiration(self) -> None:
        """Do what is to be done beside where the delay was what completed it. Called after `on_complete`."""

    @property
    def is_completed(self) -> bool:
        """Whether it has been completed; `on_complete` may still be at work."""
        return self._completed

    @property
    def is_settled(self) -> bool:
        """Whether it has been completed or withdrawn: nothing more will become of it."""
        return self._settled

    def force_complete(self) -> bool:
        """Complete it, whatever `try_complete` would say.

        Returns:
            True: this call has, and `on_complete` has returned. False: it was settled already.
        """
        if not self._settle(completed=True):
            return False
        self.on_complete()
        return True

    def withdraw(self) -> bool:
        """Let nothing become of it: it is neither completed nor does it expire.

        Returns:
            False: it was settled already.
        """
        return self._settle(completed=False)

    def maybe_try_complete(self) -> bool:
        """Ask `try_complete`, or have the thread that is at it ask again. Waits for no other thread.

        Either way it is asked from its beginning after this call began, unless the operation is settled: no
        completion is lost.

        Returns:
            Whether this call has completed it.
        """
        with _MUTEX:
            self._asked = True
            if self._asking:
                return False
            self._asking = True
        completed = False
        while self._takes_a_question():
            try:
                completed = self.try_complete()
            except BaseException:
                if self._stops_asking():
                    self.maybe_try_complete()  # whoever has left word relies on this thread
                raise
        return completed

    def run(self) -> None:
        """Expire: the timer's call, when the delay is over."""
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

    def _takes_a_question(self) -> bool:
        """Take what was asked; where that is nothing, leave in the same step."""
        with _MUTEX:
            self._asking = self._asked and not self._settled
            self._asked = False
            return self._asking

    def _stops_asking(self) -> bool:
        """Leave; whether another thread has left word."""
        with _MUTEX:
            self._asking = False
            return self._asked
