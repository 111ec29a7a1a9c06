"""What is counted of a transaction, from the batches that it completed."""

from dataclasses import replace

import pytest

from tarry.core.batch import Batch
from tarry.core.message import HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.headers import derived_id
from tarry.service.metrics import Tally
from tarry.service.metrics.families import FIRED, NAMED_ADOPTED
from tarry.service.worker.counting import count_delivered, declare_counters
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000


def taken_over(names_complete_from: int) -> PartitionState:
    checkpoint = Checkpoint(("w",), False, Geometry(20_000, 10, 0))
    checkpoint = replace(checkpoint, names_complete_from=names_complete_from)
    found = Recovered(0, checkpoint, DoneSet(), 0)
    reader = RequestReader(IntakePolicy("in"))
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 16, start_ms), found, NOW_MS)


def message(offset: int, name: bytes | None) -> HeldMessage:
    one = HeldMessage(NOW_MS, offset, b"k", b"v", None, False, "orders", -1, derived_id("in", 0, offset))
    one.name = None if name is None else hash_of(b"k", name)
    return one


@pytest.mark.parametrize(("complete_from", "adopted"), [(0, 0), (5, 2), (9, 3)])
def test_deliveries_of_named_messages_from_before_the_index_is_complete_are_counted(
    complete_from: int, adopted: int
) -> None:
    tally = Tally()
    declare_counters(tally, ["in"])
    assert tally.snapshot().counters[NAMED_ADOPTED.name, "in"] == 0
    sent = [message(1, b"a"), message(2, b"b"), message(3, None), message(5, b"c")]
    count_delivered(tally, [(taken_over(complete_from), Batch(due=sent))], NOW_MS)
    counters = tally.snapshot().counters
    assert (counters[NAMED_ADOPTED.name, "in"], counters[FIRED.name, "in"]) == (adopted, 4)
