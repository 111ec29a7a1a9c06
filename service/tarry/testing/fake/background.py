"""Calls that go on beside the loop, without a thread.

A call is tried where its process looks whether it is done, and given up at the first thing that it would have to wait
for, until the process looks again. So all that it does is done in turns of its own process, and other processes go on
meanwhile. It must stand being begun again, as registering a producer does.
"""

from collections.abc import Callable
from concurrent.futures import Future

from tarry.testing.fake.wire import Wire, WouldWait

EVERY_MS = 20
"""How long from one try to the next, at least."""


class Background(Future[None]):
    """The outcome of such a call.

    Args:
        wire: of its process.
        call: what is to be done.
    """

    def __init__(self, wire: Wire, call: Callable[[], None]) -> None:
        super().__init__()
        self._wire = wire
        self._call = call
        self._since_ms = wire.clock.monotonic_ms()
        self._next_ms = 0

    def done(self) -> bool:
        """Whether it is; tries."""
        if not super().done() and self._wire.clock.monotonic_ms() >= self._next_ms:
            with self._wire.without_waiting(self._since_ms):
                self._try()
            self._next_ms = self._wire.clock.monotonic_ms() + EVERY_MS
        return super().done()

    def result(self, timeout: float | None = None) -> None:
        """Wait for it; raises what it raised."""
        self._finish()
        super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for it, and return what it raised."""
        self._finish()
        return super().exception(timeout)

    def _finish(self) -> None:
        if not super().done():
            self._try()

    def _try(self) -> None:
        try:
            self._call()
        except WouldWait:
            return
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self.set_exception(error)
        else:
            self.set_result(None)
