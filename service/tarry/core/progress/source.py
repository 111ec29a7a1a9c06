"""The logs that a partition's records come from: a partition of the intake, and the slots of the overflow wheel."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Source(NamedTuple):
    """A log with records of one intake partition: the intake itself, which is level 0, or a slot of a level."""

    level: int
    slot: int


INTAKE = Source(0, 0)

Offsets = Mapping[Source, Sequence[int]]
"""Offsets by log."""
