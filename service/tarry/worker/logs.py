"""Which partition of which topic a log of a partition is: the intake, or a slot of its overflow wheel."""

from tarry.core.partition import PartitionState
from tarry.core.source import INTAKE, Source
from tarry.kafka.place import Place
from tarry.kafka.topics import wheel_topic


def log_of(state: PartitionState, source: Source) -> Place:
    """Where the records of a source stand."""
    if source == INTAKE:
        return state.place
    return wheel_topic(state.intake, source.level), state.partition * state.overflow.slots + source.slot
