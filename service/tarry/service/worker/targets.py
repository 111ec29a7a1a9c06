"""The metadata and settings of target topics: one request for all topics of a batch, cached, and renewed in doubt."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tarry.errors import RetriableError
from tarry.kafka.topics import NOT_ALLOWED, Target

Ask = Callable[[Collection[str]], Mapping[str, Target]]

KEPT_MS = 60_000
"""How long an answer is trusted: afterwards partitions may have been added, and limits changed."""

MISSING_MS = 250
"""How long the service does not ask again about a missing topic, which may be created: each request costs a wait."""

SURE_MS = 3_000
"""How long after the first "unknown topic" answer a second one proves that the topic does not exist; it is away before.

A broker that has lost its controllers, or is just starting, answers from old metadata.
"""


@dataclass(slots=True)
class _Doubt:
    """A topic that the brokers did not know at the last request.

    Attributes:
        since_ms: when a broker first said so.
        asked_ms: when a broker was last asked.
        confirmed_ms: when other brokers last confirmed it.
    """

    since_ms: int
    asked_ms: int
    confirmed_ms: int | None = None


class Targets:
    """Partitions and limits of target topics.

    Args:
        ask: asks about topics; returns an answer for each.
        ask_others: the same, but asks other brokers if there are any.
        compresses: whether the producers compress records: then their size on the wire is not known beforehand.
    """

    def __init__(self, ask: Ask, ask_others: Ask, *, compresses: bool = False) -> None:
        self._ask = ask
        self._ask_others = ask_others
        self._compresses = compresses
        self._emptied_ms = 0
        self._known: dict[str, Target] = {}
        self._asked_ms: dict[str, int] = {}
        self._missing: dict[str, int] = {}
        self._doubts: dict[str, _Doubt] = {}
        self.partitions: dict[str, int] = {}
        """The number of partitions of each topic that is known to exist."""

    def learn(self, topics: Iterable[str], now_ms: int) -> tuple[set[str], dict[str, str]]:
        """Ask the brokers about the topics that are not in the cache.

        Args:
            topics: names.
            now_ms: monotonic time.

        Returns:
            The topics that certainly do not exist, and those that cannot be written to now, each with the reason. The
            cache keeps nothing of the latter, except since when a topic was not found.

        Raises:
            BrokerError: the cluster does not answer.
        """
        self._drop_old_answers(now_ms)
        wanted = set(topics)
        unknown = wanted.difference(self.partitions, self._missing)
        obstacles: dict[str, str] = {}
        answers = self._confirmed(self._ask(unknown), now_ms) if unknown else {}
        for topic, target in answers.items():
            if not target.partitions:
                self._missing[topic] = now_ms
            elif target.obstacle:
                obstacles[topic] = target.obstacle
            else:
                self._known[topic] = target
                self._asked_ms[topic] = now_ms
                self.partitions[topic] = target.partitions
        return wanted.intersection(self._missing), obstacles

    def _confirmed(self, answers: Mapping[str, Target], now_ms: int) -> dict[str, Target]:
        """Return the answers, corrected for topics that were not found.

        At first such a topic only counts as away. After `SURE_MS`, other brokers are asked to confirm it.
        """
        sure = dict(answers)
        to_confirm = []
        for topic, target in answers.items():
            if target.partitions:
                self._doubts.pop(topic, None)
                continue
            doubt = self._doubts.setdefault(topic, _Doubt(now_ms, now_ms))
            doubt.asked_ms = now_ms
            if now_ms - doubt.since_ms < SURE_MS:
                sure[topic] = Target(
                    1, "a broker knows no topic of this name; asking again before its messages become dead letters"
                )
            elif doubt.confirmed_ms is None or now_ms - doubt.confirmed_ms >= SURE_MS:
                to_confirm.append(topic)
        for topic, target in self._ask_others(to_confirm).items() if to_confirm else ():
            sure[topic] = target
            if target.partitions:
                del self._doubts[topic]
            else:
                self._doubts[topic].confirmed_ms = now_ms
        return sure

    def denied(self, topics: Iterable[str], now_ms: int) -> set[str]:
        """Ask which of some topics this user has no right to write to; none if the cluster does not answer."""
        wanted = set(topics)
        if not wanted:
            return wanted
        for topic in wanted:
            self.forget(topic)
        try:
            _, obstacles = self.learn(wanted, now_ms)
        except RetriableError:
            return set()
        return {topic for topic in wanted if obstacles.get(topic) == NOT_ALLOWED}

    def max_bytes(self, topic: str) -> int | None:
        """Return a target's limit on a batch of records, in bytes; None if it is unknown."""
        known = self._known.get(topic)
        return known.max_bytes if known else None

    def refuses_from(self, topic: str) -> int | None:
        """Return the least size, in bytes, of a record that is certainly refused; None if only the brokers know."""
        limit = None if self._compresses else self.max_bytes(topic)
        return None if limit is None else limit + 1

    def needs_keys(self, topic: str) -> bool:
        """Return whether a target is known to refuse records without a key."""
        known = self._known.get(topic)
        return known is not None and known.compacted

    def is_fresh(self, topic: str, now_ms: int) -> bool:
        """Return whether the answer about a target is from `now_ms` or later; an older one condemns no message."""
        return self._asked_ms[topic] >= now_ms

    def forget_all(self) -> None:
        """Forget all answers, so that the next `learn` asks about all topics."""
        self.partitions.clear()
        self._known.clear()
        self._asked_ms.clear()
        self._missing.clear()

    def forget(self, topic: str) -> None:
        """Forget the answer about one topic, because it is in doubt."""
        if self.partitions.pop(topic, None) is not None:
            del self._known[topic], self._asked_ms[topic]

    def _drop_old_answers(self, now_ms: int) -> None:
        if now_ms - self._emptied_ms > KEPT_MS:
            self.forget_all()
            self._emptied_ms = now_ms
            self._doubts = {name: one for name, one in self._doubts.items() if now_ms - one.asked_ms <= KEPT_MS}
        if self._missing:
            self._missing = {topic: at_ms for topic, at_ms in self._missing.items() if now_ms - at_ms <= MISSING_MS}
