"""The log of `I.control`, in which people pause targets: asking the brokers for it without waiting."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tarry.kafka.errors import error_of
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.origins import text_of
from tarry.kafka.rights import DENIED, READ
from tarry.kafka.topics import CONTROL, NO_TOPIC
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin._topic import TopicDescription

REQUEST_TIMEOUT_S = 5.0


def control_log_of(intake: str) -> Place:
    """Return the log of an intake's pauses."""
    return intake + CONTROL, 0


@dataclass(frozen=True, slots=True)
class ControlLog:
    """The log, as the brokers describe it.

    Attributes:
        topic_id: the id of its topic; empty if the brokers have no topic ids.
        start: the first offset that it holds.
        end: one above its last offset.
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
    """

    reason: str
    is_missing: bool = False
    is_denied: bool = False


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
            return NoControlLog(reason, is_missing=error.code() in NO_TOPIC, is_denied=error.code() in DENIED)
        if self._reads and found.authorized_operations is not None and READ not in found.authorized_operations:
            return NoControlLog(f"{self._log[0]}: this user has no right to read it (READ)", is_denied=True)
        self._topic_id = text_of(found.topic_id)
        self._span = self._offsets.ask_starts([self._log]), self._offsets.ask_ends([self._log])
        return None
