"""Where a partition's records come from: its partition of the intake, a bucket of a level, or the parked log."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

PARKED: Final = 127
"""The level of the parked log in a `Source`; all levels of the overflow wheel are below it."""


class Source(NamedTuple):
    """The records of the intake itself, which is level 0, of one bucket of a level, or of one target in the parked log.

    A bucket is a range of due times. Its records are in the level's log, between the records of other buckets: offsets
    are those of the log. In the same way, the parked messages of all targets are in one log.

    Attributes:
        level: the level; 0 for the intake, `PARKED` for the parked log.
        bucket: the start of the bucket's time range, in widths of its level; 0 for the intake. In a level it is 0 for
            records that the service has not filed, because they have no due time. In the parked log it is the number
            of the target (`parked_log`).
    """

    level: int
    bucket: int


INTAKE = Source(0, 0)

Offsets = Mapping[Source, Sequence[int]]
"""Offsets by source."""
