"""Verdicts on messages that are due: what can never be delivered becomes a dead letter of the same batch."""

from collections.abc import Container, Iterable, Mapping

from tarry.core.message import HeldMessage
from tarry.core.partition import Batch, PartitionState
from tarry.headers import ErrorCode
from tarry.kafka.place import Place

Verdict = tuple[str, str]
"""An error code and one line for people."""

Verdicts = dict[tuple[Place, int], Verdict]
"""What the brokers have refused for ever, by place and offset."""


def judge(
    batches: Iterable[tuple[PartitionState, Batch]],
    missing: Container[str],
    counts: Mapping[str, int],
    refused: Mapping[tuple[Place, int], Verdict],
) -> None:
    """Turn what can never be delivered into dead letters.

    Args:
        batches: taken, and not settled.
        missing: targets that do not exist.
        counts: how many partitions the others have.
        refused: what the brokers have refused before.
    """
    for state, batch in batches:
        place = (state.intake, state.partition)
        verdicts = {}
        for message in batch.due:
            verdict = refused.get((place, message.sequence)) or _on_target(message, missing, counts)
            if verdict is not None:
                verdicts[message.sequence] = verdict
        if verdicts:
            state.give_up(batch, verdicts)


def _on_target(message: HeldMessage, missing: Container[str], counts: Mapping[str, int]) -> Verdict | None:
    target = message.target
    if target in missing:
        return ErrorCode.UNKNOWN_TARGET, f"no topic of this name: {target}"
    if message.target_partition >= counts[target]:
        return ErrorCode.BAD_PARTITION, f"{target} has {counts[target]} partitions, no {message.target_partition}"
    return None
