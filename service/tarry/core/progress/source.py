"""Where a partition's records come from: its part of the intake, and its buckets of the overflow wheel."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Source(NamedTuple):
    """A log that holds records of one intake partition: the intake, which is level 0, or a slot of a level."""

    level: int
    slot: int


INTAKE = Source(0, 0)

Offsets = Mapping[Source, Sequence[int]]
"""Offsets by the log that they belong to."""
