"""Which records of a level's log wait: by the level's low watermark, its done buckets, and the journal."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tarry.core.message import FiledMessage
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.journal import ParkedEntry, ParkedRow, encode_done, encode_names, encode_parked
from tarry.core.progress.name_index import NameEntry
from tarry.core.progress.name_records import put
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import hash_of
from tarry.core.wheel.filed import filed_headers
from tarry.pipelines.backlog.waiting import waiting
from tarry.pipelines.topics import TopicTables
from tests.support.chaos import now_ms
from tests.support.ignoring import ignore
from tests.support.stage import Stage

pytestmark = pytest.mark.broker

GEOMETRY: Final = Geometry(20_000, 16, 2)
FIRST: Final = now_ms() // 20_000 + 30
"""The bucket of level 1, by number, in which the first message is due."""


class FiledIntake:
    """An intake of one partition that nobody serves; a test writes the logs of its levels, and its checkpoint."""

    def __init__(self, stage: Stage, topics: TopicTables) -> None:
        self._stage = stage
        self._topics = topics
        self._sequence = 0
        stage.make_intake(geometry=GEOMETRY)

    def file(self, level: int, *buckets: int, names: Sequence[bytes | None] = ()) -> list[int]:
        """Write a message to a level's log for each bucket of level 1; return their offsets in the intake."""
        before = self._sequence
        for bucket, name in zip_longest(buckets, names):
            due_ms, id_ = bucket * 20_000 + 7, b"%036d" % self._sequence
            message = FiledMessage(due_ms, self._sequence, b"k", b"v", None, True, self._stage.target, -1, id_)
            message.name = name
            headers: list[tuple[str, bytes | None]] = filed_headers(message)  # type: ignore[assignment]
            self._stage.put(f"{self._stage.intake}.wheel-{level}", (0, b"k", b"v", headers))
            self._sequence += 1
        return list(range(before, self._sequence))

    def park(self, *targets: str) -> list[int]:
        """Write a message to the parked log for each target; return their offsets in the intake."""
        before = self._sequence
        for target in targets:
            message = FiledMessage(7, self._sequence, b"k", b"v", None, True, target, -1, b"%036d" % self._sequence)
            headers: list[tuple[str, bytes | None]] = filed_headers(message)  # type: ignore[assignment]
            self._stage.put(f"{self._stage.intake}.parked", (0, b"k", b"v", headers))
            self._sequence += 1
        return list(range(before, self._sequence))

    def journal_parked(self, *rows: ParkedRow) -> None:
        self._stage.put(f"{self._stage.intake}.journal", (0, None, encode_parked(ParkedEntry(list(rows))), None))

    def journal(self, done: dict[Source, list[int]]) -> None:
        self._stage.put(f"{self._stage.intake}.journal", (0, None, encode_done(done), None))

    def journal_names(self, changes: bytes) -> None:
        self._stage.put(f"{self._stage.intake}.journal", (0, None, encode_names(changes), None))

    def commit(
        self,
        *,
        closed: int,
        done: int,
        low: Sequence[int],
        parked_pointer: int | None = None,
        names_complete_from: int = 0,
    ) -> None:
        """Commit a checkpoint; the bounds of level 1 are given as the numbers of its buckets."""
        above_ms = GEOMETRY.width_of(2) * (FIRST * 20_000 // GEOMETRY.width_of(2) + 3)
        checkpoint = Checkpoint((), True, GEOMETRY, (closed * 20_000, above_ms), (done * 20_000, above_ms), tuple(low))
        checkpoint = replace(checkpoint, parked_pointer=parked_pointer, names_complete_from=names_complete_from)
        wanted = [TopicPartition(*self._stage.places[0], 0, checkpoint.encode())]
        request = [ConsumerGroupTopicPartitions(self._stage.group, wanted)]
        self._stage.admin.alter_consumer_group_offsets(request)[self._stage.group].result(20)

    def waiting(self) -> list[tuple[int, int]]:
        """Level, and offset in the intake."""
        messages = waiting(self._topics, self._stage.group, IntakePolicy(self._stage.intake), on_progress=ignore)
        return sorted((row.level, row.offset) for row in messages.select("level", "offset").collect())


@pytest.fixture
def intake(stage: Stage, topics: TopicTables) -> FiledIntake:
    return FiledIntake(stage, topics)


def test_a_range_of_done_offsets_speaks_only_of_the_bucket_that_it_names(intake: FiledIntake) -> None:
    first, second = FIRST, FIRST + 1
    intake.file(1, first, second, first, second, first)
    # Each range covers the offset of a message of the other bucket, as when messages of both were filed by turns.
    intake.journal({Source(1, first): [0, 1, 2], Source(1, second): [2, 3]})
    # Nor do they speak of another level, or of the intake.
    intake.journal({Source(2, first): [4], INTAKE: [1, 4]})
    intake.commit(closed=FIRST + 2, done=FIRST, low=(0, 0))
    assert intake.waiting() == [(1, 1), (1, 4)]


def test_done_buckets_and_what_lies_below_the_low_watermark_are_left_out(intake: FiledIntake) -> None:
    first, second = FIRST, FIRST + 1
    intake.file(1, second, first, second, first, second)
    # The first bucket is done, and so is the first record of the second one, which is not deleted yet.
    intake.commit(closed=FIRST + 2, done=second, low=(1, 0))
    assert intake.waiting() == [(1, 2), (1, 4)]


def test_done_records_that_are_not_deleted_yet_do_not_wait_though_nothing_else_is_in_the_log(
    intake: FiledIntake,
) -> None:
    intake.file(1, FIRST, FIRST + 5)
    intake.commit(closed=FIRST, done=FIRST, low=(2, 0))
    assert intake.waiting() == []


def test_what_was_replaced_or_cancelled_by_name_does_not_wait(intake: FiledIntake) -> None:
    a, b, c, d = (hash_of(b"k", name) for name in (b"a", b"b", b"c", b"d"))
    # 3 waits under its name, so 0 does not; 1 was adopted without an entry; 2 has gone; 4 was decided later.
    intake.file(1, *(FIRST,) * 6, names=(a, b, c, a, d, None))
    intake.journal_names(put(a, NameEntry(3, FIRST * 20_000 + 7, bytes(16))))
    intake.commit(closed=FIRST, done=FIRST, low=(0, 0), names_complete_from=2)
    assert intake.waiting() == [(1, 1), (1, 3), (1, 4), (1, 5)]
    intake.commit(closed=FIRST, done=FIRST, low=(0, 0))
    assert intake.waiting() == [(1, 3), (1, 4), (1, 5)]


def test_parked_messages_wait_until_they_are_done_and_are_found_in_no_other_log(intake: FiledIntake) -> None:
    in_bucket = intake.file(1, FIRST)
    parked = intake.park("a", "b", "a", "b")
    intake.journal({INTAKE: [], Source(1, FIRST): [0]})
    intake.journal_parked(ParkedRow(1, 0, 2, "a"), ParkedRow(2, 0, 2, "b"))
    intake.journal({Source(PARKED, 1): [0]})
    # It is done, and not in the journal's last parked record any more: messages of it were parked and delivered before.
    intake.park("gone")
    intake.commit(closed=FIRST + 1, done=FIRST, low=(0, 0), parked_pointer=0)
    assert intake.waiting() == [(-1, one) for one in parked[1:]]
    assert in_bucket == [0]
