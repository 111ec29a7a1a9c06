"""Handles: they identify a sent message, for a cancel or a search.

A handle is the text `1.<intake topic>.<partition>.<due_ms>.<id>`. A program that knows the parts can build it. It needs
no index, because the due time alone tells in which bucket the message waits. A topic may contain dots, so a handle is
parsed from both ends: the version is the first part; partition, due time and id are the last three.
"""

import re
from dataclasses import dataclass
from typing import Self

from tarry.errors import HeaderError

_VERSION = "1"
_HANDLE = re.compile(
    r"1\.(?P<topic>[a-zA-Z0-9._-]{1,249})\.(?P<partition>0|[1-9][0-9]{0,9})\.(?P<due_ms>0|[1-9][0-9]{0,14})"
    r"\.(?P<id>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
)
_MAX_PARTITION = 2**31 - 1
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Handle:
    """Identifies a message of an intake.

    Args:
        topic: the intake.
        partition: the intake's partition.
        due_ms: the due time, milliseconds since the epoch, already rounded up to the service's tick.
        id: the message's `tarry-id`, 36 characters in lower case.
    """

    topic: str
    partition: int
    due_ms: int
    id: str

    def __str__(self) -> str:
        return f"{_VERSION}.{self.topic}.{self.partition}.{self.due_ms}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle.

        Raises:
            HeaderError: the text is not a handle, or its version is unknown.
        """
        match = _HANDLE.fullmatch(text)
        if match is None or int(match["partition"]) > _MAX_PARTITION:
            seen = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
            raise HeaderError(f"not a handle (1.<intake>.<partition>.<due_ms>.<id>): {seen!r}")
        return cls(match["topic"], int(match["partition"]), int(match["due_ms"]), match["id"].lower())
