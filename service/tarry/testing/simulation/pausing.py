"""Targets that are paused in a simulated world, and what may not be delivered to them.

A pause is confirmed when the checkpoints of all partitions say so, as `tarry pause` sees it. From then on until the
target is resumed, or until the pause's time is over, no record may be written to the target; and none that was written
before may be committed later, if it was not decided yet that it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tarry.core.progress.checkpoint import CheckpointError, decode_checkpoint
from tarry.core.request.pause import Pause
from tarry.kafka.control import obeys
from tarry.kafka.control_log import control_log_of
from tarry.kafka.types import Place
from tarry.testing.fake import FakeBroker

Written = tuple[Place, int, int]
"""A delivered record: topic and partition, offset, timestamp."""


@dataclass(slots=True)
class PausedTarget:
    """One pause of a target.

    Attributes:
        pause: the record that began it.
        offset: of that record in the log of pauses.
        logs: the partitions of the target.
        confirmed: where they ended when it was confirmed; None: it is not.
        undecided: the records in open transactions at that moment.
        resumed: where they ended when the target was resumed; None: it is not.
    """

    pause: Pause
    offset: int
    logs: tuple[Place, ...]
    confirmed: Mapping[Place, int] | None = None
    undecided: frozenset[tuple[Place, int]] = frozenset()
    resumed: Mapping[Place, int] | None = None

    def forbids(self, written: Written) -> bool:
        """Whether a record may not be delivered."""
        place, offset, stamp_ms = written
        if self.confirmed is None or place not in self.confirmed:
            return False
        if self.pause.until_ms is not None and stamp_ms >= self.pause.until_ms:
            return False
        if self.resumed is not None and offset >= self.resumed[place]:
            return False
        return offset >= self.confirmed[place] or (place, offset) in self.undecided


@dataclass(slots=True)
class PausedTargets:
    """All pauses of a world.

    Attributes:
        intake: the intake.
        group: the group of the service.
        partitions: the number of the intake's partitions.
        broker: the cluster.
        pauses: the pauses so far.
        pending: those that are not confirmed, and whose time is not over.
    """

    intake: str
    group: str
    partitions: int
    broker: FakeBroker
    pauses: list[PausedTarget] = field(default_factory=list)
    pending: list[PausedTarget] = field(default_factory=list)

    def pause(self, topic: str, logs: int, now_ms: int, until_ms: int | None = None) -> PausedTarget:
        """Write a pause of a target that is not paused."""
        pause = Pause(topic, paused=True, reason="a disturbance", who="the world", at_ms=now_ms, until_ms=until_ms)
        found = PausedTarget(pause, self._write(pause), tuple((topic, number) for number in range(logs)))
        self.pauses.append(found)
        self.pending.append(found)
        return found

    def resume(self, topic: str, now_ms: int) -> None:
        """Resume a target."""
        for one in self.pauses:
            if one.pause.target == topic and one.resumed is None:
                one.resumed = self._ends(one)
        self.pending = [one for one in self.pending if one.resumed is None]
        self._write(Pause(topic, paused=False, reason="", who="the world", at_ms=now_ms))

    def is_paused(self, topic: str, now_ms: int) -> bool:
        """Whether a target was paused last, and is not resumed."""
        return topic in self.paused(now_ms)

    def paused(self, now_ms: int) -> set[str]:
        """Return the targets that were paused last, and are not resumed."""
        return {one.pause.target for one in self.pauses if one.resumed is None and one.pause.holds_at(now_ms)}

    def look(self, now_ms: int) -> None:
        """Note which pauses are confirmed by now. One whose time is over before that forbids nothing."""
        for one in list(self.pending):
            if not one.pause.holds_at(now_ms):
                self.pending.remove(one)
            elif self._is_confirmed(one.offset):
                self.pending.remove(one)
                one.confirmed = self._ends(one)
                one.undecided = frozenset((log, at) for log in one.logs for at in self.broker.undecided(*log))

    def faults(self, delivered: Iterable[Written]) -> Iterator[str]:
        """Yield a line for each record that may not have been delivered."""
        for written in delivered:
            for one in self.pauses:
                if one.forbids(written):
                    yield f"{written}: {one}"

    def _write(self, pause: Pause) -> int:
        topic, partition = control_log_of(self.intake)
        return self.broker.append(topic, pause.key(), pause.value(), [], partition)

    def _ends(self, one: PausedTarget) -> dict[Place, int]:
        return {log: self.broker.end(*log) for log in one.logs}

    def _is_confirmed(self, offset: int) -> bool:
        log = control_log_of(self.intake)
        topic_id, end = self.broker.topic_id(log[0]), self.broker.end(*log)
        for number in range(self.partitions):
            found = self.broker.committed(self.group, (self.intake, number))
            if found is None:
                return False
            try:
                checkpoint = decode_checkpoint(found[1])
            except CheckpointError:
                return False
            if not obeys(checkpoint, topic_id, offset, end):
                return False
        return True
