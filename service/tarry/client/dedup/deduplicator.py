"""Deduplication in memory, for a reader whose work is best effort or idempotent."""

from datetime import timedelta
from uuid import UUID

from tarry.client.dedup.delivered import DeliveredMessage
from tarry.client.dedup.window import DedupWindow
from tarry.clock import Clock, SystemClock


class Deduplicator:
    """Tells a reader which messages it has already handled, by `tarry-id`, with one window for each topic.

    Call `is_new` before handling and `done` afterwards, so that a message whose handling failed is new when it is read
    again.

    It is best effort: it knows what *this process* has handled, within its bounds. After a restart or a rebalance the
    next owner of a partition does not know which messages were handled before. For exactly-once use `PostgresSink`.

    A message without a `tarry-id` is always new. Not thread-safe.

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
        most: the most ids to remember for each topic; a million take about 150 MB (see `DedupWindow`).
        keep: how long to remember each.
        clock: monotonic time.

    Raises:
        ValueError: `most` is less than 1, or `keep` is less than a millisecond.
    """

    def __init__(
        self, most: int = 1_000_000, keep: timedelta = timedelta(hours=1), *, clock: Clock | None = None
    ) -> None:
        self._most = most
        self._keep_ms = keep // timedelta(milliseconds=1)
        self._clock = clock or SystemClock()
        self._windows: dict[str, DedupWindow[int]] = {}
        if most < 1 or self._keep_ms < 1:
            raise ValueError(f"most must be at least 1 and keep at least 1 ms: {most}, {keep}")

    def is_new(self, message: DeliveredMessage) -> bool:
        """Return whether no message with this topic and id is known to be done."""
        return message.id is None or not self._window_of(message.topic).knows(
            UUID(message.id).int, self._clock.monotonic_ms()
        )

    def done(self, message: DeliveredMessage) -> None:
        """Remember that a message was handled."""
        if message.id is not None:
            self._window_of(message.topic).add(UUID(message.id).int, self._clock.monotonic_ms())

    def _window_of(self, topic: str) -> DedupWindow[int]:
        window = self._windows.get(topic)
        if window is None:
            window = self._windows[topic] = DedupWindow(self._most, self._keep_ms)
        return window
