"""Kafka's range assignor."""

from collections.abc import Callable, Mapping, Sequence

from tarry.kafka.types import Place


def assign_ranges(wanted: Mapping[str, Sequence[str]], count: Callable[[str], int]) -> dict[str, list[Place]]:
    """Give each member neighbouring partitions of each topic; the first ones get one more where it does not divide.

    Args:
        wanted: topics by member; the members in the order of their ranks.
        count: how many partitions a topic has.
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
