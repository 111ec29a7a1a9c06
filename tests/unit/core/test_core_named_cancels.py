"""A cancel by handle of a named message that is replaced, or cancelled by name, before the cancel is decided."""

from tarry.core.message import Headers
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.headers import CANCEL, CANCEL_NAME, DELIVER_AT, ID, NAME, TARGET, Outcome
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
DUE_MS = NOW_MS + 100
ID_ = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
OTHER_ID = b"9e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


class One:
    """A partition; its records are at 0, 1, 2, …"""

    def __init__(self) -> None:
        found = Recovered(0, Checkpoint(("w",), False, Geometry(20_000, 10, 0)), DoneSet(), 0)
        reader = RequestReader(IntakePolicy("in"))
        self.state = PartitionState(
            "in", 0, reader, False, lambda start_ms: TimingWheel(1, 16, start_ms), found, NOW_MS
        )
        self.end = 0

    def send(self, name: bytes | None = None, due_ms: int = DUE_MS, id_: bytes = ID_) -> None:
        """Send a message with an id and a due time, perhaps with a name."""
        headers: Headers = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % due_ms), (ID, id_)]
        self._accept([*headers, (NAME, name)] if name is not None else headers, b"v")

    def cancel_by_handle(self) -> None:
        self._accept([(CANCEL, b"1.in.0.%d.%b" % (DUE_MS, ID_))], b"")

    def cancel_by_name(self, name: bytes) -> None:
        self._accept([(CANCEL_NAME, name)], b"")

    def _accept(self, headers: Headers, value: bytes) -> None:
        self.state.arrivals.accept(self.end, NOW_MS, b"k", value, headers, NOW_MS)
        self.end += 1
        self.state.arrivals.reach(self.end)

    def make_ready(self) -> None:
        """Let what is due leave the wheel; no transaction takes it yet."""
        self.state.collect(DUE_MS)

    def fire(self) -> tuple[list[int], dict[int, str]]:
        """Return the offsets of what is delivered, and the outcome of each other record."""
        delivered: list[int] = []
        told: dict[int, str] = {}
        while self.state.collect(DUE_MS):
            batch = self.state.take(100, DUE_MS)
            self.state.settle(batch)
            self.state.confirm(batch)
            delivered += [message.sequence for message in batch.due]
            told |= {one.offset: one.outcome for decision in batch.decisions for one in decision.answers}
            told |= {one.message.sequence: one.outcome for one in batch.resolutions}
            told |= {one.cancel.sequence: one.outcome for one in batch.resolutions if one.cancel is not None}
        assert (self.state.held, self.state.held_bytes, self.state.names.count) == (0, 0, 0)
        return delivered, told


def test_a_cancel_by_handle_takes_the_one_like_it_if_the_named_message_that_it_had_was_cancelled_by_name() -> None:
    for is_renamed in (False, True):
        one = One()
        one.send(b"x")
        one.send(b"y" if is_renamed else None)  # decided when they are due: is it a duplicate?
        one.cancel_by_handle()
        one.cancel_by_name(b"x")
        assert one.fire() == (
            [],
            {0: Outcome.CANCELLED, 1: Outcome.CANCELLED, 2: Outcome.CANCELLED, 3: Outcome.CANCELLED},
        )


def test_a_cancel_by_handle_takes_the_one_like_a_named_message_that_is_due_and_was_cancelled_by_name() -> None:
    one = One()
    one.send(b"x")
    one.make_ready()
    one.send()
    one.cancel_by_name(b"x")
    one.cancel_by_handle()
    delivered, told = one.fire()
    assert delivered == []
    assert told == {0: Outcome.CANCELLED, 1: Outcome.CANCELLED, 2: Outcome.CANCELLED, 3: Outcome.CANCELLED}


def test_a_cancel_by_handle_is_too_late_if_its_message_was_replaced_or_cancelled_by_name() -> None:
    one = One()
    one.send(b"x")
    one.cancel_by_handle()
    one.cancel_by_name(b"x")
    assert one.fire() == ([], {0: Outcome.CANCELLED, 1: Outcome.CANCEL_TOO_LATE, 2: Outcome.CANCELLED})


def test_a_cancel_by_handle_that_is_decided_gives_way_to_a_replace_before_it_is_committed() -> None:
    one = One()
    one.send(b"x")
    one.cancel_by_handle()
    one.make_ready()
    one.send(b"x", DUE_MS, OTHER_ID)
    assert one.fire() == ([2], {0: Outcome.REPLACED, 1: Outcome.CANCEL_TOO_LATE})
