"""The origin of a checkpoint: the ids of the cluster and of the topics that its offsets belong to (KIP-516).

A topic that was deleted and created again has the same name but another id. So has a topic that a mirror creates in
another cluster. The offsets of a checkpoint are wrong there: records below them were not delivered.

In a checkpoint: ids separated by `,`: cluster, intake, journal, and the levels of the overflow wheel from 1 on. An
unknown id is empty, and is not compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Self


@dataclass(frozen=True, slots=True)
class Origin:
    """The ids of a cluster and of topics in it; an unknown id is empty.

    Attributes:
        cluster: the cluster's id.
        intake: the id of the intake's topic.
        journal: the id of the journal's topic.
        levels: the ids of the overflow wheel's topics, from level 1 on.
    """

    cluster: str = ""
    intake: str = ""
    journal: str = ""
    levels: tuple[str, ...] = ()

    @classmethod
    def of(cls, ids: list[str]) -> Self:
        """Make an origin from ids in the order of a checkpoint.

        Raises:
            ValueError: there are fewer than three ids.
        """
        cluster, intake, journal, *levels = ids
        return cls(cluster, intake, journal, tuple(levels))

    def ids(self) -> Iterator[str]:
        """Return all ids, in the order of a checkpoint."""
        return chain((self.cluster, self.intake, self.journal), self.levels)

    def is_of_cluster(self, now: "Origin") -> bool:
        """Whether the cluster is the same, or one of the two ids is unknown."""
        return not _differ(self.cluster, now.cluster)

    def has_level(self, level: int, now: "Origin") -> bool:
        """Whether the topic of a level is the same, or one of the two ids is unknown."""
        return level > min(len(self.levels), len(now.levels)) or not _differ(
            self.levels[level - 1], now.levels[level - 1]
        )

    def knows_all_of(self, now: "Origin") -> bool:
        """Whether this origin has an id wherever `now` has one."""
        return all(had or not has for had, has in zip(self.ids(), now.ids(), strict=False)) and len(self.levels) >= len(
            now.levels
        )

    def changes(self, intake: str, now: "Origin") -> list[str]:
        """Return a phrase for each difference, with both ids; empty if there is none.

        Args:
            intake: the intake's name.
            now: the present ids.
        """
        if not self.is_of_cluster(now):
            return [f"cluster {self.cluster}, and this is cluster {now.cluster}"]
        names = identified_topics(intake, len(self.levels))
        had, has = (self.intake, self.journal, *self.levels), (now.intake, now.journal, *now.levels)
        return [
            f"topic {name} with id {one}, and it has {other} now: it was deleted and recreated"
            for name, one, other in zip(names, had, has, strict=False)
            if _differ(one, other)
        ]


UNKNOWN = Origin()


def identified_topics(intake: str, levels: int) -> list[str]:
    """Return the names of the topics whose ids a checkpoint has, in its order."""
    return [intake, f"{intake}.journal", *[f"{intake}.wheel-{level}" for level in range(1, levels + 1)]]


def _differ(had: str, has: str) -> bool:
    return bool(had and has) and had != has
