"""Pausing targets, and asking who obeys: for all who do not run in the service's loop (ADR 34).

A pause is a record of `I.control`. Each owner of a partition says in its checkpoint up to which offset of that log it
obeys, and commits the checkpoint under the fencing of the group. So once all checkpoints are past the record, no
process delivers to the target, not even one that does not know that it has lost its partitions.
"""

from collections.abc import Callable
from typing import NamedTuple

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, decode_checkpoint
from tarry.core.request.pause import Pause, read_pause
from tarry.errors import RetriableError, UsageError
from tarry.kafka.compacted import last_records
from tarry.kafka.control_log import ControlLog, NoControlLog, ask_control_log, control_log_of
from tarry.kafka.errors import group_errors
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import count_partitions, partitions_of_intake
from tarry.kafka.writing import write_record

ANSWER_WITHIN_S = 10.0
FIRE = "-fire"
"""What follows the name of a process in the first of its transactional ids."""


class Unconfirmed(NamedTuple):
    """A partition whose owner has not confirmed that it obeys.

    Attributes:
        partition: its number.
        owner: the name of the process that wrote its last checkpoint; None: no process has served it yet.
        is_too_old: whether that process is of a version of tarry that knows no pauses, or could not read the log.
    """

    partition: int
    owner: str | None
    is_too_old: bool


class Control:
    """Writes and reads the pauses of intakes. Not thread-safe.

    Args:
        cluster: the Kafka cluster.
        group: the service's consumer group.
        clock: for waiting.
        on_warning: takes the text of an error from which a client recovers by itself.
    """

    def __init__(
        self, cluster: Cluster, group: str, clock: Clock, on_warning: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._cluster = cluster
        self._admin = cluster.clients.admin(cluster.admin())
        self._offsets = Offsets(self._admin, group, cluster)
        self._clock = clock
        self._on_warning = on_warning

    def close(self) -> None:
        """Close the clients."""
        self._offsets.close()

    def check_target(self, target: str) -> None:
        """Check that a target exists: to pause a topic whose name is mistyped would stop nothing.

        Raises:
            UsageError: there is no such topic, or this user must not see it.
            RetriableError: the brokers do not answer.
        """
        with group_errors(f"ask for {target}"):
            found = count_partitions(self._admin, [target], ANSWER_WITHIN_S)
        if target not in found:
            raise UsageError(
                f"topic {target} does not exist, or this user may not see it: check the name, and the right DESCRIBE"
            )

    def write(self, intake: str, pause: Pause) -> int:
        """Write a pause, or the end of one; return the offset of its record, for `unconfirmed`.

        All replicas have it when this returns.

        Raises:
            UsageError: the intake has no log of pauses, or this user must not write to it.
            RetriableError: no acknowledgement. The record may have been written; to write it again does no harm.
            FatalError: Kafka refused it.
        """
        self._log(intake)
        lost = "cannot pause or resume a target"
        return write_record(self._cluster, control_log_of(intake), pause.key(), pause.value(), lost)

    def pauses(self, intake: str) -> dict[str, Pause]:
        """Return what was decided last about each target of an intake: about those that were resumed, too.

        Raises:
            UsageError: the intake has no log of pauses, or this user must not read it.
            RetriableError: the brokers do not answer.
        """
        log = self._log(intake)
        return decided_in(self._cluster, intake, log.start, log.end, self._clock, self._on_warning)

    def end(self, intake: str) -> int:
        """Return the offset of the last record of an intake's log, for `unconfirmed`; -1 if there was none.

        Raises:
            UsageError: the intake has no log of pauses, or this user must not read it.
            RetriableError: the brokers do not answer.
        """
        return self._log(intake).end - 1

    def deleted(self, intake: str) -> int:
        """Return how many offsets were deleted from the beginning of an intake's log: pauses among them are lost.

        Compaction deletes records, too, but only those that count no more, and leaves the beginning where it is.

        Raises:
            UsageError: the intake has no log of pauses, or this user must not read it.
            RetriableError: the brokers do not answer.
        """
        return self._log(intake).start

    def unconfirmed(self, intake: str, offset: int) -> list[Unconfirmed]:
        """Return the partitions of an intake whose owners have not confirmed that they obey a record.

        A partition that its last owner has released counts as confirmed if that owner knew pauses: the next owner
        delivers nothing before it has read the log to its end.

        Args:
            intake: the intake.
            offset: of the record, from `write`.

        Raises:
            UsageError: there is no such intake, or it has no log of pauses.
            RetriableError: the brokers do not answer.
        """
        count = partitions_of_intake(self._admin, intake, ANSWER_WITHIN_S, f"ask for {intake}")
        places = [(intake, partition) for partition in range(count)]
        committed = self._offsets.committed(places)
        # Asked for after the checkpoints: what the owners had read by then is below its end, if it was not lost.
        log = self._log(intake)
        found = []
        for place in places:
            checkpoint = _checkpoint(committed[place][1]) if place in committed else None
            if not obeys(checkpoint, log.topic_id, offset, log.end):
                found.append(_unconfirmed(place[1], checkpoint, log.topic_id))
        return found

    def _log(self, intake: str) -> ControlLog:
        answer = ask_control_log(self._admin, self._offsets, intake, self._clock)
        if isinstance(answer, ControlLog):
            return answer
        raise _refusal(intake, answer)


def decided_in(
    cluster: Cluster, intake: str, start: int, end: int, clock: Clock, on_warning: Callable[[str], None]
) -> dict[str, Pause]:
    """Return what was decided last about each target, by the log of an intake's pauses between two offsets.

    Raises:
        RetriableError: the brokers do not answer, or do not let us read it.
    """
    records = last_records(cluster, control_log_of(intake), start, end, clock, on_warning)
    decided = (read_pause(key, record.value(), record.timestamp()[1]) for key, record in records.items())
    return {one.target: one for one in decided if one is not None}


def _refusal(intake: str, answer: NoControlLog) -> UsageError | RetriableError:
    if answer.is_missing:
        topic = control_log_of(intake)[0]
        return UsageError(
            f"{intake} has no topic {topic}, so no target can be paused: `tarry topics` and `tarry serve` create it"
        )
    return UsageError(answer.reason) if answer.is_denied else RetriableError(answer.reason, answer.code)


def _checkpoint(text: str) -> Checkpoint | None:
    try:
        return decode_checkpoint(text)
    except CheckpointError:  # of a version of tarry that this one does not know: nothing is confirmed
        return None


def obeys(checkpoint: Checkpoint | None, topic_id: str, offset: int, end: int) -> bool:
    """Whether a checkpoint confirms the record at an offset of the log of pauses.

    Args:
        checkpoint: of a partition; None: none that can be read.
        topic_id: the id of the log's topic now.
        offset: of the record.
        end: of the log, asked for after the checkpoint. What is behind it cannot be read, also not by the next owner of
            a released partition. If the log has lost its end, as by an unclean election, a checkpoint beyond it is
            about records that were lost, and not about those that took their places.
    """
    if checkpoint is None or checkpoint.obeyed is None or checkpoint.obeyed.topic_id != topic_id or offset >= end:
        return False
    return checkpoint.released or offset < checkpoint.obeyed.offset <= end


def _unconfirmed(partition: int, checkpoint: Checkpoint | None, topic_id: str) -> Unconfirmed:
    if checkpoint is None or not checkpoint.writer:
        return Unconfirmed(partition, None, is_too_old=False)
    is_known = checkpoint.obeyed is not None and checkpoint.obeyed.topic_id == topic_id
    return Unconfirmed(partition, checkpoint.writer[0].removesuffix(FIRE), is_too_old=not is_known)
