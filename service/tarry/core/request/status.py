"""What the owner of an intake's partition says of itself: a record of `I.status`, which any client can read; pure.

Key: the partition's number, in decimal. Value: JSON with the fields below; a reader passes over what it does not know,
and takes a higher `v` for something it cannot read. The last record of a key counts: each owner writes one when
it has taken the partition over. So while a change of the configuration is rolled out, partitions say different things.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tarry.core.request.intake_policy import IntakePolicy
from tarry.units import format_instant

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Status:
    """What an owner says.

    Attributes:
        partition: of the intake.
        policy: what it accepts there.
        owner: the process: the first part of its transactional ids.
        at_ms: when it took the partition over, epoch milliseconds.
    """

    partition: int
    policy: IntakePolicy
    owner: str
    at_ms: int

    def key(self) -> bytes:
        """The record's key."""
        return b"%d" % self.partition

    def value(self) -> bytes:
        """The record's value."""
        policy = self.policy
        fields = {
            "v": VERSION,
            "intake": policy.topic,
            "partition": self.partition,
            "owner": self.owner,
            "at_ms": self.at_ms,
            "targets": None if policy.fixed_target is not None else list(policy.targets),
            "target": policy.fixed_target,
            "delay_ms": policy.fixed_delay_ms,
            "max_delay_ms": policy.max_delay_ms,
            "tick_ms": policy.tick_ms,
            "dialect": policy.dialect,
            "intakes": sorted(policy.intakes),
        }
        return json.dumps(fields).encode()


def parsed_status(value: bytes) -> Status:
    """Read back what `Status.value` has written.

    Raises:
        ValueError: it is something else, or of a later version.
    """
    try:
        found: dict[str, Any] = json.loads(value)
        if found["v"] != VERSION:
            raise ValueError(f"version {found['v']}; {VERSION} is known here")
        policy = IntakePolicy(
            topic=found["intake"],
            targets=tuple(map(str, found["targets"] or ())),
            max_delay_ms=int(found["max_delay_ms"]),
            fixed_delay_ms=found["delay_ms"],
            fixed_target=found["target"],
            tick_ms=int(found["tick_ms"]),
            intakes=frozenset(found["intakes"]),
            dialect=found["dialect"],
        )
        status = Status(int(found["partition"]), policy, str(found["owner"]), int(found["at_ms"]))
        format_instant(status.at_ms)
    except (KeyError, TypeError, RecursionError, AttributeError) as error:
        raise ValueError(f"not a status: {error!r}") from error
    return status
