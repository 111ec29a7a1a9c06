"""The proxy in a separate process.

There it has an interpreter lock for itself. In a process with a load and its checker, the proxy would be so slow that
group members miss their heartbeats, and the test would break itself.
"""

import multiprocessing
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from tarry.testing.proxy import PRODUCE, Fault, KafkaProxy, Side

_ENDS_WITHIN_S = 10.0


class ProxyProcess:
    """A `KafkaProxy` in another process, which always ends with this one.

    Args:
        broker_port: the port of the broker's listener on the loopback address.
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
        """Plan a fault for the next requests of a kind."""
        self._ask("plan", fault, api_key, times)

    def delay(self, seconds: float) -> None:
        """Delay every frame from now on by this time, in each direction; 0 ends it."""
        self._ask("delay", seconds)

    def stall(self) -> None:
        """Forward nothing until `resume`."""
        self._ask("stall")

    def resume(self) -> None:
        """End a stall."""
        self._ask("resume")

    def cut(self) -> None:
        """Reset all connections."""
        self._ask("cut")

    def half_close(self, towards: Side = Side.CLIENT) -> None:
        """Close one direction of each connection."""
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
    """Serve calls until the other process closes the pipe."""
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
