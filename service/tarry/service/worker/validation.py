"""Verdicts on due messages: a message that can never be delivered becomes a dead letter of the same batch.

A record that the brokers refuse aborts the whole transaction. So the service predicts refusals here where it can.
"""

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from tarry.core.delivery import delivery_headers, source_prefix
from tarry.core.message import HeldMessage
from tarry.core.wire import batch_bytes
from tarry.headers import ErrorCode
from tarry.kafka.types import Place
from tarry.service.worker.batches import Batches
from tarry.service.worker.targets import Targets

if TYPE_CHECKING:
    from tarry.core.batch import Batch

Verdict = tuple[str, str]
"""An error code and a line of text that explains it."""

Verdicts = dict[tuple[Place, int], Verdict]
"""The messages that the brokers have refused permanently, by place and offset."""

_NONE: Verdicts = {}


def validate(
    batches: Batches,
    missing: Container[str],
    targets: Targets,
    now_ms: int,
    refused: Mapping[tuple[Place, int], Verdict] = _NONE,
) -> set[str]:
    """Turn messages that can never be delivered into dead letters.

    Args:
        batches: taken, and not settled.
        missing: targets that do not exist.
        targets: the metadata and settings of the others.
        now_ms: monotonic time, taken before `Targets.learn`.
        refused: messages that the brokers have refused before.

    Returns:
        Targets that the brokers must be asked about again first, because stale knowledge of them condemns messages. If
        there are any, nothing was changed.
    """
    doubtful: set[str] = set()
    condemned: list[tuple[Batch, dict[int, Verdict]]] = []
    for state, batch in batches:
        place = state.place
        prefix = source_prefix(*place)
        verdicts: dict[int, Verdict] = {}
        for message in batch.due:
            target = message.target
            if (verdict := refused.get((place, message.sequence))) is None:
                if target in missing:
                    verdict = ErrorCode.UNKNOWN_TARGET, f"no topic of this name: {target}"
                elif (verdict := _on_target(message, prefix, targets)) and not targets.is_fresh(target, now_ms):
                    doubtful.add(target)
            if verdict is not None:
                verdicts[message.sequence] = verdict
        if verdicts:
            condemned.append((batch, verdicts))
    if not doubtful:
        for batch, verdicts in condemned:
            batch.give_up(verdicts)
    return doubtful


def may_condemn(batches: Batches, topics: Iterable[str], targets: Targets) -> bool:
    """Return whether `judge` may condemn a message: a cheap check, mostly false, that saves a look at each message.

    Args:
        batches: taken, and not settled; it does not check messages that ask for a partition, which need `judge` anyway.
        topics: all targets in them.
        targets: the metadata and settings of these.
    """
    largest = max((state.largest_bytes for state, _ in batches), default=0)
    return any(targets.needs_keys(topic) or largest >= (targets.refuses_from(topic) or largest + 1) for topic in topics)


def _on_target(message: HeldMessage, prefix: bytes, targets: Targets) -> Verdict | None:
    target = message.target
    count = targets.partitions[target]
    if message.target_partition >= count:
        return ErrorCode.BAD_PARTITION, f"{target} has {count} partitions, no {message.target_partition}"
    if message.key is None and targets.needs_keys(target):
        return ErrorCode.NULL_KEY, f"{target} is compacted, and takes no record without a key"
    refuses_from = targets.refuses_from(target)
    if refuses_from is not None and message.size_bytes >= refuses_from:
        # The held size is cheap to read, and never below the size on the wire.
        headers = delivery_headers(message, prefix + b"%d" % message.sequence)
        size = batch_bytes(message.key, message.value, headers)
        if size >= refuses_from:
            return ErrorCode.TOO_LARGE, f"{target} takes no more than {refuses_from - 1} bytes, and this is {size}"
    return None
