"""The log of `I.control`, in which people pause targets: asking the brokers for it without waiting."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Obeyed
from tarry.errors import RetriableError
from tarry.kafka.errors import error_of
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.origins import text_of
from tarry.kafka.patience import patiently
from tarry.kafka.rights import DENIED, READ
from tarry.kafka.topics import CONTROL, NO_TOPIC
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin._topic import TopicDescription

REQUEST_TIMEOUT_S = 5.0
LOOK_EVERY_S = 0.01

FIRST_WITHIN_S = 5.0
"""How long to ask for a log for a first checkpoint: a topic that was just created has no leader for a moment."""


def control_log_of(intake: str) -> Place:
    """Return the log of an intake's pauses."""
    return intake + CONTROL, 0


@dataclass(frozen=True, slots=True)
class ControlLog:
    """The log, as the brokers describe it.

    Attributes:
        topic_id: the id of its topic; empty if the brokers have no topic ids.
        start: the first offset that it holds. Compaction leaves it at 0, and tarry deletes no record; so above 0
            somebody has deleted records, and perhaps pauses.
        end: its last stable offset. What is behind an open transaction cannot be read, and so is obeyed by no owner
            and confirmed to nobody.
    """

    topic_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NoControlLog:
    """Why the log cannot be read.

    Attributes:
        reason: for people.
        is_missing: whether there is no such topic.
        is_denied: whether a right is missing.
        code: librdkafka's name of the error; empty if there is none.
    """

    reason: str
    is_missing: bool = False
    is_denied: bool = False
    code: str = ""

    @property
    def may_pass(self) -> bool:
        """Whether the reason may pass by itself: the log has no leader, or no broker answers."""
        return not (self.is_missing or self.is_denied)


class AskedControlLog:
    """A question about the log under way, which the loop looks at in each turn.

    Args:
        admin: an admin client.
        offsets: asks the brokers for offsets.
        intake: the intake.
        reads: whether the log is to be read, for which a right is needed.
    """

    def __init__(self, admin: AdminClient, offsets: Offsets, intake: str, *, reads: bool = True) -> None:
        self._reads = reads
        self._offsets = offsets
        self._log = control_log_of(intake)
        self._topic: Future[TopicDescription] = admin.describe_topics(
            TopicCollection([self._log[0]]), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
        )[self._log[0]]
        self._topic_id = ""
        self._span: tuple[PendingAnswers, PendingAnswers] | None = None

    def answer(self) -> ControlLog | NoControlLog | None:
        """Return the answer; None if it has not come yet."""
        if self._span is None:
            return self._described() if self._topic.done() else None
        starts, ends = self._span
        if not (starts.done and ends.done):
            return None
        if failures := [*starts.failures(), *ends.failures()]:
            return NoControlLog(failures[0])
        start, end = starts.answers().get(self._log), ends.answers().get(self._log)
        if start is None or end is None:
            return NoControlLog(f"{self._log[0]}: the brokers do not say where it begins and ends")
        return ControlLog(self._topic_id, start, end)

    def _described(self) -> NoControlLog | None:
        try:
            found = self._topic.result()
        except KafkaException as exception:
            error = error_of(exception)
            reason = f"{self._log[0]}: {error.str()}"
            is_missing, is_denied = error.code() in NO_TOPIC, error.code() in DENIED
            return NoControlLog(reason, is_missing=is_missing, is_denied=is_denied, code=error.name())
        if self._reads and found.authorized_operations is not None and READ not in found.authorized_operations:
            return NoControlLog(f"{self._log[0]}: this user has no right to read it (READ)", is_denied=True)
        self._topic_id = text_of(found.topic_id)
        self._span = self._offsets.ask_starts([self._log]), self._offsets.ask_ends([self._log], committed=True)
        return None


def ask_control_log(admin: AdminClient, offsets: Offsets, intake: str, clock: Clock) -> ControlLog | NoControlLog:
    """Ask as `AskedControlLog` does for a log that is not to be read, and wait for the answer."""
    asked = AskedControlLog(admin, offsets, intake, reads=False)
    while (answer := asked.answer()) is None:
        clock.sleep(LOOK_EVERY_S)
    return answer


def first_obeyed(admin: AdminClient, offsets: Offsets, intake: str, clock: Clock) -> Obeyed | None:
    """Ask for the log, and return what a checkpoint says of it if no owner has written the checkpoint."""

    def look() -> ControlLog | NoControlLog:
        answer = ask_control_log(admin, offsets, intake, clock)
        if isinstance(answer, NoControlLog) and answer.may_pass:
            raise RetriableError(answer.reason)
        return answer

    try:
        return obeyed_at_first(patiently(look, clock, FIRST_WITHIN_S))
    except RetriableError as error:
        return obeyed_at_first(NoControlLog(str(error)))


def obeyed_at_first(log: ControlLog | NoControlLog) -> Obeyed | None:
    """Return what a checkpoint says of the log of pauses if no owner has written the checkpoint.

    If the log ever held a record, somebody may rely on a pause: then the next owner must read the log, however long
    that takes. If it is empty, no pause is confirmed before the partition has an owner, which obeys it.

    Args:
        log: the log, asked for when the partition was there; one that cannot be read now may hold a pause.

    Returns:
        That nothing is obeyed so far; None if the log is empty, does not exist, or must not be seen.
    """
    if isinstance(log, ControlLog):
        return Obeyed(0, log.topic_id) if log.end else None
    return Obeyed(0, "") if log.may_pass else None
