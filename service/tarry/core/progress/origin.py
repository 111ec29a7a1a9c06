"""What the offsets of a checkpoint are offsets of: the cluster, and the topics by their ids (KIP-516).

A topic that was deleted and made anew has the same name and another id, and so has one that a mirror made in another
cluster. An offset means nothing there: what it calls done, nobody has delivered.

In a checkpoint: ids split by `,`, cluster, intake, journal, and the levels of the overflow wheel from 1 on. One that is
not known is empty, and is not compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self


@dataclass(frozen=True, slots=True)
class Origin:
    """The ids of a cluster and of topics in it; empty where one is not known.

    Attributes:
        cluster: of the cluster.
        intake: of the intake.
        journal: of its journal.
        levels: of the topics of its overflow wheel, from level 1 on.
    """

    cluster: str = ""
    intake: str = ""
    journal: str = ""
    levels: tuple[str, ...] = ()

    @classmethod
    def of(cls, ids: list[str]) -> Self:
        """From ids in the order of a checkpoint.

        Raises:
            ValueError: there are too few.
        """
        cluster, intake, journal, *levels = ids
        return cls(cluster, intake, journal, tuple(levels))

    def ids(self) -> Iterator[str]:
        """All ids, in the order of a checkpoint."""
        return chain((self.cluster, self.intake, self.journal), self.levels)

    def is_of_cluster(self, now: "Origin") -> bool:
        """Whether it is not known to be of another cluster."""
        return not _differ(self.cluster, now.cluster)

    def has_level(self, level: int, now: "Origin") -> bool:
        """Whether the topic of a level is not known to be another one."""
        return level > min(len(self.levels), len(now.levels)) or not _differ(
            self.levels[level - 1], now.levels[level - 1]
        )

    def knows_all_of(self, now: "Origin") -> bool:
        """Whether it names whatever is known now."""
        return all(had or not has for had, has in zip(self.ids(), now.ids(), strict=False)) and len(self.levels) >= len(
            now.levels
        )

    def changes(self, intake: str, now: "Origin") -> list[str]:
        """What is another one now, each in a few words that name both ids; empty where nothing is.

        Args:
            intake: the topic's name.
            now: as it is.
        """
        if not self.is_of_cluster(now):
            return [f"cluster {self.cluster}, and this is cluster {now.cluster}"]
        names = topics_of(intake, len(self.levels))
        had, has = (self.intake, self.journal, *self.levels), (now.intake, now.journal, *now.levels)
        return [
            f"topic {name} with id {one}, and it has {other} now: it was deleted and made anew"
            for name, one, other in zip(names, had, has, strict=False)
            if _differ(one, other)
        ]


UNKNOWN = Origin()


def topics_of(intake: str, levels: int) -> list[str]:
    """The topics whose ids a checkpoint names, in its order."""
    return [intake, f"{intake}.journal", *(f"{intake}.wheel-{level}" for level in range(1, levels + 1))]


def _differ(had: str, has: str) -> bool:
    return bool(had and has) and had != has
