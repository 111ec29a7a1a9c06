"""Tells which partitions are assigned in both topics, and when a member must rejoin because half of them is missing."""

from collections.abc import Collection
from typing import Final

from tarry.client.retry.core.names import Names
from tarry.clock import Clock
from tarry.errors import RejoinError
from tarry.kafka.types import Place

WHOLE_WITHIN_MS: Final = 10_000
"""How long to wait, after an assignment, for the other half of a partition.

The members look for their topics every 5 s (`session.LOOK_FOR_TOPICS_MS`), and librdkafka rejoins by itself if it finds
one that it did not know.
"""

WHOLE_WITHIN_MOST_MS: Final = 300_000
"""The longest such wait. It doubles with each rejoin, because a rejoin rebalances the whole group."""


class Halves:
    """The two halves of each partition: its partition of the topic, and its partition of the retry topic.

    A broker may not know yet a topic that another broker knows. In a classic group, the leader joins with the topics
    that one broker knows, and assigns the partitions that the coordinator knows. If the coordinator does not know the
    retry topic, no member gets its partitions. The leader's next refreshes find the topics that it has joined with, so
    librdkafka sees no change and never assigns them (seen with librdkafka 2.16). Only a rebalance helps.

    Args:
        names: the names of the topics.
        clock: monotonic time.
        at_once: whether the group assigns all partitions of a member at once, as a classic group does. Under KIP-848
            the broker assigns them, one by one, and corrects the assignment itself.
    """

    def __init__(self, names: Names, clock: Clock, *, at_once: bool) -> None:
        self._names = names
        self._clock = clock
        self._at_once = at_once
        self._wait_ms = WHOLE_WITHIN_MS
        self._rejoin_at_ms = 0

    def assigned(self) -> None:
        """Take note of a new assignment."""
        self._rejoin_at_ms = self._clock.monotonic_ms() + self._wait_ms

    def whole(self, assigned: Collection[Place]) -> set[int]:
        """Return the numbers of the partitions that are assigned in both topics.

        Raises:
            RejoinError: for too long, some are assigned in one topic only.
        """
        names = self._names
        ours, retries = ({n for topic, n in assigned if topic == name} for name in (names.topic, names.retry))
        halves = ours ^ retries
        if halves and self._at_once and self._clock.monotonic_ms() >= self._rejoin_at_ms:
            self._wait_ms = min(2 * self._wait_ms, WHOLE_WITHIN_MOST_MS)
            number = min(halves)
            missing = names.topic if number in retries else names.retry
            present = names.retry if missing == names.topic else names.topic
            raise RejoinError(f"the group has assigned {present}/{number} but not {missing}/{number}")
        if ours and not halves:
            self._wait_ms = WHOLE_WITHIN_MS
        return ours & retries
