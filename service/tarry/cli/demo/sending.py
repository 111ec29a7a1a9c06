"""The demo's producer: sends messages with random delays at a steady rate, on its own thread.

It uses the client library, as an application would, and reports the messages that the broker has acknowledged.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from tarry.cli.demo.tally import SentMessage
from tarry.client import DelayedMessage, DelayedProducer
from tarry.clock import Clock

KEYS: Final = ("ada", "alan", "barbara", "edsger", "grace", "john", "leslie", "radia")
SHORTEST_MS: Final = 200
LONGEST_MS: Final = 8_000
SETTLE_MS: Final = 500
"""How long before the end of the demo the last message is due, so that the demo still shows its arrival."""

_TURN_S: Final = 0.02


class SendPace:
    """How many messages to send up to a time, and how long each may wait, so that all are due before the end.

    Args:
        rate: messages per second.
        for_ms: how long the demo runs; the sender stops before its end.
    """

    def __init__(self, rate: int, for_ms: int) -> None:
        self._rate = rate
        self._due_by_ms = for_ms - SETTLE_MS
        self.send_until_ms = max(self._due_by_ms - 1_000, self._due_by_ms // 2)

    def wanted(self, elapsed_ms: int) -> int:
        """Return how many messages should have been sent after `elapsed_ms`."""
        return min(elapsed_ms, self.send_until_ms) * self._rate // 1_000

    def longest_ms(self, elapsed_ms: int) -> int:
        """Return the longest delay for a message that is sent now."""
        return max(SHORTEST_MS, min(LONGEST_MS, self._due_by_ms - elapsed_ms))


class DemoSender(threading.Thread):
    """Sends until the end of the pace or until `stop` is called.

    Args:
        make_producer: makes a producer for the intake; called on this thread.
        target: the topic to deliver to.
        pace: the number of messages and their longest delay.
        clock: monotonic time.
        on_sent: called on this thread with the acknowledged messages.
    """

    def __init__(
        self,
        make_producer: Callable[[], DelayedProducer],
        target: str,
        pace: SendPace,
        clock: Clock,
        on_sent: Callable[[Sequence[SentMessage]], None],
    ) -> None:
        super().__init__(name="demo-sender", daemon=True)
        self.error: Exception | None = None
        """The error that ended the thread, if any."""
        self._make_producer = make_producer
        self._target = target
        self._pace = pace
        self._clock = clock
        self._on_sent = on_sent
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        """Stop sending, and wait until the broker has acknowledged all messages in flight."""
        self._stop_asked.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Send messages, and keep an error in `error`."""
        try:
            with self._make_producer() as producer:
                self._send(producer)
        except Exception as error:  # noqa: BLE001 - the thread that started this one raises it
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
                        SentMessage(
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
