"""Which target topics exist, and with how many partitions: asked once, kept, and asked again when in doubt."""

from collections.abc import Callable, Iterable

KEPT_MS = 60_000
"""After so long a count is asked for anew: partitions may have been added."""


class Targets:
    """Partition counts of target topics.

    Args:
        ask: how many partitions a topic has; 0 where there is none of that name, None where it can't be told now.
    """

    def __init__(self, ask: Callable[[str], int | None]) -> None:
        self._ask = ask
        self._asked_ms = 0
        self.partitions: dict[str, int] = {}
        """Those known to exist."""

    def learn(self, topics: Iterable[str], now_ms: int) -> tuple[set[str], set[str]]:
        """Make sure of topics.

        Args:
            topics: names.
            now_ms: monotonic time.

        Returns:
            Those that do not exist, and those of which nothing can be told now. Both are asked for again each time.

        Raises:
            BrokerError: the cluster does not answer.
        """
        if now_ms - self._asked_ms > KEPT_MS:
            self.partitions.clear()
            self._asked_ms = now_ms
        missing: set[str] = set()
        not_now: set[str] = set()
        for topic in set(topics).difference(self.partitions):
            count = self._ask(topic)
            if count:
                self.partitions[topic] = count
            else:
                (not_now if count is None else missing).add(topic)
        return missing, not_now

    def forget_all(self) -> None:
        """Ask for all of them anew."""
        self.partitions.clear()

    def forget(self, topic: str) -> None:
        """Ask anew next time: the broker did not know it."""
        self.partitions.pop(topic, None)
