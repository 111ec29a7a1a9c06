"""Kafka's assignors: how the partitions of topics are divided among the members of a group.

range        each topic by itself: a member gets the same partitions of each topic
roundrobin   the partitions of all topics in turn
uniform      the partitions of all topics evenly; each member keeps what it has as far as possible (KIP-848)
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import cycle

from tarry.kafka.types import Place

Assignment = dict[str, list[Place]]
Assignor = Callable[[Mapping[str, Sequence[str]], Callable[[str], int], Mapping[str, Collection[Place]]], Assignment]
"""Divides partitions.

Takes the topics by member, with the members in the order of their ranks; a function that returns the number of
partitions of a topic; and what each member has.
"""


def chosen(preferences: Iterable[Sequence[str]]) -> str:
    """Return the assignor of a group: the one that most members prefer.

    In a classic group, only those count that all members name. In a KIP-848 group each member names one, and the
    brokers know all of them.

    Args:
        preferences: the assignors that each member names, the preferred one first.
    """
    lists = list(preferences)
    known = set.intersection(*map(set, lists)) or {others[0] for others in lists}
    votes = Counter(next(name for name in others if name in known) for others in lists)
    return max(sorted(known), key=lambda name: votes[name])


def _topics(wanted: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({topic for topics in wanted.values() for topic in topics})


def _places(wanted: Mapping[str, Sequence[str]], count: Callable[[str], int]) -> list[Place]:
    return [(topic, partition) for topic in _topics(wanted) for partition in range(count(topic))]


def _ranges(
    wanted: Mapping[str, Sequence[str]], count: Callable[[str], int], _owned: Mapping[str, Collection[Place]]
) -> Assignment:
    """Give each member a range of partitions of each topic; if they do not divide evenly, the first ones get more."""
    given: Assignment = {member: [] for member in wanted}
    for topic in _topics(wanted):
        members = [member for member, topics in wanted.items() if topic in topics]
        each, more = divmod(count(topic), len(members))
        first = 0
        for rank, member in enumerate(members):
            share = each + (rank < more)
            given[member] += [(topic, partition) for partition in range(first, first + share)]
            first += share
    return given


def _in_turn(
    wanted: Mapping[str, Sequence[str]], count: Callable[[str], int], _owned: Mapping[str, Collection[Place]]
) -> Assignment:
    """Go round the members, and give the next partition to the next one that wants its topic."""
    given: Assignment = {member: [] for member in wanted}
    turns = cycle(wanted)
    for place in _places(wanted, count):
        given[next(member for member in turns if place[0] in wanted[member])].append(place)
    return given


def _evenly(
    wanted: Mapping[str, Sequence[str]], count: Callable[[str], int], owned: Mapping[str, Collection[Place]]
) -> Assignment:
    """Let each member keep up to its share of what it has, and give the rest to those that have least."""
    there = _places(wanted, count)
    each, more = divmod(len(there), len(wanted))
    given: Assignment = {}
    for member, topics in wanted.items():
        kept = [place for place in there if place in owned.get(member, ()) and place[0] in topics]
        share = each + (more > 0 and len(kept) > each)
        more -= share > each
        given[member] = kept[:share]
    left = set(there).difference(*given.values())
    for place in sorted(left):
        members = [member for member, topics in wanted.items() if place[0] in topics]
        given[min(members, key=lambda member: len(given[member]))].append(place)
    return given


ASSIGNORS: Mapping[str, Assignor] = {"range": _ranges, "roundrobin": _in_turn, "uniform": _evenly}
