"""When the memory of a process is full, so that it reads nothing more until messages have left.

Beside messages, memory holds names, known ids and due times. They stay when messages leave, and some of them leave only
after other messages were read. So waiting for them could be a deadlock, and memory that they alone fill is not full:
messages can still have `LEAST_SHARE` of it.
"""

from collections.abc import Iterable

from tarry.core.partition import PartitionState

LEAST_SHARE = 0.05
"""The share of the memory for held messages that messages can always have, whatever else is held.

All partitions together get it.
"""


def is_full(states: Iterable[PartitionState], budget_bytes: float) -> bool:
    """Whether partitions hold more than a budget, and enough messages that it helps to wait until some have left."""
    all_bytes = held_bytes = 0
    for state in states:
        all_bytes += state.memory_bytes
        held_bytes += state.held_bytes
    return all_bytes > budget_bytes and held_bytes > budget_bytes * LEAST_SHARE
