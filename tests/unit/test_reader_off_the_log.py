"""A reader that is off a log says so; what it is told of a log that it reads no more is of no concern."""

import pytest
from confluent_kafka import KafkaError, Message

from tarry.errors import UsageError
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.testing import FakeBroker, ManualClock

PLACE = ("t", 0)
MANY = 200


class TrimmedLog:
    """A log of which the first half is deleted, and its reader."""

    def __init__(self) -> None:
        broker = FakeBroker(ManualClock())
        broker.make_topic("t")
        for number in range(MANY):
            broker.append("t", None, b"%d" % number, None)
        self.cluster = cluster = Cluster("fake", {}, broker.clients())
        assert Offsets(cluster.clients.admin(cluster.admin()), "group", cluster).trim({PLACE: MANY // 2}).done
        self.warnings: list[str] = []
        self.reader = Reader(cluster, self.warnings.append)


def test_a_log_that_no_longer_holds_what_comes_next_is_an_error() -> None:
    stage = TrimmedLog()
    stage.reader.open({PLACE: 50})
    with pytest.raises(UsageError, match="t/0 no longer holds the records that come next"):
        stage.reader.read(10, 1)


def test_a_missing_right_to_a_group_is_only_a_warning_because_reading_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = TrimmedLog()
    reader = Reader(stage.cluster, stage.warnings.append, is_denial_final=True)
    reader.open({PLACE: 150})
    denied = Message(error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    monkeypatch.setattr(reader._consumer, "consume", lambda _most, _timeout_s: [denied])
    assert reader.read(10, 1) == ([], {})
    assert stage.warnings == ["Broker: Group authorization failed"]


def test_an_error_of_an_earlier_read_of_the_partition_is_only_a_warning() -> None:
    stage = TrimmedLog()
    stage.reader.open({PLACE: 50})
    stage.reader.shut([PLACE])
    stage.reader.open({PLACE: 150})
    records = [record for _ in range(3) for record in stage.reader.read(MANY, 1)[0]]
    assert [record.value() for record in records] == [b"%d" % number for number in range(150, MANY)]
    assert len(stage.warnings) == 1
