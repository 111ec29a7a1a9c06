"""What is known of target topics: asked once for all of a batch, kept, and asked again when in doubt."""

from collections.abc import Callable, Collection, Iterable, Mapping

from tarry.kafka.topics import Target

KEPT_MS = 60_000
"""After so long a target is asked for anew: partitions may have been added, and limits changed."""

MISSING_MS = 250
"""So long a topic that does not exist is not asked for again: it may be made at any time, and each try costs a wait."""


class Targets:
    """Partitions and limits of target topics.

    Args:
        ask: looks at topics; an answer for each.
        compresses: whether records are compressed on their way: then their size there is not known beforehand.
    """

    def __init__(self, ask: Callable[[Collection[str]], Mapping[str, Target]], *, compresses: bool = False) -> None:
        self._ask = ask
        self._compresses = compresses
        self._emptied_ms = 0
        self._known: dict[str, Target] = {}
        self._asked_ms: dict[str, int] = {}
        self._missing: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        """How many partitions those have that are known to exist."""

    def learn(self, topics: Iterable[str], now_ms: int) -> tuple[set[str], dict[str, str]]:
        """Make sure of topics.

        Args:
            topics: names.
            now_ms: monotonic time.

        Returns:
            Those that do not exist, and those that can't be written to now, each with the reason; of the latter
            nothing is kept.

        Raises:
            BrokerError: the cluster does not answer.
        """
        self._let_go_of_old_answers(now_ms)
        wanted = set(topics)
        unknown = wanted.difference(self.partitions, self._missing)
        obstacles: dict[str, str] = {}
        for topic, target in self._ask(unknown).items() if unknown else ():
            if not target.partitions:
                self._missing[topic] = now_ms
            elif target.obstacle:
                obstacles[topic] = target.obstacle
            else:
                self._known[topic] = target
                self._asked_ms[topic] = now_ms
                self.partitions[topic] = target.partitions
        return wanted.intersection(self._missing), obstacles

    def max_bytes(self, topic: str) -> int | None:
        """A target's limit on a batch of records; None where it is not known."""
        known = self._known.get(topic)
        return known.max_bytes if known else None

    def refuses_from(self, topic: str) -> int | None:
        """The size from which a record alone is surely refused; None where only the brokers know."""
        limit = None if self._compresses else self.max_bytes(topic)
        return None if limit is None else limit + 1

    def needs_keys(self, topic: str) -> bool:
        """Whether a target is known to refuse records without a key."""
        known = self._known.get(topic)
        return known is not None and known.compacted

    def is_fresh(self, topic: str, now_ms: int) -> bool:
        """Whether a target that is known to exist was asked for at `now_ms` or since: nothing dies by what is older."""
        return self._asked_ms[topic] >= now_ms

    def forget_all(self) -> None:
        """Ask for all of them anew."""
        self.partitions.clear()
        self._known.clear()
        self._asked_ms.clear()
        self._missing.clear()

    def forget(self, topic: str) -> None:
        """Ask anew next time: what is known is in doubt."""
        if self.partitions.pop(topic, None) is not None:
            del self._known[topic], self._asked_ms[topic]

    def _let_go_of_old_answers(self, now_ms: int) -> None:
        if now_ms - self._emptied_ms > KEPT_MS:
            self.forget_all()
            self._emptied_ms = now_ms
        if self._missing:
            self._missing = {topic: at_ms for topic, at_ms in self._missing.items() if now_ms - at_ms <= MISSING_MS}
