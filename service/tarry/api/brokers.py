"""Whether the brokers answer, asked every two seconds: while none does, requests fail at once and nobody waits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException

from tarry.clock import Clock
from tarry.errors import BrokerError

ASK_EVERY_S: Final = 2.0
SILENT_MS: Final = 10_000
"""After how long without an answer a replica is not ready."""


class Brokers:
    """Asks the brokers whether they are there.

    Args:
        describe: asks for the cluster; its answer does not matter, only that there is one.
        clock: monotonic time.
    """

    def __init__(self, describe: Callable[[], Future[Any]], clock: Clock) -> None:
        self._describe = describe
        self._clock = clock
        self._answered_ms: int | None = None
        self._asked_once = asyncio.Event()

    @property
    def have_answered(self) -> bool:
        """Whether one has answered during the last seconds."""
        return self._answered_ms is not None and self._clock.monotonic_ms() - self._answered_ms <= SILENT_MS

    async def demand(self) -> None:
        """Refuse what needs Kafka if no broker answers; at first, wait for the first question to be over.

        Raises:
            BrokerError: none has answered during the last seconds.
        """
        await self._asked_once.wait()
        if not self.have_answered:
            raise BrokerError("Kafka does not answer")

    async def ask(self) -> None:
        """Ask until this is cancelled."""
        while True:
            try:
                # As it is asked: at the latest that long ago somebody was there.
                asked_ms = self._clock.monotonic_ms()
                await asyncio.wrap_future(self._describe())
                self._answered_ms = asked_ms
            except KafkaException:
                pass  # `have_answered` says it
            self._asked_once.set()
            await asyncio.sleep(ASK_EVERY_S)
