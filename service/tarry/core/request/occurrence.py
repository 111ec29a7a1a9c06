"""The occurrences of a schedule, which is a message that is repeated.

The transaction that delivers an occurrence also writes the next record of the schedule to the intake.
"""

from typing import NamedTuple

from tarry.core.message import FiledMessage
from tarry.core.progress.source import INTAKE
from tarry.core.request.header_values import HeaderFault
from tarry.core.request.naming import Planned
from tarry.core.request.request import Request
from tarry.core.request.rule import read_rule
from tarry.core.request.schedules import next_header, shift_of
from tarry.headers import ID, NEXT


class Follower(NamedTuple):
    """The next record of a schedule, to be written to the intake. Key and value are those of the record before.

    Attributes:
        due_ms: when it is due.
        headers: all its headers.
    """

    due_ms: int
    headers: list[tuple[str, str | bytes | None]]


class Occurrence(FiledMessage):
    """An occurrence of a schedule.

    Attributes:
        schedule: the id of the schedule, 36 ASCII characters.
        number: which occurrence it is, from 1.
    """

    __slots__ = ("number", "schedule")

    schedule: bytes
    number: int

    @property
    def asker(self) -> bytes:
        """The id under which a sender asked for it: that of the schedule."""
        return self.schedule

    @property
    def size_bytes(self) -> int:
        """The approximate memory that it takes, and its next record beside it."""
        return 2 * super().size_bytes

    def follower(self, now_ms: int, tick_ms: int) -> Follower | None:
        """Return the next record; None if the rule has no more times.

        It is due after this one and after now, so that what was missed is not made up for.

        Args:
            now_ms: wall time.
            tick_ms: due times are rounded up to multiples of this.
        """
        headers = self.original_headers
        found, after_ms = dict(headers), max(now_ms, self.due_ms)
        rule, shift_ms = read_rule(found), shift_of(found, self.schedule)
        due_ms: int | None
        if isinstance(rule, HeaderFault) or isinstance(shift_ms, HeaderFault):
            # Another version of tarry or tzdata accepted it: the next record becomes a dead letter, which says why.
            due_ms = after_ms
        elif (due_ms := rule.after(after_ms - shift_ms)) is not None:
            due_ms += shift_ms
        if due_ms is None:
            return None
        due_ms = -(-due_ms // tick_ms) * tick_ms
        kept: list[tuple[str, str | bytes | None]] = [one for one in headers if one[0] not in (ID, NEXT)]
        kept += [(ID, self.schedule), next_header(self.sequence, due_ms, self.number + 1)]
        return Follower(due_ms, kept)


def occurrence_of(
    request: Request,
    planned: Planned,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | None,
) -> Occurrence:
    """Return the occurrence of a record of the intake.

    Args:
        request: what the record asks for.
        planned: its place in its schedule.
        offset: the record's offset.
        key: the record's key.
        value: the record's value.
        headers: the record's headers.
    """
    due_ms, target, target_partition, message_id, carries, _, naming, expires_ms = request
    message = Occurrence(due_ms, offset, key, value, headers, carries, target, target_partition, message_id)
    message.source, message.offset = INTAKE, offset
    message.schedule, message.number = planned.schedule, planned.number
    message.name = None if naming is None else naming.hash
    message.expires_ms = expires_ms
    return message
