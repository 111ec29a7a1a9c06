"""Kafka's range assignor."""

from collections.abc import Callable, Mapping, Sequence

from tarry.kafka.types import Place


def assign_ranges(wanted: Mapping[str, Sequence[str]], count: Callable[[str], int]) -> dict[str, list[Place]]:
    """Assign each member a range of partitions of each topic. If they do not divide evenly, the first members get more.

    Args:
        wanted: the topics by member, with the members in the order of their ranks.
        count: returns the number of partitions of a topic.
    """
    given: dict[str, list[Place]] = {member: [] for member in wanted}
    for topic in sorted({topic for topics in wanted.values() for topic in topics}):
        members = [member for member, topics in wanted.items() if topic in topics]
        each, more = divmod(count(topic), len(members))
        first = 0
        for rank, member in enumerate(members):
            share = each + (rank < more)
            given[member] += [(topic, partition) for partition in range(first, first + share)]
            first += share
    return given
