"""How long the checkpoints of a partition may become.

Kafka refuses a text of more than 4,095 characters, and with it the transaction that it goes with: again and again, in
the middle of work, once so many slots are closed and not emptied. What the text takes is known before: names of
producers, levels, and as many entries as there may be, with the largest numbers that they come to.
"""

from collections.abc import Sequence

from tarry.core.progress.checkpoint import Checkpoint, DrainingSlot, EmptyingSlot, Geometry
from tarry.core.progress.origin import Origin
from tarry.core.wheel.levels import slots_of
from tarry.core.wheel.overflow import MOST_ENTRIES

_OFFSET = (1 << 40) - 1
"""Of a slot, which holds a part of what its partition takes, and of a journal: decades of thousands a second."""

_MANY = (1 << 32) - 1
"""Records of a slot that are not done."""

_TIME_MS = (1 << 44) - 1
"""Centuries ahead."""

_AWAY_MS = 10 * 366 * 86_400_000
"""As long may a message wait for its target, or for a limit to be raised: as often its slot comes round."""

_ID = "x" * 22
_CLUSTER = "x" * 36
"""Kafka's ids have 22 characters; that of a cluster may have been chosen."""


def longest_checkpoint(writer: Sequence[str], geometry: Geometry) -> int:
    """How many characters a checkpoint takes at most.

    Args:
        writer: the transactional ids of a process.
        geometry: of the overflow wheel.
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
