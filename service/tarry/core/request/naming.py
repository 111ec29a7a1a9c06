"""The name that a sender gives a message: one message of a key and a name waits at any time."""

from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, final

from tarry.core.progress.name_index import HASH_BYTES


class Condition(StrEnum):
    """When a named message is scheduled: the value of `tarry-if`."""

    ALWAYS = ""
    ABSENT = "absent"
    PRESENT = "present"


@final
class Planned(NamedTuple):
    """The place of a record in its schedule.

    Args:
        schedule: the id of the schedule, 36 ASCII characters.
        number: which occurrence the record is, from 1.
        follows: the offset of the record before it, which was delivered; None for the record that a sender wrote.
        due_ms: when it is due, as the rule says.
    """

    schedule: bytes
    number: int
    follows: int | None
    due_ms: int


@final
class Naming(NamedTuple):
    """The name of a message.

    Args:
        hash: stands for key and name (`hash_of`).
        condition: whether a message of the name must wait, must not wait, or may.
        planned: its place in its schedule; None if it is not repeated.
    """

    hash: bytes
    condition: Condition = Condition.ALWAYS
    planned: Planned | None = None


def hash_of(key: bytes, name: bytes) -> bytes:
    """Return the 16 bytes that stand for a key and a name.

    They are BLAKE2b-128 of the key's length (4 bytes, big-endian), the key and the name.
    """
    return blake2b(len(key).to_bytes(4) + key + name, digest_size=HASH_BYTES).digest()
