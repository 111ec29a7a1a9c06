"""What a dry run found: which records it would be, and how many of each kind."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from tarry.api.operations.picked import Picked
from tarry.api.operations.records import MOST_COUNTS

SHOWN: Final = 10
"""How many records a dry run shows."""

OTHERS: Final = "…"
"""What stands for all codes beyond the most that are counted."""

_Found = TypeVar("_Found")


@dataclass(slots=True)
class Pick(Generic[_Found]):
    """The records that a dry run found.

    Attributes:
        topic_id: the id of their topic.
        most: how many it takes.
        places: their partitions and offsets.
        targets: how many are for each target; empty for those without one.
        codes: how many dead letters have each code.
        left_out: how many fit and cannot be handled, by a word that says why.
        sample: the first of them.
        is_whole: whether all that fit were found.
        first_ms: the earliest due time of the messages.
        last_ms: the latest one.
    """

    topic_id: str
    most: int
    places: list[tuple[int, int]] = field(default_factory=list)
    targets: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    sample: list[_Found] = field(default_factory=list)
    is_whole: bool = True
    first_ms: int = 0
    last_ms: int = 0

    def take(self, place: tuple[int, int], found: _Found, target: str | None, code: str | None = None) -> bool:
        """Take a record; return whether there was room."""
        is_new = (target or "") not in self.targets and len(self.targets) >= MOST_COUNTS
        if len(self.places) >= self.most or is_new:
            self.is_whole = False
            return False
        self.places.append(place)
        self.targets[target or ""] += 1
        if code is not None:
            self.codes[code if code in self.codes or len(self.codes) < MOST_COUNTS else OTHERS] += 1
        if len(self.sample) < SHOWN:
            self.sample.append(found)
        return True

    def picked(self) -> Picked:
        """Return the records."""
        return Picked.of(self.places)
