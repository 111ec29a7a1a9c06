"""Where a partition's records come from: its partition of the intake, or a bucket in the log of a level."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Source(NamedTuple):
    """The records of the intake itself, which is level 0, or of one bucket of a level.

    A bucket is a range of due times. Its records are in the level's log, between the records of other buckets: offsets
    are those of the log.

    Attributes:
        level: the level; 0 for the intake.
        bucket: the start of the bucket's time range, in widths of its level; 0 for the intake. In a level it is 0 for
            records that the service has not filed, because they have no due time.
    """

    level: int
    bucket: int


INTAKE = Source(0, 0)

Offsets = Mapping[Source, Sequence[int]]
"""Offsets by source."""
