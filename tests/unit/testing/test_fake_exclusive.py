"""An exclusive writer on the fake cluster: who may write, and who is not to shut whom out."""

import pytest

from tarry.client.exclusive import ExclusiveWriter, SourceRecord
from tarry.errors import FencedError
from tests.unit.testing.stage import Stage

TOO_LARGE = bytes(200_000_001)
"""The client library refuses it by itself: no broker says that another writer has taken over."""


def writer(stage: Stage, process: str) -> ExclusiveWriter:
    return ExclusiveWriter("fake:9092", "t", clients=stage.broker.clients(process), clock=stage.clock)


def row(position: int) -> SourceRecord:
    return SourceRecord(str(position), b"%d" % position)


@pytest.mark.parametrize("before", [0, 1], ids=["an empty partition", "one with a record"])
def test_a_zombie_whose_write_never_left_it_shuts_nobody_out(stage: Stage, before: int) -> None:
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
