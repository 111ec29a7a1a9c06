"""The status that the owner of an intake partition publishes: a record of `I.status`, which any client can read.

Key: the partition's number, in decimal. Value: JSON with the fields below; a reader ignores unknown fields and does not
read a record with a higher `v`. The last record of a key counts: each owner writes one when it has taken the partition
over, and again from time to time with the present figures (`figures`). So while a change of the configuration is rolled
out, the partitions of an intake have different statuses.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tarry.core.request.figures import Figures, read_figures
from tarry.core.request.intake_policy import IntakePolicy
from tarry.units import format_instant

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Status:
    """The status of one intake partition.

    Attributes:
        partition: its number.
        policy: what its owner accepts.
        owner: the name of the owner's process, which is the first part of its transactional ids.
        at_ms: when the owner took the partition over, epoch milliseconds.
        figures: how the partition and its owner do; None: not published.
    """

    partition: int
    policy: IntakePolicy
    owner: str
    at_ms: int
    figures: Figures | None = None

    def key(self) -> bytes:
        """Return the record's key."""
        return b"%d" % self.partition

    def value(self) -> bytes:
        """Return the record's value."""
        policy = self.policy
        fields: dict[str, Any] = {
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
            "same_key": policy.same_key,
            "intakes": sorted(policy.intakes),
        }
        if self.figures is not None:
            fields["figures"] = self.figures.fields()
        return json.dumps(fields).encode()


def parsed_status(value: bytes) -> Status:
    """Read the value that `Status.value` returned. Its policy has no horizon, which a status does not hold.

    Raises:
        ValueError: the value is not a status, or is of a later version.
    """
    try:
        found: dict[str, Any] = json.loads(value)
        if found["v"] != VERSION:
            raise ValueError(f"status version {found['v']}; this version of tarry reads version {VERSION}")
        policy = IntakePolicy(
            topic=found["intake"],
            targets=tuple(map(str, found["targets"] or ())),
            max_delay_ms=int(found["max_delay_ms"]),
            fixed_delay_ms=found["delay_ms"],
            fixed_target=found["target"],
            tick_ms=int(found["tick_ms"]),
            intakes=frozenset(found["intakes"]),
            dialect=found["dialect"],
            same_key=found.get("same_key"),  # an earlier service did not write it
        )
        figures = read_figures(found.get("figures"))
        status = Status(int(found["partition"]), policy, str(found["owner"]), int(found["at_ms"]), figures)
        format_instant(status.at_ms)
    except (KeyError, TypeError, RecursionError, AttributeError) as error:
        raise ValueError(f"not a status: {error!r}") from error
    return status
