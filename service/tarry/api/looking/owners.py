"""Which process serves each partition: what the group assigns, what the owner published, what refuses it; pure."""

from collections.abc import Mapping, Sequence

from tarry.api.looking.models import PartitionRow
from tarry.api.looking.published import Published, is_stale
from tarry.api.looking.reading import IntakeLook, PartitionLook
from tarry.core.request.figures import Figures
from tarry.kafka.group import Owner
from tarry.kafka.types import Place


def partition_rows(
    look: IntakeLook, owners: Sequence[Owner], published: Published, refusals: Mapping[Place, str], now_ms: int
) -> list[PartitionRow]:
    """Return the partitions of an intake.

    Args:
        look: what a look at it found.
        owners: the members of the service's group.
        published: what the owners published.
        refusals: why no process can take a partition over, of those that are not served.
        now_ms: the present time.
    """
    held = {place: owner.client for owner in owners for place in owner.places}
    members = {owner.client for owner in owners}
    return [
        _row(one, held.get(one.place), published, refusals.get(one.place), len(members), now_ms)
        for one in look.partitions
    ]


def _row(
    look: PartitionLook, member: str | None, published: Published, refusal: str | None, members: int, now_ms: int
) -> PartitionRow:
    status, figures = published.statuses.get(look.place[1]), published.figures.get(look.place[1])
    if refusal is not None:
        state = "quarantined"
    elif member is None:
        state = "unassigned" if look.is_known else "new"
    else:
        state = "idle" if look.is_released or not look.is_known else "served"
    others = "the next start" if members <= 1 else "one other process" if members == 2 else f"{members - 1} processes"
    return PartitionRow.model_validate(
        {
            "intake": look.place[0],
            "partition": look.place[1],
            "state": state,
            "owner": status.owner if status and state == "served" else None,
            "member": member,
            "owned_since": status.at_ms if status and state == "served" else None,
            "stands_by": others,
            "at_most": look.at_most,
            "in_memory_at_most": look.in_memory,
            "parked_at_most": look.parked,
            "journal_records": look.journal_records,
            "names": look.names,
            "late_since": look.late_since_ms,
            "refusal": refusal,
            "kept_by": published.standing_by(f"{look.place[0]}/{look.place[1]}"),
            **({} if figures is None else _figures(figures, now_ms)),
        }
    )


def _figures(figures: Figures, now_ms: int) -> dict[str, object]:
    return {
        "figures_as_of": figures.at_ms,
        "figures_are_stale": is_stale(figures.at_ms, now_ms),
        "held": figures.held,
        "memory_bytes": figures.bytes,
        "process_bytes": figures.process.resident_bytes,
        "process_takeovers": figures.process.takeovers,
        "clock_skew_ms": figures.process.clock_skew_ms,
        "obeyed": figures.obeyed,
    }


def not_served(rows: Sequence[PartitionRow]) -> list[int]:
    """Return the numbers of the partitions that no process serves."""
    return [row.partition for row in rows if row.state != "served"]
