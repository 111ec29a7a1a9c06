"""The state that one run of an audit leaves to the next, also over topics that are recreated."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from tarry.core.request.intake_policy import IntakePolicy
from tarry.kafka.types import Place
from tarry.pipelines.audit import Audit
from tarry.pipelines.topics import RECORD, TopicTables
from tarry.testing.manual_clock import ManualClock

T0 = 1_767_268_800_000
POLICY = IntakePolicy("in", fixed_delay_ms=100_000, fixed_target="new")


@dataclass
class Logs:
    """Topics of one partition each, by name: rows without topic, partition and offset."""

    spark: SparkSession
    of: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {"in": [], "in.results": [], "in.dead": []})

    def append(self, topic: str, at_ms: int, value: bytes | None, headers: Mapping[str, bytes] | None = None) -> None:
        stamp = datetime.fromtimestamp(at_ms / 1_000, UTC)
        self.of.setdefault(topic, []).append((stamp, None, value, list((headers or {}).items())))

    def fired(self, offset: int, due_ms: int, target: str) -> None:
        """A result that says so."""
        said = {"v": 1, "outcome": "fired", "id": "x", "source": f"in/0/{offset}", "due_ms": due_ms, "at_ms": due_ms}
        self.append("in.results", due_ms, json.dumps(said | {"target": target}).encode())

    def stub(self, offset: int) -> None:
        """In place of a dead letter."""
        source = b"in/0/%d" % offset
        self.append("in.dead", T0, None, {"tarry-stub": source, "tarry-source": source, "tarry-error": b"too-large"})

    def places(self, topics: Iterable[str]) -> list[Place]:
        return [(name, 0) for name in topics if name in self.of]

    def names(self) -> set[str]:
        return set(self.of)

    def starts(self, topics: Iterable[str]) -> dict[Place, int]:
        return dict.fromkeys(self.places(topics), 0)

    def ends(self, topics: Iterable[str]) -> dict[Place, int]:
        return {place: len(self.of[place[0]]) for place in self.places(topics)}

    settled_ends = ends

    def compacted(self, _topics: Collection[str]) -> set[str]:
        return set()

    def read(self, starts: Mapping[Place, int], ends: Mapping[Place, int], *, may_be_trimmed: bool) -> DataFrame:
        assert may_be_trimmed
        rows = [
            (*place, offset, *self.of[place[0]][offset])
            for place, start in starts.items()
            for offset in range(start, ends.get(place, start))
        ]
        return self.spark.createDataFrame(rows, RECORD)


@pytest.mark.exhaustive
def test_a_message_fired_to_a_former_target_that_is_gone_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    """The result is read before the message is judged, and the target of now is another one."""
    logs, clock = Logs(spark), ManualClock(T0 + 110_000)
    logs.append("in", T0, b"v")
    logs.fired(0, T0 + 100_000, "former")
    audit = Audit([POLICY], str(tmp_path / "out"), str(tmp_path / "state"))
    topics = cast("TopicTables", logs)
    assert audit.run(topics, lambda _: None, clock).fates == {"waiting": 1}
    clock.advance(3_600_000)
    second = audit.run(topics, lambda _: None, clock)
    assert (second.fates, second.faults["lost"]) == ({"unjudged": 1}, 0)


@pytest.mark.exhaustive
def test_recreated_dead_letters_are_read_from_their_beginning(spark: SparkSession, tmp_path: Path) -> None:
    logs, clock = Logs(spark), ManualClock(T0 + 110_000)
    logs.append("in", T0, b"v")
    logs.stub(7)
    logs.stub(8)
    audit = Audit([POLICY], str(tmp_path / "out"), str(tmp_path / "state"))
    topics = cast("TopicTables", logs)
    assert audit.run(topics, lambda _: None, clock).fates == {"waiting": 1}
    logs.of["in.dead"] = []
    logs.stub(0)
    clock.advance(3_600_000)
    assert audit.run(topics, lambda _: None, clock).fates == {"stub": 1}
