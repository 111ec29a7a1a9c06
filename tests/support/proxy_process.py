"""The proxy in a process of its own.

It shares an interpreter's lock with nobody there: beside a load and its checker it would move so little that members
of a group miss their heartbeats, and what a test breaks would be the test.
"""

import multiprocessing
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from tarry.testing.proxy import PRODUCE, Fault, KafkaProxy, Side

_ENDS_WITHIN_S = 10.0


class ProxyProcess:
    """What `KafkaProxy` is, done by another process; that ends with this one, however it ends.

    Args:
        broker_port: where the listener is, on the loopback address.
    """

    def __init__(self, broker_port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._line, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, broker_port), name="kafka-proxy", daemon=True)
        self._process.start()
        far_end.close()
        self.address: str = self._ask("address")

    @property
    def struck(self) -> int:
        """How many planned faults have happened."""
        return int(self._ask("struck"))

    def plan(self, fault: Fault, api_key: int | None = PRODUCE, times: int = 1) -> None:
        """Have a fault happen to the next requests of a kind."""
        self._ask("plan", fault, api_key, times)

    def delay(self, seconds: float) -> None:
        """Hold every frame that comes from now on for so long, in each direction; 0 ends that."""
        self._ask("delay", seconds)

    def stall(self) -> None:
        """Move no byte until `resume`."""
        self._ask("stall")

    def resume(self) -> None:
        """End a stall."""
        self._ask("resume")

    def cut(self) -> None:
        """Reset all connections."""
        self._ask("cut")

    def half_close(self, towards: Side = Side.CLIENT) -> None:
        """Tell one side of each connection that nothing more comes."""
        self._ask("half_close", towards)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()
        self._process.join(_ENDS_WITHIN_S)
        assert self._process.exitcode == 0, "the proxy has not ended, or not in order"

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._line.send((name, arguments))
        answer = self._line.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(line: Connection, broker_port: int) -> None:
    """Do what is asked until nobody asks any more."""
    with KafkaProxy(broker_port) as proxy:
        while True:
            try:
                name, arguments = line.recv()
            except (EOFError, KeyboardInterrupt):
                return
            try:
                found = getattr(proxy, name)
                answer = found(*arguments) if callable(found) else found
            except Exception as error:  # noqa: BLE001 - it is the caller's
                answer = error
            line.send(answer)
