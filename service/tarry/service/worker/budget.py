"""What bounds the memory of a process: shares of the budget for held messages, and when it reads nothing more.

Beside messages, memory holds names, known ids and due times. They stay when messages leave, and some of them leave only
after other messages were read. So waiting for them could be a deadlock, and memory that they alone fill is not full:
messages can still have `LEAST_SHARE` of it.
"""

from collections.abc import Iterable

from tarry.core.partition import PartitionState

RESUME_AT = 0.8
"""Reading resumes when the memory has fallen to this share of the budget."""

DRAINING_SHARE = 0.5
"""The share of the budget that draining buckets may fill."""

PARKED_SHARE = 0.125
"""The share of the budget for parked messages; messages being read again from the parked log take as much."""

KNOWN_SHARE = 0.125
"""The share of the budget for remembering recently delivered messages, so that duplicates are recognised."""

LEAST_SHARE = 0.05
"""The share of the budget that messages can always have, whatever else is held; all partitions together get it."""

PAUSE_AT = 4
"""All reading pauses when this many times `most_to_file` wait to be filed: they are due too soon to be passed over."""


def is_full(states: Iterable[PartitionState], budget_bytes: float) -> bool:
    """Whether partitions hold more than a budget, and enough messages that it helps to wait until some have left."""
    all_bytes = held_bytes = 0
    for state in states:
        all_bytes += state.memory_bytes
        held_bytes += state.held_bytes
    return all_bytes > budget_bytes and held_bytes > budget_bytes * LEAST_SHARE


def is_behind(states: Iterable[PartitionState], most: int) -> bool:
    """Whether more than `most` messages wait to be filed, and may be filed now.

    Args:
        states: partitions whose messages are filed by the same producer.
        most: the bound.
    """
    return sum(state.placing.to_file - state.placing.held_up for state in states) > most
