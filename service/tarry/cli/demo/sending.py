"""The demo's producer: messages with random delays, at a steady rate, from a thread of its own.

It sends with the client library, as an application would, and hands in what the broker acknowledged.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from tarry.cli.demo.tally import Sent
from tarry.client import DelayedMessage, DelayedProducer
from tarry.clock import Clock

KEYS: Final = ("ada", "alan", "barbara", "edsger", "grace", "john", "leslie", "radia")
SHORTEST_MS: Final = 200
LONGEST_MS: Final = 8_000
SETTLE_MS: Final = 500
"""So long before the end the last message is due, so that it is seen in time."""

_TURN_S: Final = 0.02


class Pace:
    """How many messages are to be sent by when, and how long each may wait: all are due before the end.

    Args:
        rate: messages a second.
        for_ms: how long the demo lasts; sending stops early enough.
    """

    def __init__(self, rate: int, for_ms: int) -> None:
        self._rate = rate
        self._due_by_ms = for_ms - SETTLE_MS
        self.send_until_ms = max(self._due_by_ms - 1_000, self._due_by_ms // 2)

    def wanted(self, elapsed_ms: int) -> int:
        """How many should have been sent after so long."""
        return min(elapsed_ms, self.send_until_ms) * self._rate // 1_000

    def longest_ms(self, elapsed_ms: int) -> int:
        """The longest delay that a message sent now may have."""
        return max(SHORTEST_MS, min(LONGEST_MS, self._due_by_ms - elapsed_ms))


class Sender(threading.Thread):
    """Sends until its time is over or it is told to stop.

    Args:
        bootstrap_servers: Kafka's.
        target: the topic to deliver to.
        pace: how much, and how far ahead.
        clock: monotonic time.
        on_sent: takes what was acknowledged; called on this thread.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        target: str,
        pace: Pace,
        clock: Clock,
        on_sent: Callable[[Sequence[Sent]], None],
    ) -> None:
        super().__init__(name="demo-sender", daemon=True)
        self.error: Exception | None = None
        """What ended it before its time."""
        self._servers = bootstrap_servers
        self._target = target
        self._pace = pace
        self._clock = clock
        self._on_sent = on_sent
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """Send no more, and wait until what is on its way is acknowledged."""
        self._stop_asked.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Send."""
        try:
            with DelayedProducer(self._servers) as producer:
                self._send(producer)
        except Exception as error:  # noqa: BLE001 - whoever started the thread raises it
            self.error = error

    def _send(self, producer: DelayedProducer) -> None:
        began_ms = self._clock.monotonic_ms()
        count = 0
        while not self._stop_asked.is_set():
            elapsed_ms = self._clock.monotonic_ms() - began_ms
            wanted = self._pace.wanted(elapsed_ms)
            if wanted > count:
                messages = list(self._messages(count, wanted, self._pace.longest_ms(elapsed_ms)))
                receipts = producer.send_many(messages)
                self._on_sent(
                    [
                        Sent(
                            receipt.id,
                            str(message.key),
                            receipt.handle.due_ms,
                            receipt.handle.partition,
                            receipt.offset,
                        )
                        for message, receipt in zip(messages, receipts, strict=True)
                    ]
                )
                count = wanted
            if elapsed_ms >= self._pace.send_until_ms:
                return
            self._stop_asked.wait(_TURN_S)

    def _messages(self, first: int, end: int, longest_ms: int) -> Iterator[DelayedMessage]:
        for number in range(first, end):
            delay_ms = random.randint(SHORTEST_MS, longest_ms)
            yield DelayedMessage(
                target=self._target,
                value=json.dumps({"reminder": number}),
                key=random.choice(KEYS),
                delay=timedelta(milliseconds=delay_ms),
            )
