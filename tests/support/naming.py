"""Names of a partition, for tests of its parts."""

from tarry.core.progress.name_records import NameRecords
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names


def no_names(memory: Memory | None = None) -> Names:
    """Return the names of a partition that has none."""
    return Names(("intake", 0), NameRecords(), None, 0, 0, Memory() if memory is None else memory)
