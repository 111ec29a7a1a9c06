"""The names of a retrying consumer's topics."""

from dataclasses import dataclass

RETRY, STATE, DEAD = ".retry", ".retry-state", ".dead"
"""The suffixes of the topics that belong to a topic and a group."""


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics that belong to a topic and a group.

    Attributes:
        topic: the topic that the group consumes.
        group: the consumer group.
    """

    topic: str
    group: str

    @property
    def retry(self) -> str:
        """The topic through which messages come back."""
        return f"{self.topic}.{self.group}{RETRY}"

    @property
    def state(self) -> str:
        """The compacted topic with the keys in trouble."""
        return f"{self.topic}.{self.group}{STATE}"

    @property
    def dead(self) -> str:
        """The topic of dead letters: messages that were given up."""
        return f"{self.topic}.{self.group}{DEAD}"


@dataclass(frozen=True, slots=True)
class Names(GroupTopics):
    """The topics of a consumer.

    Attributes:
        intake: the intake that failed messages are sent to.
    """

    intake: str
