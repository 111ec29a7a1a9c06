"""An exclusive writer on the fake cluster: who may write, and who is not to shut whom out."""

from typing import Any

import pytest

from tarry.client.exclusive import ExclusiveWriter, SourceRecord
from tarry.errors import FencedError, HeaderError
from tests.unit.testing.stage import TopicStage

TOO_LARGE = bytes(200_000_001)
"""The client library refuses it by itself: no broker says that another writer has taken over."""


def writer(stage: TopicStage, process: str) -> ExclusiveWriter:
    return ExclusiveWriter("fake:9092", "t", clients=stage.broker.clients(process), clock=stage.clock)


def row(position: int) -> SourceRecord:
    return SourceRecord(str(position), b"%d" % position)


@pytest.mark.parametrize("before", [0, 1], ids=["an empty partition", "one with a record"])
def test_a_zombie_whose_write_was_never_sent_does_not_fence_the_other_writer(stage: TopicStage, before: int) -> None:
    zombie, healthy = writer(stage, "zombie"), writer(stage, "healthy")
    zombie.resume()
    for position in range(before):
        zombie.write([row(position)])
    healthy.resume()
    healthy.write([row(before)])
    with pytest.raises(FencedError, match="another writer has written"):
        zombie.write([SourceRecord("late", TOO_LARGE)])
    with pytest.raises(FencedError):
        zombie.write([row(before)])
    healthy.write([row(before + 1)])
    assert stage.values() == [b"%d" % position for position in range(before + 2)]


@pytest.mark.parametrize("headers", ["ab", [("a",)], [(1, b"")], {"a": 1}, [("\ud800", b"")]], ids=repr)
def test_headers_that_cannot_be_sent_are_refused_before_anything_is_written(stage: TopicStage, headers: Any) -> None:
    one = writer(stage, "one")
    one.resume()
    with pytest.raises(HeaderError, match="headers: "):
        one.write([row(0), SourceRecord("1", b"1", headers=headers)])
    one.write([row(0)])
    assert stage.values() == [b"0"]
