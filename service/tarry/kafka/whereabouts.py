"""Finding a message by its handle: it waits, or it has a result, or it is unknown.

    1. results from its due time on      quick to read, and most messages in the past were delivered
    2. the journal, the intake, the buckets that its due time can be in, from the highest level down, the parked log
    3. results from its due time on, once more: it may have been delivered meanwhile
    4. older results                     cancelled, dead, or a duplicate, before it was due

A message that moves meanwhile is not missed, because messages move in the direction in which this reads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tarry.core.murmur2 import partition_of
from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.source import Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.levels import Bucket
from tarry.handle import Handle
from tarry.headers import Outcome, id_text
from tarry.kafka.backlog import Backlog
from tarry.kafka.backlog_index import bucket_offsets
from tarry.kafka.inspector import Inspector, Repeated, States, Waiting

_RANK = (
    Outcome.FIRED,
    Outcome.DEAD,
    Outcome.CANCELLED,
    Outcome.REPLACED,
    Outcome.SKIPPED,
    Outcome.DUPLICATE,
)
"""If there are several results, the first of these counts: a cancelled message may have been sent again."""


@dataclass(slots=True)
class Whereabouts:
    """The state of a message.

    Attributes:
        result: its result record, as the service wrote it.
        waits_in: the intake, the bucket, or the parked log, in which it waits.
        bucket: the bucket in which it waits, and the end of the bucket's time; None elsewhere.
        cancel_waits: whether a cancel of it waits that has not met it yet.
        is_served: whether the service has ever taken its partition over.
        will_be_dead: whether it becomes a dead letter once the service reads it.
        repeated: the schedule of which it is an occurrence, if it waits; None if it is not repeated.
        id: the id of the message that waits; that of a schedule stands for its occurrence.
        message: the record of the message that waits.
    """

    result: dict[str, Any] | None = None
    waits_in: Source | None = None
    bucket: tuple[Bucket, int] | None = None
    cancel_waits: bool = False
    is_served: bool = True
    will_be_dead: bool = False
    repeated: Repeated | None = None
    id: str | None = None
    message: Waiting | None = None


Spot = tuple[int, int]
"""A level of the overflow wheel, and an offset in the level's log."""

SEARCHED: Final = 20_000
"""How many offsets of a bucket are searched for a cancel of a message whose spot is known."""


LOOKS: Final = 5
"""How often to look for the message of a name: an occurrence may be delivered meanwhile, and the next one waits."""


def find(inspector: Inspector, handle: Handle, policy: IntakePolicy, spot: Spot | None = None) -> Whereabouts:
    """Look for a message.

    Args:
        inspector: reads the logs.
        handle: of the message. With the id of a schedule, it is the occurrence of that due time.
        policy: of its intake.
        spot: where a list has met it: if it waits there, a large bucket is not searched, not even for a cancel of it.

    Raises:
        UsageError: there is no such intake or partition.
        BrokerError: no answer.
    """
    place = (handle.topic, handle.partition)
    [backlog] = inspector.survey(*place)
    whereabouts = Whereabouts(is_served=backlog.checkpoint is not None)
    since = inspector.results_since(place, handle.due_ms)
    search = _Search(inspector, handle, policy, spot)
    found = search.results(since, None)
    if found is not None and found["outcome"] != Outcome.DUPLICATE:
        whereabouts.result = found
        return whereabouts
    search.waiting(whereabouts)
    if whereabouts.waits_in is None:
        whereabouts.result = search.best([search.results(since, None), search.results(None, since)])
    return whereabouts


def targets_under(inspector: Inspector, intake: str, key: bytes, name: bytes, policy: IntakePolicy) -> set[str | None]:
    """Return the targets of the message that waits under a name, and of those that the service has not read yet.

    Raises:
        UsageError: there is no such intake.
        BrokerError: no answer.
    """
    [backlog], states = inspector.look(intake, partition_of(key, inspector.partitions(intake)))
    named = hash_of(key, name)
    # First the intake: what is read meanwhile is found afterwards.
    unread = inspector.in_intake([backlog], RequestReader(policy), states, to_now=True)
    targets = {one.target for one in unread if one.name == named and one.kind == "message"}
    for _ in range(LOOKS):
        place, entry, _ = inspector.named(intake, key, name)
        if entry is None:
            break
        found = find(inspector, Handle(*place, entry.due_ms, id_text(entry.id).decode()), policy)
        if found.message is not None:
            targets.add(found.message.target)
            break
    return targets


def is_replaced(inspector: Inspector, waiting: Waiting, policy: IntakePolicy) -> bool:
    """Return whether a newer message of its name, which the service has not read yet, takes a message's place.

    Raises:
        BrokerError: no answer.
    """
    if waiting.name is None:
        return False
    [backlog], states = inspector.look(*waiting.place)
    unread = inspector.in_intake([backlog], RequestReader(policy), states, to_now=True)
    return any(one.name == waiting.name and one.kind == "message" and one.sequence > waiting.sequence for one in unread)


class _Search:
    """Looks for one handle.

    With a fixed delay, the service adjusts due times to the order of the log, so a message's due time may differ from
    its handle's: there the id alone decides.
    """

    def __init__(self, inspector: Inspector, handle: Handle, policy: IntakePolicy, spot: Spot | None) -> None:
        self._inspector = inspector
        self._handle = handle
        self._place = (handle.topic, handle.partition)
        self._requests = RequestReader(policy)
        self._any_due = policy.fixed_delay_ms is not None
        self._spot = spot

    def results(self, start: int | None, end: int | None) -> dict[str, Any] | None:
        """Return the result that counts between two offsets."""
        return self.best(list(self._inspector.results(self._place, self._handle.id, start, end)))

    def best(self, results: list[dict[str, Any] | None]) -> dict[str, Any] | None:
        """Return the result that counts among several."""
        for outcome in _RANK:
            for result in results:
                if result is not None and result.get("outcome") == outcome and self._has_due_time(result.get("due_ms")):
                    return result
        return None

    def waiting(self, whereabouts: Whereabouts) -> None:
        """Look through the logs in which it may wait."""
        [backlog], states = self._inspector.look(*self._place)
        met: dict[int, tuple[Waiting, tuple[Bucket, int] | None]] = {}
        newest_cancel = -1
        for found, bucket in self._matching(backlog, states):
            if found.kind == "cancel":
                newest_cancel = max(newest_cancel, found.sequence)
            else:
                met[found.sequence] = found, bucket  # the place where it was met last is where it went
        # A cancel takes messages before it; a message after it is a new one.
        left = {sequence: one for sequence, one in met.items() if sequence > newest_cancel}
        whereabouts.cancel_waits = newest_cancel >= 0 and not left
        if met:
            # A second one with the same id and due time will be reported as a duplicate.
            message, whereabouts.bucket = (left or met)[min(left or met)]
            whereabouts.waits_in, whereabouts.will_be_dead = message.source, message.kind == "dead"
            whereabouts.repeated, whereabouts.id = message.repeated, message.id
            whereabouts.message = message

    def _matching(self, backlog: Backlog, states: States) -> Iterator[tuple[Waiting, tuple[Bucket, int] | None]]:
        """Yield records with this handle in the logs in which it may wait, each with its bucket and that one's end."""
        for found in self._inspector.in_intake([backlog], self._requests, states, to_now=True):
            if self._matches(found):
                yield found, None
        yield from self._in_levels(backlog, states)
        for found in self._inspector.in_parked([backlog], states, to_now=True):
            if self._matches(found):
                yield found, None

    def _in_levels(self, backlog: Backlog, states: States) -> Iterator[tuple[Waiting, tuple[Bucket, int] | None]]:
        """Yield records with this handle in the levels' logs."""
        if backlog.checkpoint is None:
            return
        # With a fixed delay a message may be due later than its handle says, and in any bucket of a level.
        buckets: Sequence[Bucket | None] = [None] if self._any_due else backlog.buckets_of(self._handle.due_ms)
        state = states[self._place]
        known = None if self._spot is None else self._inspector.waiting_at(backlog, state, *self._spot)
        is_there = known is not None and self._matches(known)
        for bucket in buckets:
            if is_there and bucket is not None and bucket_offsets(backlog, state, bucket) > SEARCHED:
                continue
            for found in self._inspector.in_levels([backlog], states, bucket, to_now=True):
                if self._matches(found):
                    yield found, _bucket_of(found, backlog.checkpoint)
        if is_there and known is not None:
            yield known, _bucket_of(known, backlog.checkpoint)

    def _matches(self, found: Waiting) -> bool:
        ids = [found.id] if found.repeated is None else [found.id, found.repeated.schedule.decode()]
        return self._handle.id in ids and self._has_due_time(found.due_ms)

    def _has_due_time(self, due_ms: int | None) -> bool:
        return due_ms is None or due_ms == self._handle.due_ms or self._any_due


def _bucket_of(found: Waiting, checkpoint: Checkpoint) -> tuple[Bucket, int]:
    """Return the bucket that a message waits in, and the end of its time."""
    level, number = found.source
    width_ms = checkpoint.geometry.width_of(level)
    return Bucket(level, number * width_ms), (number + 1) * width_ms
