"""Keys in trouble of the groups of `RetryingConsumer`, from their state topics.

A state topic is compacted: it has one record for each key in trouble. At most `MOST` keys of a group are listed, those
whose head has waited longest; all are counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, NamedTuple

from tarry.client.retry.core.key_queue import Trouble, decode_trouble
from tarry.client.retry.core.names import RETRY, STATE, GroupTopics
from tarry.errors import UsageError
from tarry.kafka.errors import group_errors
from tarry.kafka.inspector import ANSWER_WITHIN_S, Inspector

MOST: Final = 500


@dataclass(frozen=True, slots=True)
class Group(GroupTopics):
    """A group of consumers that retry.

    Attributes:
        partitions: how many partitions its topic has.
    """

    partitions: int


class KeyInTrouble(NamedTuple):
    """A key in trouble, and its state."""

    partition: int
    key: bytes
    trouble: Trouble

    @property
    def behind(self) -> int:
        """How many messages of the key wait behind the head."""
        return max(self.trouble.length - 1, 0)


class GroupLook(NamedTuple):
    """What one look found of a group.

    Attributes:
        group: the group.
        in_trouble: how many keys are in trouble.
        behind: how many messages wait in their queues, heads included.
        keys: those that have waited longest.
        dead_at_most: how many dead letters there are, at most.
    """

    group: Group
    in_trouble: int
    behind: int
    keys: list[KeyInTrouble]
    dead_at_most: int


def groups_among(topics: Iterable[tuple[str, int]]) -> Iterator[Group]:
    """Return the groups that have a state topic and a retry topic.

    A topic's name and a group's may hold dots. The topic is the longest beginning that is a topic itself.

    Args:
        topics: the names of all topics, and how many partitions each has.
    """
    there = dict(topics)
    for name in sorted(there):
        whole = name.removesuffix(STATE)
        if whole == name or whole + RETRY not in there:
            continue
        parts = whole.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            topic = ".".join(parts[:cut])
            if there.get(topic) == there[name]:
                yield Group(topic, ".".join(parts[cut:]), there[topic])
                break


def look_at_groups(inspector: Inspector) -> list[GroupLook]:
    """Look at all groups.

    Raises:
        BrokerError: Kafka does not answer.
        UsageError: a state topic holds a record that no consumer of this version has written.
    """
    with group_errors("ask for the cluster's topics"):
        found = inspector.admin.list_topics(timeout=ANSWER_WITHIN_S).topics
    return [_look(inspector, one) for one in groups_among((name, len(one.partitions)) for name, one in found.items())]


def _look(inspector: Inspector, group: Group) -> GroupLook:
    logs = [(group.state, number) for number in range(group.partitions)]
    starts, ends = inspector.offsets.starts(logs), inspector.offsets.ends(logs, committed=True)
    troubles: dict[tuple[int, bytes], Trouble] = {}
    for (_, partition), record in inspector.records(starts, ends):
        key, value = (partition, record.key() or b""), record.value()
        if value is None:
            troubles.pop(key, None)
            continue
        try:
            troubles[key] = decode_trouble(value)
        except ValueError as error:
            raise UsageError(f"{group.state}/{partition} at offset {record.offset()}: {error}") from error
    dead = inspector.offsets.existing([(group.dead, number) for number in range(group.partitions)])
    dead_starts = inspector.offsets.starts(dead) if dead else {}
    dead_ends = inspector.offsets.ends(dead, committed=True) if dead else {}
    keys = (KeyInTrouble(partition, key, one) for (partition, key), one in troubles.items())
    return GroupLook(
        group,
        len(troubles),
        sum(one.length for one in troubles.values()),
        nsmallest(MOST, keys, key=lambda one: (not one.trouble.stopped, one.trouble.head_due_ms, one.partition)),
        sum(dead_ends[log] - dead_starts[log] for log in dead),
    )
