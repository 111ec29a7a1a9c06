"""Background calls without a thread.

Each time when the process checks whether the call is done, the call is tried. If it would have to wait, the try stops
there, and the next check starts the call again. So the call runs only in turns of its own process, and other processes
can run in between. The call must be repeatable, as the registration of a producer is.
"""

from collections.abc import Callable
from concurrent.futures import Future

from tarry.testing.fake.wire import Wire, WouldWait

EVERY_MS = 20
"""The shortest time between two tries."""


class Background(Future[None]):
    """The future of a background call.

    Args:
        wire: the connection of the process.
        call: the call.
    """

    def __init__(self, wire: Wire, call: Callable[[], None]) -> None:
        super().__init__()
        self._wire = wire
        self._call = call
        self._since_ms = wire.clock.monotonic_ms()
        self._next_ms = 0

    def done(self) -> bool:
        """Try the call if it is time for a try; return whether it is done."""
        if not super().done() and self._wire.clock.monotonic_ms() >= self._next_ms:
            with self._wire.without_waiting(self._since_ms):
                self._try()
            self._next_ms = self._wire.clock.monotonic_ms() + EVERY_MS
        return super().done()

    def result(self, timeout: float | None = None) -> None:
        """Wait for the call; raise its error, if any."""
        self._finish()
        super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the call, and return its error, or None."""
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
        except Exception as error:  # noqa: BLE001 - the future carries it to the caller
            self.set_exception(error)
        else:
            self.set_result(None)
