"""What the topics of a consumer that tries again are called."""

from dataclasses import dataclass

RETRY, STATE, DEAD = ".retry", ".retry-state", ".dead"
"""What the names of topics beside a topic and a group end with."""


@dataclass(frozen=True, slots=True)
class Names:
    """The topics of a consumer.

    Attributes:
        topic: whose messages are handled.
        group: who handles them.
        intake: where they are sent off to.
    """

    topic: str
    group: str
    intake: str

    @property
    def retry(self) -> str:
        """Where they come back."""
        return f"{self.topic}.{self.group}{RETRY}"

    @property
    def state(self) -> str:
        """Which keys are in trouble."""
        return f"{self.topic}.{self.group}{STATE}"

    @property
    def dead(self) -> str:
        """What was given up."""
        return f"{self.topic}.{self.group}{DEAD}"
