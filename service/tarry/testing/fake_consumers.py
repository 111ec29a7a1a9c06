"""Consumers with ordered retry on a fake service: the client's real loop, in the test's thread, on the manual clock."""

import asyncio
import random
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tarry.client.retry.consumer import RetryingConsumer
from tarry.client.retry.core.message import RetryMessage
from tarry.client.retry.handling import Handling, Running
from tarry.client.retry.missing import LOOK_EVERY_MS
from tarry.client.retry.terms import Pace
from tarry.testing.fake import FakeBroker
from tarry.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from tarry.client.retry.session import Session

_YEAR_MS = 365 * 86_400_000
_NO_WAIT = Pace(read_wait_s=0.0, poll_interval_ms=_YEAR_MS)
"""A turn does not wait, and the test may advance the clock by a month between two polls."""

_JOINING_MS = 100


class FakeConsumers:
    """The consumers that were started on a fake service.

    Args:
        broker: the fake cluster.
        clock: the clock of the fake service.
    """

    def __init__(self, broker: FakeBroker, clock: ManualClock) -> None:
        self._broker = broker
        self._clock = clock
        self._sessions: list[tuple[RetryingConsumer, Session]] = []
        self._started = 0

    def start(self, consumer: RetryingConsumer) -> None:
        """Have a consumer join its group.

        Raises:
            UsageError: a topic is missing or has wrong settings, or the consumer cannot use the intake.
        """
        self._started += 1
        session = consumer.join(
            self._broker.clients(f"consumer-{self._started}"),
            self._clock,
            AtOnce(consumer.handler),
            random.Random(self._started),
            _NO_WAIT,
        )
        self._sessions.append((consumer, session))

    def turn(self) -> None:
        """Run one turn of each consumer. An error ends its consumer, and is raised."""
        for one in list(self._sessions):
            _, session = one
            try:
                session.turn()
            except BaseException:
                self._sessions.remove(one)
                session.abandon()
                raise
            if session.is_over:
                self._sessions.remove(one)
                session.leave()

    @property
    def all_joined(self) -> bool:
        """Whether each partition of each consumed topic is assigned to a consumer."""
        owned: dict[tuple[str, str], set[int]] = {}
        for consumer, session in self._sessions:
            names = consumer.names
            owned.setdefault((names.topic, names.group), set()).update(session.loop.owned)
        return all(len(numbers) == self._broker.partitions(topic) for (topic, _), numbers in owned.items())

    @property
    def are_quiet(self) -> bool:
        """Whether each consumer has read all of its logs to their ends."""
        return self.all_joined and all(
            position == self._broker.end(topic, number)
            for _, session in self._sessions
            for number, partition in session.loop.owned.items()
            for topic, position in partition.positions.items()
        )

    def seen(self) -> list[int]:
        """Return positions, at least one of which grows whenever a consumer makes progress."""
        return [
            position
            for _, session in self._sessions
            for partition in session.loop.owned.values()
            for position in partition.positions.values()
        ]

    def wait_ms(self, longest_ms: int) -> int:
        """Return how long it takes until a consumer may have something to do, at most `longest_ms`."""
        if not self.all_joined:
            return min(longest_ms, _JOINING_MS)
        in_trouble = any(
            len(partition.key_queues) for _, session in self._sessions for partition in session.loop.owned.values()
        )
        return min(longest_ms, LOOK_EVERY_MS) if in_trouble else longest_ms


class AtOnce(Handling):
    """Runs a handler function in the calling thread. A coroutine runs in its own event loop, and the caller waits."""

    def start(self, message: RetryMessage) -> Running:
        """Handle a message."""
        return self.running(message, _done)

    def _run_until_done(self, work: Coroutine[Any, Any, None]) -> None:
        with ThreadPoolExecutor(1) as pool:  # the test itself may run in an event loop
            pool.submit(asyncio.run, work).result()


def _done(call: object, *arguments: object) -> "Future[None]":
    future: Future[None] = Future()
    try:
        call(*arguments)  # type: ignore[operator]
    except BaseException as error:  # noqa: BLE001 - the future carries it to its reader
        future.set_exception(error)
    else:
        future.set_result(None)
    return future
