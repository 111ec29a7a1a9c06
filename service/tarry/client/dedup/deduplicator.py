"""Duplicates told apart in memory, for a reader whose work is best effort or idempotent anyway."""

from datetime import timedelta
from uuid import UUID

from tarry.client.dedup.delivered import DeliveredMessage
from tarry.client.dedup.window import DedupWindow
from tarry.clock import Clock, SystemClock


class Deduplicator:
    """Tells a reader which messages it has handled already, by `tarry-id`, in a window of its own for each topic.

    It is asked first and told afterwards, so that what a handler failed at counts as new when it is read again.

    It is a best effort: it knows what *this process* has handled, within its bounds. After a restart or a rebalance the
    next owner of a partition knows nothing of what was handled before. `PostgresSink` does.

    A message without a `tarry-id` is always new. For one thread.

    Example:
        deduplicator = Deduplicator()
        while True:
            record = consumer.poll(1.0)
            if record is None or record.error():
                continue
            message = DeliveredMessage.of(record)
            if deduplicator.is_new(message):
                handle(message)
                deduplicator.done(message)
            consumer.store_offsets(record)

    Args:
        most: ids of each topic; a million take about 150 MB (see `DedupWindow`).
        keep: how long each is remembered.
        clock: monotonic time.

    Raises:
        ValueError: a bound is too small.
    """

    def __init__(
        self, most: int = 1_000_000, keep: timedelta = timedelta(hours=1), *, clock: Clock | None = None
    ) -> None:
        self._most = most
        self._keep_ms = keep // timedelta(milliseconds=1)
        self._clock = clock or SystemClock()
        self._windows: dict[str, DedupWindow[int]] = {}
        if most < 1 or self._keep_ms < 1:
            raise ValueError(f"most and keep: at least 1, and a millisecond: {most}, {keep}")

    def is_new(self, message: DeliveredMessage) -> bool:
        """Tell whether no message of this topic and id is known to be done."""
        return message.id is None or not self._window_of(message.topic).knows(
            UUID(message.id).int, self._clock.monotonic_ms()
        )

    def done(self, message: DeliveredMessage) -> None:
        """Remember a message that was handled."""
        if message.id is not None:
            self._window_of(message.topic).add(UUID(message.id).int, self._clock.monotonic_ms())

    def _window_of(self, topic: str) -> DedupWindow[int]:
        window = self._windows.get(topic)
        if window is None:
            window = self._windows[topic] = DedupWindow(self._most, self._keep_ms)
        return window
