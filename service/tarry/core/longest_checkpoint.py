"""The length that a partition's checkpoint may reach.

Kafka refuses offset metadata of more than 4,095 characters, and so the transaction that commits it. This would happen
in the middle of operation, and repeat, once enough slots are closed and not emptied. But the longest text is known at
the start, from the producers' names, the levels, the most entries, and the largest numbers in them.
"""

from collections.abc import Sequence

from tarry.core.progress.checkpoint import Checkpoint, DrainingSlot, EmptyingSlot, Geometry
from tarry.core.progress.origin import Origin
from tarry.core.wheel.levels import slots_of
from tarry.core.wheel.overflow import MOST_ENTRIES

_OFFSET = (1 << 40) - 1
"""The largest offset of a slot or a journal that is assumed: decades at thousands of records per second."""

_MANY = (1 << 32) - 1
"""The most records of a slot that are not done, as assumed."""

_TIME_MS = (1 << 44) - 1
"""The latest time that is assumed: centuries from now."""

_AWAY_MS = 10 * 366 * 86_400_000
"""The longest time that a message may wait for its target or for a higher limit, which bounds the number of turns."""

_ID = "x" * 22
_CLUSTER = "x" * 36
"""Kafka's ids have 22 characters; a cluster id that was chosen by hand may be longer."""


def longest_checkpoint(writer: Sequence[str], geometry: Geometry) -> int:
    """Return the most characters that a checkpoint may have.

    Args:
        writer: the transactional ids of a process.
        geometry: the shape of the overflow wheel.
    """
    count = slots_of(geometry)
    slots = [
        (level, slot, _AWAY_MS // (count * geometry.width_of(level)))
        for level in range(1, geometry.levels + 1)
        for slot in range(count)
    ]
    slots.sort(key=lambda one: sum(len(f"{number:x}") for number in one if number), reverse=True)
    # A slot may be closed for its next turn before it is emptied.
    closed, done = slots[:MOST_ENTRIES], slots[: max(0, MOST_ENTRIES - len(slots))]
    return Checkpoint(
        writer=tuple(writer),
        released=True,
        geometry=geometry,
        closed_ms=(_TIME_MS,) * geometry.levels,
        draining=tuple(
            DrainingSlot(level, slot, _OFFSET, _OFFSET + _MANY, _OFFSET, turns) for level, slot, turns in closed
        ),
        emptying=tuple(EmptyingSlot(level, slot, _OFFSET) for level, slot, _ in done),
        pointer=_OFFSET,
        due_below_ms=_TIME_MS,
        origin=Origin(_CLUSTER, _ID, _ID, (_ID,) * geometry.levels),
    ).length
